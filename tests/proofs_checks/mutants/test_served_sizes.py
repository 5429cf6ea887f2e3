"""Ports that are wrong at the served sizes alone (d = 128, eight query heads) are caught there, but for a named few."""

import numpy as np
import pytest

from proofs_checks.judge.case import within_profile
from proofs_checks.judge.cases.served import CHANNELS, HEADS, SERVED, WINDOWS
from proofs_checks.judge.report import BAD
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.mutants.registry import mutants
from refimpl import port as right

SURVIVORS = {
    "decode-depths-along-tokens": "wrong where there are as many tokens as channels; none of these cases has 128",
    "affine-scale-per-column": "the same",
}


def served(stage, inputs):
    first, axis = next(iter(CHANNELS[stage].items()))
    group = -3 if stage in WINDOWS else -2
    wide = np.ndim(inputs[first]) >= -axis and np.shape(inputs[first])[axis] == SERVED
    return wide and ("queries" not in CHANNELS[stage] or np.shape(inputs["queries"])[group] == HEADS)


def killer(mutant):
    """The case that tells a port with the mutant's fault at the served sizes alone; None where none does."""
    stage = mutant.stage

    def confined(**inputs):
        return mutant.function(**inputs) if served(stage, inputs) else getattr(right, stage)(**inputs)

    session = LocalSession(build_port({stage: confined}, **dict(mutant.constants)))
    for case in cases_of(stage):
        usual = within_profile(case, "quick") and "float32" in case.dtypes and case.trial is None
        if usual and served(stage, case.inputs()) and run_case(session, case, "float32").verdict in BAD:
            return case.name
    return None


@pytest.mark.parametrize("stage", CHANNELS)
def test_a_fault_at_the_served_sizes_alone_is_caught_there(stage):
    wrong = [m for m in mutants().values() if m.stage == stage and not m.sized]
    assert {m.id for m in wrong if killer(m) is None} == {m.id for m in wrong if m.id in SURVIVORS}
