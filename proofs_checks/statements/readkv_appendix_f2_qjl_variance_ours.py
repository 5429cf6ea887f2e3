"""Beside ReadKV App. F.2: the variance of QJL's estimate is at most pi/2 |x|^2 |q|^2 a row."""

from __future__ import annotations

import math

import numpy as np

from proofs_checks.statements import readkv_appendix_f2_qjl_ours as mean
from proofs_checks.statements.readkv_appendix_f2_qjl_ours import hypotheses, mean_over_rows, sample
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

__all__ = ["ABOUT", "check", "hypotheses", "left", "right", "sample", "tight_instance"]

ABOUT = About(
    id="readkv-appendix-f2-qjl-variance-ours",
    source="beside ReadKV App. F.2 (QJL)",
    claim="The variance of one row's estimate sqrt(pi/2) |x| sign(s.x) (s.q) is at most pi/2 |x|^2 |q|^2; of the mean "
    "of m rows, a factor 1/m less.",
    hypotheses="x is not zero.",
    kind=Kind.UPPER_BOUND,
    tight="q across x: ratio 1.",
    hazard="The second moment is a quadrature, the mean is taken off it; both are in the guard.",
    finding="Exactly pi/2 |x|^2 |q|^2 - (x.q)^2: along x it is smaller by the factor 1 - 2/pi.",
    ours=True,
    proof="The square of a row's estimate is pi/2 |x|^2 (s.q)^2, of mean pi/2 |x|^2 |q|^2; the variance is that less "
    "the squared mean (x.q)^2.",
)


def left(instance: Instance) -> FloatArray:
    """Second moment less squared mean. [N]."""
    return mean_over_rows(instance, 2) - mean_over_rows(instance, 1) ** 2


def right(instance: Instance) -> FloatArray:
    """pi/2 |x|^2 |q|^2. [N]."""
    sizes = np.einsum("nd,nd->n", instance["x"], instance["x"])
    bound: FloatArray = math.pi / 2 * sizes * np.einsum("nd,nd->n", instance["queries"], instance["queries"])
    return bound


def guard(instance: Instance) -> FloatArray:
    """Twice the mean's guard times its size, for the square and for the second moment alike. [N]."""
    sizes = np.linalg.norm(instance["x"], axis=-1) * np.linalg.norm(instance["queries"], axis=-1)
    return 4 * math.pi * mean.guard(instance) * sizes


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """x = (1, 0) and q = (0, 1).

    >>> check(tight_instance()).tightest > 1 - 1e-9
    True
    """
    return {"x": np.array([[1.0, 0.0]]), "queries": np.array([[0.0, 1.0]])}
