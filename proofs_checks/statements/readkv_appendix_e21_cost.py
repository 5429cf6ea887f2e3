"""ReadKV App. E.2.1, second counter-example: with unequal costs, gain 3 at cost 2 beats two gains of 2 at cost 1."""

from __future__ import annotations

from itertools import chain, combinations

import numpy as np

from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-e21-cost",
    source="ReadKV App. E.2.1, unequal costs",
    claim="With unequal costs a rule by gain alone fails: budget 2, one refinement of cost 2 and gain 3, two of cost "
    "1 and "
    "gain 2 each: it collects 3 of 4.",
    hypotheses="One refinement of cost c and gain g + 1, c of cost 1 and gain g each, budget c; c >= 2, g >= 2.",
    kind=Kind.LOWER_BOUND,
    tight="Every c and g: equality with c g / (g + 1).",
    finding="Exhaustive over all subsets for c <= 6. The loss grows like c.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """c >= 2 and g >= 2, so that the dear refinement is the greedy choice and not the optimum."""
    require((instance["cost"] >= 2) & (instance["gain"] >= 2), "c >= 2 and g >= 2")


def optimum(cost: int, gain: float) -> float:
    """The best subset within the budget, by enumeration.

    >>> optimum(2, 2.0)
    4.0
    """
    items = [(cost, gain + 1), *[(1, gain)] * cost]
    subsets = chain.from_iterable(combinations(items, n) for n in range(len(items) + 1))
    return max(sum(g for _, g in s) for s in subsets if sum(c for c, _ in s) <= cost)


def by_gain(cost: int, gain: float) -> float:
    """What the rule by gain alone collects: the largest gain that fits, again and again.

    >>> by_gain(2, 2.0)
    3.0
    """
    items, budget, total = sorted([(gain + 1, cost), *[(gain, 1)] * cost], reverse=True), cost, 0.0
    for value, price in items:
        if price <= budget:
            total, budget = total + value, budget - price
    return total


def left(instance: Instance) -> FloatArray:
    """Optimum over the rule's total. [N]."""
    pairs = zip(instance["cost"].tolist(), instance["gain"].tolist(), strict=True)
    return np.array([optimum(int(c), g) / by_gain(int(c), g) for c, g in pairs])


def right(instance: Instance) -> FloatArray:
    """c g / (g + 1). [N]."""
    ratio: FloatArray = instance["cost"] * instance["gain"] / (instance["gain"] + 1)
    return ratio


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """The papers' c = 2, g = 2: 4 against 3.

    >>> check(tight_instance()).left.tolist() == [4 / 3]
    True
    """
    return {"cost": np.array([2]), "gain": np.array([2.0])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Small integer costs and gains."""
    size = min(count, 20)
    return {"cost": rng.integers(2, 7, size), "gain": rng.integers(2, 9, size).astype(np.float64)}
