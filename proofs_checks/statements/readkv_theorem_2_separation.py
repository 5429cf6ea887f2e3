"""ReadKV Thm. 2, the numbers: 2.285e-4, the factors 2.40 and 9.52, and the gain margin 104400."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from proofs_checks.statements import constants
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.readkv.tree import deployed_table

ABOUT = About(
    id="readkv-theorem-2-separation",
    source="ReadKV Thm. 2, 2.285e-4, 2.40, 9.52",
    claim="The converse exceeds 2.285e-4 for every m; it exceeds ReadKV's bound by more than 2.40 for every m and by "
    "more "
    "than 9.52 at m = 128; and e^20 Delta_8 / Delta_1 > 104400.",
    hypotheses="m >= 1; eps_8 < .0097 as the proof uses it.",
    kind=Kind.LOWER_BOUND,
    tight="m = 1: 2.28669e-4 and 2.40795; m = 128: 9.52803; the margin with the papers' e^10 > 22000: 104401.10 "
    "(104401.02 from the lemma's interval ends).",
    hazard="Float64 with an explicit guard of 64 roundings; `constants.certify` encloses the same numbers in balls.",
    finding="2.43067 and 9.61794 with the true eps_8; 9.63 as m grows; the margin is 104652.43 exactly.",
    exhaustive=True,
)
NAMES = ("converse", "factor", "factor-128", "margin")
PRINTED = {"converse": 2.285e-4, "factor": 2.40, "factor-128": 9.52, "margin": 104400.0}


def hypotheses(instance: Instance) -> None:
    """Known names, m >= 1, and m = 128 for the last factor."""
    for name, m in instance["items"]:
        require(name in NAMES and m >= 1, "m >= 1", (name, m))
        require(name != "factor-128" or m >= 128, "m >= 128 for the factor 9.52", m)


def value(name: str, m: int) -> float:
    """One of the numbers at one m."""
    converse = math.tanh(5.0) ** 2 / (math.pi * math.e) * 2.0 ** (-7 - 2 / m)
    if name == "converse":
        return converse
    if name == "margin":
        gains = deployed_table().gains
        return float(constants.float_down(22000**2 * Fraction(float(gains[7])) / Fraction(float(gains[0]))))
    rho = 1 / (1 + math.exp(10))
    return converse / ((1 - rho) * float(constants.EPS_ABOVE) + rho) ** 2


def left(instance: Instance) -> FloatArray:
    """The numbers. [N]."""
    return np.array([value(name, m) for name, m in instance["items"]])


def right(instance: Instance) -> FloatArray:
    """The printed lower bounds. [N]."""
    return np.array([PRINTED[name] for name, _ in instance["items"]])


def guard(instance: Instance) -> FloatArray:
    """64 roundings. [N]."""
    return 64 * 2.0**-53 * left(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """All four, where they are tightest.

    >>> check(tight_instance()).left.round(5).tolist()
    [0.00023, 2.40795, 9.52803, 104401.09524]
    """
    return {"items": [("converse", 1), ("factor", 1), ("factor-128", 128), ("margin", 1)]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """m from 1 to 1000."""
    sizes = [int(m) for m in rng.integers(1, 1001, count)]
    return {"items": [(name, m + 127 * (name == "factor-128")) for m in sizes for name in NAMES]}
