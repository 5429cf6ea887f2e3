"""ReadKV Prop. 8: buying the largest next gain is globally optimal when gains do not increase."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import best_gain, gained, greedy
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-8",
    source="ReadKV Prop. 8",
    claim="With nonnegative, nonincreasing gains and unit costs, the greedy rule collects the largest total gain of "
    "any "
    "prefix schedule within the budget.",
    hypotheses="Weights >= 0; every item's gains nonnegative and nonincreasing; unit costs.",
    kind=Kind.LOWER_BOUND,
    tight="Every instance: equality with the dynamic programme.",
    hazard="Float gains taken from a distortion curve are non-monotone by 1e-16: gains are given, integer in half of "
    "the "
    "instances (exact). Ties change schedules, never the objective.",
    finding="Exact. Dropping either hypothesis breaks it: readkv-appendix-e21-prefix, readkv-appendix-e21-cost.",
)


def hypotheses(instance: Instance) -> None:
    """Weighted gains [N, M, W] that are nonnegative and nonincreasing; a nonnegative budget."""
    gains = instance["gains"]
    require(gains >= 0, "gains are nonnegative")
    require(np.diff(gains, axis=-1) <= 0, "gains are nonincreasing")
    require(instance["budget"] >= 0, "the budget is nonnegative", instance["budget"])


def left(instance: Instance) -> FloatArray:
    """Total gain of the greedy schedule. [N]."""
    gains = instance["gains"]
    return gained(gains, greedy(gains, instance["budget"]))


def right(instance: Instance) -> FloatArray:
    """The largest total gain, by dynamic programming. [N]."""
    return best_gain(instance["gains"], instance["budget"])


def guard(instance: Instance) -> FloatArray:
    """0 for integer gains; else two sums of at most M W terms. [N]."""
    gains = instance["gains"]
    if np.all(gains == np.floor(gains)):
        return np.zeros(len(gains))
    return 2 * gamma(gains.shape[1] * gains.shape[2] + 2) * gains.sum(axis=(-2, -1))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Gains (3, 1) and (2, 2), budget 3: 7.

    >>> check(tight_instance()).left.tolist(), check(tight_instance()).tightest
    ([7.0], 1.0)
    """
    return {"gains": np.array([[[3.0, 1.0], [2.0, 2.0]]]), "budget": 3}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Integer gains with many ties, or real ones; budgets from 0 to past N x W."""
    items, width = small(rng, 1, 6), small(rng, 1, 5)
    gains = rng.integers(0, 9, (count, items, width)).astype(np.float64)
    if rng.random() < 0.5:
        gains = rng.random((count, items, width)) ** 3
    gains = np.sort(gains, axis=-1)[..., ::-1] * rng.integers(0, 4, (count, items, 1))
    return {"gains": gains, "budget": small(rng, 0, items * width + 2)}


def cases() -> dict[str, Instance]:
    """A budget past N x W buys everything; zero gains are never bought; all gains tie."""
    gains = np.array([[[3.0, 1.0], [2.0, 0.0]]])
    return {
        "budget-beyond-all": {"gains": gains, "budget": 99},
        "zero-budget": {"gains": gains, "budget": 0},
        "ties": {"gains": np.ones((1, 3, 2)), "budget": 3},
    }
