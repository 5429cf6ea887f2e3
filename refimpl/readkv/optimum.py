"""Independent optima of small allocations: dynamic programming over exact numbers, and a mixed-integer program."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from refimpl.checks import FloatArray, IntArray


def optimum_by_programming(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Fraction:
    """The least sum_i a_i D(t_i) over all schedules within the budget, exactly: dynamic programming over items.

    No hypothesis on the gains is needed. Time O(N W budget) in rational arithmetic: for small instances.

    Source: ReadKV Prop. 8 (what the greedy rule is compared with).

    >>> optimum_by_programming(importance=[4.0, 1.0], gains=[0.5, 0.25], budget=3)
    Fraction(3, 2)
    """
    curve = [Fraction(1)]
    for gain in gains:
        curve.append(curve[-1] - Fraction(float(gain)))
    best: list[Fraction | None] = [Fraction(0)] + [None] * budget  # best[b]: cost of the items so far at b spent
    for weight in importance:
        updated: list[Fraction | None] = [None] * (budget + 1)
        for spent, cost in enumerate(best):
            if cost is None:
                continue
            for depth in range(minimum_depth, min(len(curve) - 1, budget - spent) + 1):
                candidate = cost + Fraction(float(weight)) * curve[depth]
                known = updated[spent + depth]
                if known is None or candidate < known:
                    updated[spent + depth] = candidate
        best = updated
    return min(cost for cost in best if cost is not None)


def optimum_by_milp(*, importance: FloatArray, gains: FloatArray, budget: int) -> IntArray:
    """Optimal depths [N] from a mixed-integer program: one binary per item and level, levels in order.

    Source: independent check of ReadKV Prop. 8 (SciPy's HiGHS).

    >>> optimum_by_milp(importance=np.array([4.0, 1.0]), gains=np.array([0.5, 0.25]), budget=3).tolist()
    [2, 1]
    """
    N, W = len(importance), len(gains)
    if N * W == 0:
        return np.zeros(N, dtype=np.int64)
    cost = -(importance[:, None] * gains).ravel()  # x[i, t] = 1: item i reads level t
    rows = [LinearConstraint(np.ones((1, N * W)), ub=budget)]
    if W > 1:
        order = np.zeros((N * (W - 1), N * W))  # x[i, t + 1] <= x[i, t]
        for row, (i, t) in enumerate(np.ndindex(N, W - 1)):
            order[row, i * W + t], order[row, i * W + t + 1] = -1.0, 1.0
        rows.append(LinearConstraint(order, ub=0.0))
    # a zero gap: the solver's default would call a schedule within 1e-4 of the optimum solved
    solved = milp(cost, constraints=rows, integrality=np.ones(N * W), bounds=Bounds(0, 1), options={"mip_rel_gap": 0.0})
    depths: IntArray = np.rint(solved.x).astype(np.int64).reshape(N, W).sum(axis=1)
    return depths
