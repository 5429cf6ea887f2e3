"""Locks Prop. 3, the decomposition: s - log B = moment core + R_cum + R_rank, R_cum as its Taylor integral."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_2
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_equation_a1 import centred_logits
from proofs_checks.statements.page_model import model, needs_page, score_guard, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-3-identity",
    source="Locks Prop. 3, decomposition",
    claim="s_j - log B = rank-r moment core + R_rank + integral over (0,1) of (1-t)^2 / 2 K'''(t), K the cumulant "
    "generating function of the centred logits.",
    hypotheses="1 <= r <= min(B, d); here also |z| <= 1/2, so that 32 Gauss nodes integrate K''' to below rounding.",
    kind=Kind.IDENTITY,
    tight="Every page.",
    no_constant="an identity; there is no bound to scale",
    hazard="The quadrature: on the Bernstein ellipse of semi-minor axis 1 around [0, 1] (rho = 4.23) the tilted mean "
    "stays above cos(1/2) times its modulus, so the error is below 10 rho^-64 = 1e-39.",
)


def hypotheses(instance: Instance) -> None:
    """A page with small centred logits."""
    needs_page(instance)
    largest = np.abs(centred_logits(instance["queries"], instance["keys"])).max()
    require(largest <= 0.5, "|z| <= 1/2", largest)


def third_cumulant(z: FloatArray, t: float) -> FloatArray:
    """Third central moment of z [N, B] under the law tilted by exp(t z). [N].

    >>> third_cumulant(np.array([[0.0, 0.0, 3.0]]), 0.0).tolist()          # (-1 - 1 + 8) / 3
    [2.0]
    """
    weights = np.exp(t * z)
    weights = weights / weights.sum(axis=-1, keepdims=True)
    mean = np.sum(weights * z, axis=-1, keepdims=True)
    moment: FloatArray = np.sum(weights * (z - mean) ** 3, axis=-1)
    return moment


def left(instance: Instance) -> FloatArray:
    """s_j - log B. [N]."""
    return model(instance).exact_score - np.log(instance["keys"].shape[1])


def right(instance: Instance) -> FloatArray:
    """Centroid logit, kept and dropped quadratics, and the integral remainder. [N]."""
    one = model(instance)
    size, width = one.keys.shape[1:]
    kept = np.sum(np.einsum("nd,nbd->nb", one.queries, one.deviations - one.residuals) ** 2, axis=-1)
    dropped = np.sum(np.einsum("nd,nbd->nb", one.queries, one.residuals) ** 2, axis=-1)
    z = centred_logits(one.queries, one.keys)
    nodes, weights = np.polynomial.legendre.leggauss(32)
    times = (nodes + 1) / 2
    remainder = sum(w / 2 * (1 - t) ** 2 / 2 * third_cumulant(z, t) for t, w in zip(times, weights, strict=True))
    centre = np.einsum("nd,nd->n", one.queries, one.centroid) / one.root
    return centre + (kept + dropped) / (2 * size * width) + remainder


def guard(instance: Instance) -> FloatArray:
    """Score rounding, the SVD's backward error in the quadratics' cross term, and rounding of terms below 1. [N]."""
    one = model(instance)
    size, width = one.keys.shape[1:]
    query = np.linalg.norm(one.queries, axis=-1)
    cross = 2 * (query / one.root) ** 2 * svd_guard(one) * one.sigma[:, 0]
    small_terms = gamma(60 * size + 8 * width + 200) * (1 + np.log(size))
    spread = gamma(4 * width) * (query / one.root) ** 2 * np.sum(one.deviations**2, axis=(-2, -1))
    return 2 * score_guard(one) + cross + small_terms + spread


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two modes, one kept, logits up to .25.

    >>> check(tight_instance()).violated.tolist()
    [False]
    """
    keys = np.array([[[0.5, 0.0], [-0.25, 0.125], [-0.25, -0.125]]])
    return {"queries": np.array([[0.5, 0.25]]), "keys": keys, "rank": 1}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Prop. 2's pages, with the query scaled to |z| <= 1/2."""
    instance = locks_proposition_2.sample(rng, count)
    largest = np.abs(centred_logits(instance["queries"], instance["keys"])).max(axis=-1)
    instance["queries"] = instance["queries"] / np.maximum(1.0, 2.001 * largest)[:, None]
    return instance
