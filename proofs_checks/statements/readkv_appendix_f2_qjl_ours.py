"""Beside ReadKV App. F.2: QJL's estimate of an inner product is unbiased, with the factor sqrt(pi/2)."""

from __future__ import annotations

import math

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

NODES, WEIGHTS = np.polynomial.legendre.leggauss(24)

ABOUT = About(
    id="readkv-appendix-f2-qjl-ours",
    source="beside ReadKV App. F.2 (QJL)",
    claim="For a row s of independent N(0, 1) entries, E sqrt(pi/2) |x| sign(s.x) (s.q) = x.q.",
    hypotheses="x is not zero.",
    kind=Kind.IDENTITY,
    tight="Every pair.",
    no_constant="an identity; there is no bound to scale",
    hazard="The expectation is a quadrature over the direction of s, whose rounding is in the guard.",
    finding="Entries of variance 1/d, with the same factor, give x.q / sqrt(d): the fault of most public packages.",
    ours=True,
    proof="Only the part of s in the plane of x and q matters: s = r (cos t e + sin t f) with e along x, t uniform and "
    "r of mean sqrt(pi/2) independent of t. With q = a e + b f the mean is sqrt(pi/2) |x| E[r] E[|cos t| a + "
    "sign(cos t) sin t b] = (pi/2) |x| (2/pi) a = x.q.",
)


def hypotheses(instance: Instance) -> None:
    """x is not zero."""
    require(np.any(instance["x"] != 0, axis=-1), "x is not zero")


def plane(instance: Instance) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Unit vectors e along x and f across it [N, d] that span q, and |x| [N]; f is zero where q lies along x."""
    x, q = instance["x"], instance["queries"]
    length = np.linalg.norm(x, axis=-1)
    e = x / length[:, None]
    across = q - np.einsum("nd,nd->n", q, e)[:, None] * e
    size = np.linalg.norm(across, axis=-1, keepdims=True)
    return e, np.divide(across, size, out=np.zeros_like(across), where=size > 0), length


def mean_over_rows(instance: Instance, power: int) -> FloatArray:
    """Mean [N] of (sqrt(pi/2) |x| sign(s.x) s.q)^power over directions of s, times E[r^power]: power 1 or 2.

    Gauss-Legendre on either side of the sign's change, where the integrand is a polynomial in cos and sin.
    """
    e, f, length = plane(instance)
    total = np.zeros(len(length))
    for side in (-1.0, 1.0):
        for node, weight in zip(NODES, WEIGHTS, strict=True):
            angle = math.pi / 2 * node
            row = side * (math.cos(angle) * e + math.sin(angle) * f)
            signs = np.sign(np.einsum("nd,nd->n", row, instance["x"]))
            term = math.sqrt(math.pi / 2) * length * signs * np.einsum("nd,nd->n", row, instance["queries"])
            total += weight / 4 * term**power
    return total * (math.sqrt(math.pi / 2) if power == 1 else 2.0)


def left(instance: Instance) -> FloatArray:
    """The estimate's mean. [N]."""
    return mean_over_rows(instance, 1)


def right(instance: Instance) -> FloatArray:
    """x.q. [N]."""
    products: FloatArray = np.einsum("nd,nd->n", instance["x"], instance["queries"])
    return products


def guard(instance: Instance) -> FloatArray:
    """gamma of the directions' d products and of 48 nodes, relative to pi/2 |x| |q|. [N]."""
    d = instance["x"].shape[-1]
    sizes = np.linalg.norm(instance["x"], axis=-1) * np.linalg.norm(instance["queries"], axis=-1)
    return math.pi * gamma(48 + 6 * d + 40) * sizes


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """x = (3, 4) and q = (1, 2): the inner product 11.

    >>> check(tight_instance()).left.round(12).tolist()
    [11.0]
    """
    return {"x": np.array([[3.0, 4.0]]), "queries": np.array([[1.0, 2.0]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pairs, some of them nearly parallel."""
    d = small(rng, 2, 9)
    x, q = normal(rng, count, d), normal(rng, count, d)
    return {"x": x, "queries": q + 10 * (rng.random((count, 1)) < 0.3) * x}
