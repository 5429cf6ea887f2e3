"""Three solvers of the prefix-allocation problem on batches: greedy, dynamic programme, continuous water-filling."""

from __future__ import annotations

import numpy as np

from refimpl.checks import FloatArray, IntArray


def greedy(gains: FloatArray, budget: int) -> IntArray:
    """Depths [N, M] of ReadKV's rule: ``budget`` times the largest positive next gain, lower item first.

    Args:
        gains: [N, M, W] weighted gains a_i [D_i(s-1) - D_i(s)].
        budget: refinements to buy at most.

    >>> greedy(np.array([[[3.0, 1.0], [2.0, 2.0]]]), 3).tolist()
    [[1, 2]]
    """
    count, items, width = gains.shape
    padded = np.concatenate([gains, np.zeros((count, items, 1))], axis=-1)  # depth W has nothing left to buy
    depths = np.zeros((count, items), dtype=np.int64)
    rows = np.arange(count)
    for _ in range(min(budget, items * width)):
        available = np.take_along_axis(padded, depths[..., None], axis=-1)[..., 0]  # [N, M]
        best = np.argmax(available, axis=-1)
        buys = available[rows, best] > 0
        depths[rows[buys], best[buys]] += 1
        if not buys.any():
            break
    return depths


def gained(gains: FloatArray, depths: IntArray) -> FloatArray:
    """Total gain of a schedule: [N, M, W], [N, M] -> [N].

    >>> gained(np.array([[[3.0, 1.0], [2.0, 2.0]]]), np.array([[1, 2]])).tolist()
    [7.0]
    """
    levels = np.arange(gains.shape[-1])
    total: FloatArray = np.sum(np.where(levels < depths[..., None], gains, 0.0), axis=(-2, -1))
    return total


def best_gain(gains: FloatArray, budget: int) -> FloatArray:
    """Largest total gain of any prefix schedule within the budget, by dynamic programming over the items. [N].

    >>> best_gain(np.array([[[0.0, 100.0], [1.0, 1.0]]]), 2).tolist()
    [100.0]
    """
    count, items, width = gains.shape
    budget = min(budget, items * width)
    best = np.zeros((count, budget + 1))  # best[:, b]: at most b refinements among the items so far
    prefix = np.concatenate([np.zeros((count, items, 1)), np.cumsum(gains, axis=-1)], axis=-1)
    for item in range(items):
        update = best.copy()
        for depth in range(1, min(width, budget) + 1):
            candidate = best[:, : budget + 1 - depth] + prefix[:, item, depth, None]
            update[:, depth:] = np.maximum(update[:, depth:], candidate)
        best = update
    return best[:, -1]


def water_level(weights: FloatArray, cap: float, budget: float) -> FloatArray:
    """log4 of a threshold tau at which the clipped depths of positive weights sum to the budget. [N], by bisection.

    Source: ReadKV Prop. 9. Weights [N, M]; 0 < budget < cap * (number of positive weights).

    >>> depths = clipped_depths(np.array([[16.0, 4.0, 0.0]]), water_level(np.array([[16.0, 4.0, 0.0]]), 3.0, 2.0), 3.0)
    >>> depths.round(12).tolist()
    [[1.5, 0.5, 0.0]]
    """
    logs = np.log(np.where(weights > 0, weights, 1.0)) / np.log(4.0)
    positive = weights > 0
    high = np.max(np.where(positive, logs, -np.inf), axis=-1)  # nothing is bought
    low = np.min(np.where(positive, logs, np.inf), axis=-1) - cap  # everything is full
    for _ in range(80):
        middle = 0.5 * (low + high)
        spent = clipped_depths(weights, middle, cap).sum(axis=-1)
        low, high = np.where(spent >= budget, middle, low), np.where(spent >= budget, high, middle)
    level: FloatArray = 0.5 * (low + high)
    return level


def clipped_depths(weights: FloatArray, level: FloatArray, cap: float) -> FloatArray:
    """min(W, max(0, log4(a_i / tau))) with level = log4 tau; zero weights stay at depth 0. [N, M]."""
    logs = np.log(np.where(weights > 0, weights, 1.0)) / np.log(4.0)
    return np.where(weights > 0, np.clip(logs - level[:, None], 0.0, cap), 0.0)


def geometric(weights: FloatArray, depths: FloatArray | IntArray) -> FloatArray:
    """sum_i a_i 4^{-t_i}. [N].

    >>> geometric(np.array([[1.0, 16.0]]), np.array([[0, 2]])).tolist()
    [2.0]
    """
    total: FloatArray = np.sum(weights * np.power(4.0, -np.asarray(depths, dtype=np.float64)), axis=-1)
    return total


def geometric_gains(weights: FloatArray, width: int) -> FloatArray:
    """Weighted gains of the curve 4^-t: a_i 4^-(s-1) 3/4 for s = 1..W. [N, M, W].

    >>> geometric_gains(np.array([[4.0]]), 2).tolist()
    [[[3.0, 0.75]]]
    """
    return weights[..., None] * 0.75 * np.power(4.0, -np.arange(width, dtype=np.float64))


def continuous_lower(weights: FloatArray, cap: int, budget: int) -> FloatArray:
    """A certified lower bound on C_W(B): the Lagrangian at the bisected multiplier, or the exact boundary value. [N].

    For any lambda >= 0, C >= sum_i min_t (a_i 4^-t + lambda t) - lambda B, so a multiplier that is slightly off can
    only lower the value.

    >>> float(continuous_lower(np.array([[16.0, 4.0]]), 3, 2)[0].round(12))     # 16/8 + 4/2
    4.0
    """
    value = np.where(budget == 0, 1.0, 4.0**-cap) * weights.sum(axis=-1)
    rows = (budget > 0) & (budget < cap * (weights > 0).sum(axis=-1))
    if rows.any():
        level = water_level(weights[rows], float(cap), float(budget))
        depths = clipped_depths(weights[rows], level, float(cap))
        slope = np.log(4.0) * np.power(4.0, level)
        value[rows] = geometric(weights[rows], depths) + slope * (depths.sum(axis=-1) - budget)
    return value
