"""Continuous depths for the geometric curve 4^-t, and their dependent rounding to integers (App. E.2.2, E.2.3)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, number, whole
from refimpl.readkv.allocation import check_importance

ROUNDING_LOSS = 3.0 * 4.0 ** (1.0 / 3.0) / (math.e * math.log(4.0))
"""kappa_int of Proposition 10, max over f of (1 - 3f/4) 4^f, reached at f = 4/3 - 1/ln 4: 1.263740721..."""


def continuous_depths(*, importance: Any, depth_cap: float, budget: float) -> FloatArray:
    """Reverse water-filling with caps: depths [N] that minimise sum_i a_i 4^-t_i with 0 <= t_i <= W, sum t_i <= B.

    Args:
        importance: [N], a_i >= 0. depth_cap: W > 0. budget: B >= 0, may be fractional.

    Returns:
        t_i = min(W, max(0, log_4(a_i / tau))) for positive weights, 0 for zero weights (the canonical optimum).

    Raises:
        ArgumentError: a negative or non-finite importance, cap or budget.

    Source: ReadKV Prop. 9.

    >>> continuous_depths(importance=[16.0, 1.0, 0.0], depth_cap=8, budget=3.0).round(12).tolist()
    [2.5, 0.5, 0.0]
    """
    weights = check_importance("importance", importance, "N", Sizes())
    depth_cap, budget = number("depth_cap", depth_cap, above=0), number("budget", budget, low=0)
    active = weights > 0
    depths = np.where(active, depth_cap, 0.0)
    if budget >= depth_cap * np.count_nonzero(active):
        return depths
    logs = np.log(weights[active]) / math.log(4.0)
    depths[active] = np.clip(logs - _water_level(logs, depth_cap, budget), 0.0, depth_cap)
    return depths


def _water_level(logs: FloatArray, depth_cap: float, budget: float) -> float:
    """log_4 tau with sum_i clip(logs_i - log_4 tau, 0, W) = B: the sum is piecewise linear between its kinks."""
    kinks = np.sort(np.concatenate([logs, logs - depth_cap]))  # where an item starts or is capped

    def spent(level: float) -> float:
        return float(np.sum(np.clip(logs - level, 0.0, depth_cap)))

    low, high = 0, len(kinks) - 1  # spent falls from W |P| at the first kink to 0 at the last
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if spent(kinks[middle]) >= budget else (low, middle)
    top, bottom = spent(kinks[low]), spent(kinks[high])
    if top == bottom:
        return float(kinks[low])
    return float(kinks[low] + (kinks[high] - kinks[low]) * (top - budget) / (top - bottom))


def geometric_objective(*, importance: FloatArray, depths: Any) -> float:
    """sum_i a_i 4^-t_i of continuous or integer depths.

    >>> geometric_objective(importance=np.array([16.0, 1.0]), depths=np.array([2.0, 0.0]))
    2.0
    """
    return float(np.sum(importance * 4.0 ** -np.asarray(depths, dtype=np.float64)))


def dependent_rounding(*, depths: FloatArray, total: int, generator: np.random.Generator) -> IntArray:
    """Round continuous depths [N] that sum to ``total`` at random to integers with that sum and those means.

    Two fractional parts at a time are moved against each other until at least one of them is whole.

    Args:
        depths: [N], nonnegative; their sum is the whole number ``total`` up to rounding.
        total: the sum of the result. generator: source of randomness.

    Returns:
        depths [N] of integers, each floor or ceiling of its own, with E[result_i] = depths_i.

    Raises:
        ArgumentError: a total that is not the nearest whole number to the sum.

    Source: ReadKV App. E.2.3 (Prop. 10), after Gandhi et al.

    >>> rounded = dependent_rounding(depths=np.array([0.5, 1.5]), total=2, generator=np.random.default_rng(0))
    >>> int(rounded.sum()), rounded.tolist() in ([0, 2], [1, 1])
    (2, True)
    """
    total = whole("total", total, low=0)
    if abs(float(np.sum(depths)) - total) >= 0.5:  # off by rounding errors is fine, off by a refinement is not
        raise ArgumentError(f"total: expected the sum of the depths, {np.sum(depths)}, got {total}")
    lower = np.floor(depths)
    fraction = depths - lower
    open_item: int | None = None  # the one item that is still fractional among those passed
    for item in range(len(depths)):
        if not 0.0 < fraction[item] < 1.0:
            continue
        if open_item is None:
            open_item = item
            continue
        open_item = _settle(fraction, open_item, item, generator)
    result: IntArray = (lower + np.rint(fraction)).astype(np.int64)
    # the last fractional part is whole in exact arithmetic; rounding errors may leave it a hair off the total
    if open_item is not None:
        result[open_item] += total - int(result.sum())
    return result


def _settle(fraction: FloatArray, i: int, j: int, generator: np.random.Generator) -> int | None:
    """Move parts i and j against each other until one is whole; return the one that is not, if any."""
    up = min(1.0 - fraction[i], fraction[j])
    down = min(fraction[i], 1.0 - fraction[j])
    change = up if generator.random() < down / (up + down) else -down
    reaches = (1.0 - fraction[i], fraction[j]) if change > 0 else (fraction[i], 1.0 - fraction[j])
    whole_i, whole_j = reaches[0] <= reaches[1], reaches[1] <= reaches[0]
    fraction[i] = float(change > 0) if whole_i else fraction[i] + change
    fraction[j] = float(change < 0) if whole_j else fraction[j] - change
    return None if whole_i and whole_j else j if whole_i else i
