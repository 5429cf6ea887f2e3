"""The reference's answer to drawn inputs, and the derived float64 bound of each result (REFERENCE precision)."""

import numpy as np

from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import REFERENCE


def answer(stage, inputs):
    """The results by name."""
    return STAGES[stage].named(STAGES[stage].reference(**inputs))


def bounds(stage, inputs):
    """The derived error of each result against exact arithmetic."""
    return STAGES[stage].bound(inputs, answer(stage, inputs), REFERENCE)


def assert_within(got, want, bound):
    """|got - want| <= bound everywhere; equal infinities agree."""
    with np.errstate(invalid="ignore"):
        error = np.where(got == want, 0.0, np.abs(got - want))
    assert got.shape == want.shape
    assert (error <= bound).all(), f"off by {np.max(error - bound)} beyond the bound"


def assert_same(stage, one, other):
    """Two calls whose exact answers are equal differ by at most both bounds."""
    first, second = answer(stage, one), answer(stage, other)
    slack = bounds(stage, one), bounds(stage, other)
    for name, value in first.items():
        assert_within(second[name], value, slack[0][name] + slack[1][name])
