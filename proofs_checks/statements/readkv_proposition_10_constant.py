"""ReadKV Prop. 10, the constant: (1 - 3f/4) 4^f <= 1.263740721... < 1.264 on [0, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.readkv_proposition_10 import KAPPA_INT
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-10-constant",
    source="ReadKV Prop. 10, kappa_int",
    claim="(1 - 3f/4) 4^f is at most kappa_int = 3 4^(1/3) / (e ln 4) = 1.263740721... < 1.264 on [0, 1].",
    hypotheses="0 <= f <= 1.",
    kind=Kind.UPPER_BOUND,
    tight="f = 4/3 - 1/ln 4 = .611985812889: equality.",
    hazard="Flat at the maximum; guard of 20 roundings, balls for the constant.",
    finding="Certified by flint.arb and by mpmath's intervals.",
)
SEARCH = ("fraction",)


def hypotheses(instance: Instance) -> None:
    """0 <= f <= 1."""
    require((instance["fraction"] >= 0) & (instance["fraction"] <= 1), "0 <= f <= 1")


def left(instance: Instance) -> FloatArray:
    """(1 - 3f/4) 4^f. [N]."""
    f = instance["fraction"]
    value: FloatArray = (1 - 0.75 * f) * np.power(4.0, f)
    return value


def right(instance: Instance) -> FloatArray:
    """kappa_int, rounded upward. [N]."""
    return np.full(len(instance["fraction"]), KAPPA_INT)


def guard(instance: Instance) -> FloatArray:
    """20 roundings. [N]."""
    return 20 * 2.0**-53 * left(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The maximiser.

    >>> check(tight_instance()).tightest > 1 - 1e-14
    True
    """
    return {"fraction": np.array([4 / 3 - 1 / np.log(4.0)])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random fractions."""
    return {"fraction": rng.random(count)}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls."""
    from proofs_checks.statements.constants import kappa_int
    from proofs_checks.statements.rigorous import ball

    f = ball(instance["fraction"][0])
    return (1 - 3 * f / 4) * ball(4.0) ** f, kappa_int()
