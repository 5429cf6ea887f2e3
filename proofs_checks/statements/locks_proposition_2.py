"""Locks Prop. 2, first bound: the score error is at most the largest residual logit."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.page_model import model, needs_page, residual_guard, score_guard
from proofs_checks.statements.sampling import normal, page, small
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-2",
    source="Locks Prop. 2, first bound",
    claim="|estimated - exact log-mass| <= max over keys of |q_perp . residual_i| / sqrt(d).",
    hypotheses="An unquantised summary of rank 1 <= r <= min(B, d).",
    kind=Kind.UPPER_BOUND,
    tight="One key's residual logit X dominates: the error is X - log B, so the ratio tends to 1.",
    hazard="Log-sum-exp rounding u(|s| + ...); a float basis is not exactly orthonormal: |q||V^T residual| is added.",
    finding="Sharp. The error is one-sided (estimate too low) for a query orthogonal to the basis, by Jensen.",
)
SEARCH = ("queries", "keys")
hypotheses = needs_page


def left(instance: Instance) -> FloatArray:
    """|estimated - exact log-mass|, nats. [N]."""
    one = model(instance)
    return np.abs(one.estimated_score - one.exact_score)


def right(instance: Instance) -> FloatArray:
    """The largest |q_perp . residual_i| / sqrt(d), nats. [N]."""
    one = model(instance)
    return np.abs(np.einsum("nd,nbd->nb", one.outside, one.residuals)).max(axis=-1) / one.root


def guard(instance: Instance) -> FloatArray:
    """Rounding of both scores and of the residual logits. [N]."""
    one = model(instance)
    return score_guard(one) + residual_guard(one)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance(size: int = 3, logit: float = 1e7) -> Instance:
    """Mode 1 (kept, unseen by the query) along channel 0; mode 2 (dropped) lifts key 0 by ``logit`` along channel 1.

    >>> check(tight_instance()).tightest > 0.999999
    True
    """
    keys = np.zeros((1, size, 2))
    keys[0, 1, 0], keys[0, 2, 0] = 8.0, -8.0
    keys[0, :, 1] = -1.0 / (size - 1)
    keys[0, 0, 1] = 1.0
    return {"queries": np.array([[0.0, logit]]), "keys": keys, "rank": 1}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pages of five kinds, random ranks, queries over four decades."""
    size, width = small(rng, 1, 8), small(rng, 1, 6)
    queries = normal(rng, count, width, low=-2, high=2)
    return {"queries": queries, "keys": page(rng, count, size, width), "rank": small(rng, 1, min(size, width))}


def cases() -> dict[str, Instance]:
    """Rank at or above the page's own, a page of identical keys, and a page of one key."""
    identical = np.ones((1, 4, 2))
    query = np.ones((1, 2))
    return {
        "rank-at-least-the-page's": {"queries": query, "keys": np.array([[[0.0, 3.0], [4.0, 3.0]]]), "rank": 2},
        "identical-keys": {"queries": query, "keys": identical, "rank": 2},
        "one-key": {"queries": query, "keys": identical[:, :1], "rank": 1},
    }


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, for the summary as the reference computed it (any V and c obey the logit form)."""
    from proofs_checks.statements.rigorous import ball, balls, each, largest, log_sum_exp

    one = model(instance)
    query, keys = balls(one.queries[0]), balls(one.keys[0])
    root = ball(keys.shape[1]).sqrt()
    summary = balls(one.centroid[0])[None] + balls(one.coefficients[0]) @ balls(one.basis[0]).T
    exact, kept = (keys @ query) / root, (summary @ query) / root
    return abs(log_sum_exp(kept) - log_sum_exp(exact)), largest(each(abs, kept - exact))


def on_capture(step: Any) -> Instance:
    """Every complete page of every KV head against every query of its group, at the run's rank."""
    return step.page_batch()
