"""Locks Prop. 3, the Gaussian clause: for a Gaussian law of logits the second-order score is exact."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-3-gaussian",
    source="Locks Prop. 3, Gaussian clause",
    claim="If the centred logits follow N(0, s^2), the log of the mean exponential is s^2 / 2: no cumulant remainder.",
    hypotheses="A Gaussian law, here its 64-node Gauss-Hermite rule with s <= 1, exact for polynomials of degree 127.",
    kind=Kind.IDENTITY,
    tight="Every s.",
    no_constant="an identity; there is no bound to scale",
    hazard="The rule misses the moments of order 128 on: at most 2 sum_{m >= 64} (s^2 / 2)^m / m! < 1e-105.",
    finding="A finite page is never exactly Gaussian: the clause is about the law, not about a page.",
)


def hypotheses(instance: Instance) -> None:
    """0 <= s <= 1."""
    require((instance["deviation"] >= 0) & (instance["deviation"] <= 1), "0 <= s <= 1")


def left(instance: Instance) -> FloatArray:
    """log E exp(z), z ~ N(0, s^2), by Gauss-Hermite. [N]."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(64)
    mean = np.exp(instance["deviation"][:, None] * nodes) @ weights / np.sqrt(2 * np.pi)
    return np.log(mean)


def right(instance: Instance) -> FloatArray:
    """s^2 / 2. [N]."""
    half: FloatArray = instance["deviation"] ** 2 / 2
    return half


def guard(instance: Instance) -> FloatArray:
    """64 terms, each an exp of an argument below 15 (16 roundings), and nodes and weights within 64 roundings. [N]."""
    return np.full(len(instance["deviation"]), gamma(64 + 64 * 16 + 64))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """s = 1: log E exp(z) = 1/2.

    >>> check(tight_instance()).left.round(12).tolist()
    [0.5]
    """
    return {"deviation": np.array([1.0])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random s."""
    return {"deviation": rng.random(count)}
