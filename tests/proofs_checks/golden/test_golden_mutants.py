"""The kill rate of the files alone: which deliberately wrong ports no stored case catches, and why."""

from functools import cache

import numpy as np
import pytest

from proofs_checks.golden.check import SUMS, golden_directory, load_case, load_manifest, read_sums
from proofs_checks.golden.manifest import NAME
from proofs_checks.golden.port import call
from proofs_checks.golden.storable import storable
from proofs_checks.mutants.base import mutant_port
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.mutants.registry import mutants

PLACE = golden_directory()
SUMS_READ = read_sums((PLACE / SUMS).read_bytes())
CASES = load_manifest((PLACE / NAME).read_bytes(), SUMS_READ).cases

BEYOND_FILES = {
    "sparse-masks-by-zero-weight": "NaN in pages that are not kept: the reference refuses such keys",
    "paged-rebuilt-addresses": "strides: an array in a file has none",
    "select-highest-tie-though-declared": "a declaration: files leave ties free",
    "choose-highest-tie-though-declared": "a declaration: files leave ties free",
    "rotate-padded": "illegal inputs: a refusal is no stored answer",
    "read-left-keys-to-values": "budget that is left: a port's rounding may spend it, so no file holds such a case",
}


@cache
def tensors_of(case):
    return load_case((PLACE / CASES[case].file).read_bytes(), CASES[case], SUMS_READ)


@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning")  # what wrong ports compute overflows
def test_wrong_ports_are_caught_but_for_what_files_cannot_hold():
    """The listed ones have a reason of principle. Others need sizes that no small file has: at most one in twenty."""
    survivors, known = set(), {n: m for n, m in mutants().items() if storable(m.stage)}
    for name, mutant in known.items():
        session = LocalSession(mutant_port(name))
        own = [e for e in CASES.values() if e.stage == mutant.stage]
        with np.errstate(all="ignore"):
            if not any(call(session, entry, tensors_of(entry.id), "float32") for entry in own):
                survivors.add(name)
    assert len(known) > 400
    assert set(BEYOND_FILES) <= survivors, "a reason that no longer holds"
    assert len(survivors - set(BEYOND_FILES)) <= 0.05 * len(known), sorted(survivors)
