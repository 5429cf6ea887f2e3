"""ChooseDepths of ReadKV, Alg. 1, in exact arithmetic and with the public tie order.

Nothing is sorted and no heap is kept: every step looks at every item, as the algorithm is printed.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from proofs_checks.golden.second.exact import fractions


def choose_depths(
    importance: list[Any],
    gains: list[Any],
    budget: int,
    minimum_depth: int = 0,
    costs: list[int] | None = None,
) -> list[int]:
    """Give each item a depth by buying the largest positive weighted gain again and again (ReadKV Alg. 1).

    gains[t] is D(t) - D(t+1); the depth cap W is their number. Ties go to the lower index (AMB-19). A gain of zero or
    less is never bought (AMB-20), except below `minimum_depth`, which every item gets first, out of the same budget.
    `costs` are refinements per step of each item (1 in Alg. 1); the first step that does not fit ends buying.
    """
    importance, gains = fractions("importance", importance), fractions("gains", gains)
    costs = [1] * len(importance) if costs is None else costs
    if not 0 <= minimum_depth <= len(gains):
        raise ValueError(f"minimum_depth: expected 0 to {len(gains)}, got {minimum_depth}")
    left = budget - minimum_depth * sum(costs)
    if left < 0:
        raise ValueError(f"minimum_depth: {minimum_depth} for every item does not fit in budget {budget}")
    depths = [minimum_depth] * len(importance)
    while True:
        best, best_gain = None, Fraction(0)
        for item, weight in enumerate(importance):
            if depths[item] < len(gains) and weight * gains[depths[item]] > best_gain:
                best, best_gain = item, weight * gains[depths[item]]
        if best is None or costs[best] > left:
            return depths
        depths[best] += 1
        left -= costs[best]
