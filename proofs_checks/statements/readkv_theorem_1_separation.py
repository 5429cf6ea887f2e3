"""ReadKV Thm. 1, the separation factors: 155/k at r = 2d, L = 8, and 4.85 at d = 128, k = 32."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from proofs_checks.statements import constants
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-theorem-1-separation",
    source="ReadKV Thm. 1, 155/k and 4.85",
    claim="With the deployed code, w = 8d and r = 2d, the converse exceeds ReadKV's bound by more than 155.507/k, "
    "hence "
    "by more than 155/k, and by more than 4.85 at k = 32.",
    hypotheses="1 <= k <= d / 4, d >= 4.",
    kind=Kind.LOWER_BOUND,
    tight="The papers' own roundings: 155.5074/k, and 4.8596 at k = 32.",
    hazard="Exact rationals: eps_8 < .0097, pi < 3.142 and e < 2.719 as the proof uses them.",
    finding="157.04/k with the true eps_8. A factor above 1 is certified for k <= 155 only, so k = d/4 reaches d = "
    "620.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """k >= 1."""
    require(instance["k"] >= 1, "1 <= k <= d / 4", instance["k"])


def left(instance: Instance) -> FloatArray:
    """The certified ratio, rounded down. [N]."""
    return np.array([constants.float_down(constants.paper_separation_1() / int(k)) for k in instance["k"]])


def right(instance: Instance) -> FloatArray:
    """155.507/k, and where k = 32 also the printed 4.85. [N]."""
    printed = [max(Fraction("155.507") / int(k), Fraction("4.85") if k == 32 else 0) for k in instance["k"]]
    return np.array([constants.float_up(Fraction(value)) for value in printed])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """k = 1, 32, 155.

    >>> check(tight_instance()).tightest > 0.9999
    True
    """
    return {"k": np.array([1, 32, 155])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """All k from 1 to 155."""
    return {"k": np.arange(1, 156)}
