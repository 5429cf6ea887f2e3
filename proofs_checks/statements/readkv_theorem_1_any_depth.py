"""ReadKV App. E.1.1: Theorem 1's upper bound for another nested code, at any depth."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import readkv_theorem_1
from proofs_checks.statements.nested_codes import UNIFORM_DEPTH
from proofs_checks.statements.readkv_theorem_1 import enclose, guard, hypotheses, left, right, worst_case
from proofs_checks.statements.statement import About, Instance, Kind, checker

ABOUT = About(
    id="readkv-theorem-1-any-depth",
    source="ReadKV App. E.1.1, any depth L",
    claim="Theorem 1's bound holds for any nested code with positive gains, here the uniform dyadic one, at every "
    "depth "
    "L with Ld <= w and Lk <= r.",
    hypotheses="As Theorem 1, with 1 <= L <= 12.",
    kind=Kind.UPPER_BOUND,
    tight="Every queried z at the cube's corner, half a cell from its reconstruction: equality.",
    finding="Sharp.",
)
check = checker(ABOUT, hypotheses, left, right, guard)
__all__ = ["ABOUT", "check", "enclose", "hypotheses", "left", "right", "sample", "tight_instance"]


def tight_instance() -> Instance:
    """d = 2, k = 2, L = 5: the error is 2^-5 in both coordinates.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return worst_case(2, 2, 5, "uniform")


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Theorem 1's instances on the uniform code."""
    return readkv_theorem_1.sample(rng, count, "uniform", UNIFORM_DEPTH)
