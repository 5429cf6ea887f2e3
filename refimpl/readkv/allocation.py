"""ChooseDepths: spend a budget of refinements where they lower the calibrated distortion most (Sec. 3.3, Alg. 1)."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, real, whole


def check_importance(name: str, value: Any, axes: str, sizes: Sizes) -> FloatArray:
    """Importances of shape ``axes``; ArgumentError for a negative or non-finite one.

    >>> check_importance("importance", [0.0, 1.0], "N", Sizes()).tolist()
    [0.0, 1.0]
    """
    array = real(name, value, axes, sizes)
    if (array < 0).any():
        index = [int(i) for i in np.argwhere(array < 0)[0]]
        raise ArgumentError(f"{name}: expected nonnegative weights, got {array[tuple(index)]} at {index}")
    return array


def check_gains(gains: Any) -> FloatArray:
    """Gains [W], the hypotheses of Proposition 8: nonnegative and nonincreasing; ArgumentError says which one fails.

    >>> check_gains([0.5, 0.25]).tolist()
    [0.5, 0.25]
    """
    array = real("gains", gains, "W", Sizes())
    if (array < 0).any():
        level = int(np.argmax(array < 0))
        raise ArgumentError(f"gains: expected nonnegative gains (Proposition 8), got {array[level]} at [{level}]")
    rise = np.diff(array) > 0
    if rise.any():
        level = int(np.argmax(rise))
        pair = f"{array[level]} then {array[level + 1]} at [{level}]"
        raise ArgumentError(f"gains: expected nonincreasing gains (Proposition 8), got {pair}")
    return array


class Problem:
    """Checked arguments of one allocation: importance [N], gains [W], budget, minimum_depth, what is left to spend."""

    def __init__(self, importance: Any, gains: Any, budget: Any, minimum_depth: Any) -> None:
        self.importance = check_importance("importance", importance, "N", Sizes())
        self.gains = check_gains(gains)
        self.items, self.levels = len(self.importance), len(self.gains)
        self.budget = whole("budget", budget, low=0)
        self.minimum_depth = whole("minimum_depth", minimum_depth, low=0, high=self.levels)
        self.left = self.budget - self.items * self.minimum_depth
        if self.left < 0:
            needed = f"{self.items} items x {self.minimum_depth} = {self.items * self.minimum_depth}"
            raise ArgumentError(f"minimum_depth: expected one that fits the budget, got {needed} > {self.budget}")

    def weighted_gains(self) -> FloatArray:
        """a_i Delta_t of every refinement beyond the minimum depth: [N, W - minimum_depth]."""
        return self.importance[:, None] * self.gains[self.minimum_depth :]


def choose_depths_heap(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> IntArray:
    """`readkv_choose_depths` as the paper writes it: a max-heap of every item's next refinement.

    O(N + budget log N). Arguments, result and errors as there.

    >>> choose_depths_heap(importance=[4.0, 1.0], gains=[0.5, 0.25], budget=3).tolist()
    [2, 1]
    """
    problem = Problem(importance, gains, budget, minimum_depth)
    depths = np.full(problem.items, problem.minimum_depth, dtype=np.int64)
    weighted = problem.weighted_gains()
    if weighted.shape[1] == 0:
        return depths
    heap = [(-float(first), item) for item, first in enumerate(weighted[:, 0])]  # equal gains: lower item first
    heapq.heapify(heap)
    for _ in range(problem.left):
        if not heap or heap[0][0] == 0.0:  # only gains of 0 are left: never bought (AMB-20)
            break
        item = heap[0][1]
        depths[item] += 1
        if depths[item] < problem.levels:
            following = float(weighted[item, depths[item] - problem.minimum_depth])
            heapq.heapreplace(heap, (-following, item))
        else:
            heapq.heappop(heap)
    return depths


def readkv_choose_depths(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> IntArray:
    """Depths that minimise sum_i a_i D(t_i) within a budget of refinements, without a heap.

    All refinements above a threshold gain are bought, then those equal to it in item order, until the budget is spent.
    An item's gains fall with depth, so what is bought is a prefix, and the result is the heap's.

    Args:
        importance: [N], a_i >= 0; pooled heads are flattened head-major.
        gains: [W], D(t-1) - D(t), nonnegative and nonincreasing.
        budget: refinements, at least 0; nothing is left to buy beyond N*W (AMB-75). Gains of 0 are never bought, even
            if budget is left (AMB-20).
        minimum_depth: bought first for every item, also at zero gain; counts against the budget.

    Returns:
        depths [N]. Equal weighted gains go to the lower item first (AMB-19).

    Raises:
        ArgumentError: a negative or non-finite importance, gains that are negative or increase (the hypotheses of
            Proposition 8), a negative budget, a minimum_depth outside 0..W or beyond the budget.

    Source: ReadKV Sec. 3.3, Alg. 1; Prop. 8.

    Weighted gains are 2, 1 and 1/2, 1/4; three refinements take 2, 1 and 1/2.

    >>> readkv_choose_depths(importance=[4.0, 1.0], gains=[0.5, 0.25], budget=3).tolist()
    [2, 1]
    >>> readkv_choose_depths(importance=[4.0, 0.0], gains=[0.5, 0.25], budget=3, minimum_depth=1).tolist()
    [2, 1]
    """
    problem = Problem(importance, gains, budget, minimum_depth)
    weighted = problem.weighted_gains()
    candidates = weighted[weighted > 0]
    if problem.left >= candidates.size:
        return problem.minimum_depth + np.count_nonzero(weighted > 0, axis=1)
    if problem.left == 0:
        return np.full(problem.items, problem.minimum_depth, dtype=np.int64)
    place = candidates.size - problem.left
    threshold = np.partition(candidates, place)[place]  # the last gain that is bought
    above = np.count_nonzero(weighted > threshold, axis=1)
    equal = np.count_nonzero(weighted == threshold, axis=1)
    before = np.cumsum(equal) - equal  # boundary refinements of lower items
    bought: IntArray = above + np.clip(problem.left - int(above.sum()) - before, 0, equal)
    return problem.minimum_depth + bought


def choose_group_depths(
    *, importance: FloatArray, costs: IntArray, gains: FloatArray, budget: int, minimum_depth: int
) -> IntArray:
    """Greedy depths of items whose refinements cost more than one: importance and costs [N] -> depths [N].

    Steps are taken by falling importance times gain, lower item first, and the first step that does not fit ends the
    buying; the rest of the budget stays unspent. With all costs 1 this is `readkv_choose_depths`.

    Source: ReadKV App. F.8, G (the restricted reader's token pairs).

    Item 0 costs 2: its first step (gain 2) fits a budget of 3, its second (gain 1) does not and ends buying.

    >>> choose_group_depths(importance=np.array([4.0, 1.0]), costs=np.array([2, 1]), gains=np.array([0.5, 0.25]),
    ...                     budget=3, minimum_depth=0).tolist()
    [1, 0]
    """
    left = budget - minimum_depth * int(costs.sum())
    if left < 0:
        needed = minimum_depth * int(costs.sum())
        raise ArgumentError(f"minimum_depth: expected one that fits the budget, got {needed} > {budget}")
    weighted = importance[:, None] * gains[minimum_depth:]  # [N, W - minimum_depth]
    item, level = np.nonzero(weighted > 0)  # items ascending, each one's levels ascending
    order = np.argsort(-weighted[item, level], kind="stable")
    spent = np.cumsum(costs[item[order]])
    taken = item[order][: np.searchsorted(spent, left, side="right")]
    return minimum_depth + np.bincount(taken, minlength=len(importance))


def surrogate(*, importance: FloatArray, depths: IntArray, gains: FloatArray) -> float:
    """The objective sum_i a_i D(t_i) with D(t) = 1 - (sum of the first t gains), in units of the importance.

    Source: ReadKV Sec. 3.3.

    >>> surrogate(importance=np.array([4.0, 1.0]), depths=np.array([2, 1]), gains=np.array([0.5, 0.25]))
    1.5
    """
    curve = np.concatenate([[1.0], 1.0 - np.cumsum(gains)])  # [W + 1]
    return float(np.sum(importance * curve[depths]))
