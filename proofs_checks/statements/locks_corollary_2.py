"""Locks Cor. 2: ranking scores within Delta of the log-masses, up to a constant, keep e^(-2 Delta) of the mass."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT, log_sum_exp_guard
from proofs_checks.statements.sampling import magnitudes, normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-corollary-2",
    source="Locks Cor. 2",
    claim="If |g_j - s_j - c| <= Delta for all pages, the top k under g lose at most 2 Delta nats of log-mass against "
    "the top k under s, always-kept pages included.",
    hypotheses="1 <= k <= P; one constant c for all pages.",
    kind=Kind.UPPER_BOUND,
    tight="Log-masses (2 Delta, 0), g tied, the tie broken against us: equality.",
    hazard="Ties must be broken against the claim; masses are compared in logs.",
    finding="Sharp with the worst tie-break; always-kept mass only helps.",
)
SEARCH = ("scores", "error")


def hypotheses(instance: Instance) -> None:
    """1 <= k <= P."""
    pages = instance["scores"].shape[1]
    require(1 <= instance["k"] <= pages, "1 <= k <= P", f"k = {instance['k']}, P = {pages}")


def ranking(instance: Instance) -> FloatArray:
    """g = s + error + c. [N, P]."""
    ranked: FloatArray = instance["scores"] + instance["error"] + instance["constant"][:, None]
    return ranked


def left(instance: Instance) -> FloatArray:
    """log (kept mass of the exact selection / kept mass of g's), ties under g broken towards less mass. [N]."""
    scores, k = instance["scores"], instance["k"]
    exact = np.sort(scores, axis=-1)[:, ::-1][:, :k]
    order = np.lexsort((scores, -ranking(instance)), axis=-1)  # by g falling, then by mass rising
    chosen = np.take_along_axis(scores, order[:, :k], axis=-1)
    forced = instance["forced"]  # [N, 2], log-masses of the always-kept pages, -inf for none
    return log_sum_exp(np.concatenate([exact, forced], axis=-1)) - log_sum_exp(
        np.concatenate([chosen, forced], axis=-1)
    )


def right(instance: Instance) -> FloatArray:
    """2 Delta, with the constant that makes Delta least. [N]."""
    gap = ranking(instance) - instance["scores"]
    width: FloatArray = np.ptp(gap, axis=-1)  # 2 Delta for c the middle of the range
    return width


def guard(instance: Instance) -> FloatArray:
    """Two log-sum-exps, and g - s rounded twice per page. [N]."""
    sizes = np.abs(ranking(instance)).max(axis=-1) + np.abs(instance["scores"]).max(axis=-1)
    return 4 * log_sum_exp_guard(instance["scores"]) + 8 * UNIT * sizes


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Log-masses (2, 0) and errors (-1, +1).

    >>> slack = check(tight_instance())
    >>> slack.left.tolist(), slack.right.tolist()
    ([2.0], [2.0])
    """
    none = np.full((1, 2), -np.inf)
    return {
        "scores": np.array([[2.0, 0.0]]),
        "error": np.array([[-1.0, 1.0]]),
        "constant": np.zeros(1),
        "forced": none,
        "k": 1,
    }


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random log-masses, errors and constants, with and without always-kept mass."""
    pages = small(rng, 1, 12)
    forced = normal(rng, count, 2) if rng.random() < 0.5 else np.full((count, 2), -np.inf)
    error = rng.uniform(-1, 1, (count, pages)) * magnitudes(rng, count, 1, -2, 1)
    scores = normal(rng, count, pages)
    if rng.random() < 0.4:
        scores = np.round(scores) - error  # g has ties
    return {
        "scores": scores,
        "error": error,
        "constant": normal(rng, count)[:],
        "forced": forced,
        "k": small(rng, 1, pages),
    }


def cases() -> dict[str, Instance]:
    """No error: nothing is lost, even with ties."""
    base = tight_instance()
    return {"no-error": {**base, "scores": np.zeros((1, 2)), "error": np.zeros((1, 2))}}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, the selections as float64 made them on g as rounded."""
    from proofs_checks.statements.rigorous import ball, balls, largest, log_sum_exp

    ranked, scores, k = ranking(instance)[0], instance["scores"][0], instance["k"]
    chosen = np.lexsort((scores, -ranked))[:k]
    exact = np.argsort(-scores)[:k]
    forced = [x for x in instance["forced"][0] if np.isfinite(x)]
    gap = balls(ranked) - balls(scores)
    sums = [log_sum_exp(balls([*scores[pages], *forced])) for pages in (exact, chosen)]
    return sums[0] - sums[1], largest(gap) + largest(ball(-1.0) * gap)
