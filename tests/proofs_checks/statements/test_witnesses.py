"""The tight instances are golden cases, and reach what was recorded before the project began."""

from __future__ import annotations

import pytest

from proofs_checks.statements.registry import STATEMENTS, find
from proofs_checks.statements.witnesses import read_witnesses, witness_file

STORED = read_witnesses(witness_file())

# Tightness that an independent study of the statements reached; ours has to be at least as good.
RECORDED = {
    "locks-lemma-1-i": 1 - 1e-12,
    "locks-lemma-1-remark": 1 - 1e-12,
    "locks-lemma-2": 1 - 1e-12,
    "locks-corollary-1": 1 - 1e-11,
    "locks-proposition-2": 0.99999,
    "locks-proposition-2-second": 0.99,
    "locks-proposition-2-second-ours": 0.99999,
    "locks-sandwich": 1 - 1e-11,
    "locks-corollary-2": 1 - 1e-12,
    "locks-theorem-1-ii": 0.9973,
    "locks-proposition-3-cumulant": 0.2538,
    "locks-proposition-3-rank": 1 - 1e-11,
    "locks-lemma-3-weyl": 0.99998,
    "readkv-theorem-1": 1 - 1e-11,
    "readkv-theorem-2": 1 - 1e-11,
    "readkv-proposition-10": 1.26374072097 / 1.2637407212158112,
    "readkv-lemma-11": 0.9999997,
    "readkv-lemma-11-softmax": 0.9999996,
    "readkv-proposition-12": 0.9999998,
    "readkv-theorem-1-converse": 0.7025,  # 1 / 1.4233
    "readkv-equation-4": 1 / 1.0447,
}


def test_every_statement_has_a_stored_witness():
    assert sorted(STORED) == sorted(module.ABOUT.id for module in STATEMENTS)


@pytest.mark.parametrize("name", sorted(STORED))
def test_stored_witness_holds_and_reaches_its_ratio(name):
    least, instance = STORED[name]
    slack = find(name).check(instance)
    assert not slack.violated.any()
    if least is None:
        assert slack.tightest is None
    else:
        assert slack.tightest >= least


@pytest.mark.parametrize(("name", "ratio"), RECORDED.items(), ids=list(RECORDED))
def test_stored_witness_is_as_tight_as_the_record(name, ratio):
    pytest.importorskip("flint")
    assert find(name).check(STORED[name][1]).tightest >= ratio


def test_theorems_1_and_2_reach_their_bounds_to_rounding():
    for name in ("readkv-theorem-1", "readkv-theorem-2"):
        slack = find(name).check(STORED[name][1])
        # 8 roundings of an error of .01 beside numbers of size 1: 8 u / .01, doubled by the square
        assert slack.left[0] / slack.right[0] > 1 - 16 * 2.0**-53 / 0.0096
