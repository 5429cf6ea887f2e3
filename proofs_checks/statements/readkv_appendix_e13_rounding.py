"""ReadKV App. E.1.3, the rival: stochastic rounding to four levels has squared error at most 1/9 on the unit ball."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-e13-rounding",
    source="ReadKV App. E.1.3, rival",
    claim="Unbiased rounding of every coordinate to -1, -1/3, 1/3, 1 gives E (y.x~ - y.x)^2 <= 1/9 on the unit ball, "
    "below "
    "the .2605 of the deployed reader.",
    hypotheses="x and y in the unit ball; coordinates rounded independently.",
    kind=Kind.UPPER_BOUND,
    tight="x = 0 between two levels, y = e_1: exactly 1/9.",
    finding="Sharp.",
)
SEARCH = ("x", "y")


def hypotheses(instance: Instance) -> None:
    """Both vectors in the unit ball, up to the rounding of their norm."""
    for name in ("x", "y"):
        vector = instance[name]
        require(np.sum(vector**2, axis=-1) <= 1 + gamma(2 * vector.shape[1] + 8), f"|{name}| <= 1")


def left(instance: Instance) -> FloatArray:
    """sum_i y_i^2 (x_i - l_i)(u_i - x_i), l and u the neighbouring levels. [N]."""
    x, y = instance["x"], instance["y"]
    position = np.clip((x + 1) * 1.5, 0.0, 3.0)
    part = position - np.floor(position)
    variance: FloatArray = np.sum(y**2 * part * (1 - part) * (4 / 9), axis=-1)
    return variance


def right(instance: Instance) -> FloatArray:
    """1/9. [N]."""
    return np.full(len(instance["x"]), 1 / 9)


def guard(instance: Instance) -> FloatArray:
    """A sum of d terms with 8 roundings each; |y| within the hypothesis. [N]."""
    return np.full(len(instance["x"]), gamma(4 * instance["x"].shape[1] + 30) / 9)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """x = 0, y = e_1.

    >>> check(tight_instance()).tightest > 1 - 1e-13
    True
    """
    return {"x": np.zeros((1, 2)), "y": np.array([[1.0, 0.0]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random vectors of the ball."""
    width = small(rng, 1, 8)
    drawn = rng.standard_normal((2, count, width))
    drawn = drawn / np.linalg.norm(drawn, axis=-1, keepdims=True) * rng.random((2, count, 1)) ** 0.3
    return {"x": drawn[0], "y": drawn[1]}
