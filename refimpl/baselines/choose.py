"""What every token selector shares: the best k by score, the lower index first, some of them protected."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, real, whole


def best(scores: FloatArray, kept: int) -> IntArray:
    """Indices [..., min(kept, N)] of the largest of scores [..., N], ascending; ties go to the lower index.

    >>> best(np.array([[0.0, 2.0, 2.0, 1.0]]), 3).tolist()
    [[1, 2, 3]]
    """
    order = np.argsort(-scores, axis=-1, kind="stable")[..., : min(kept, scores.shape[-1])]
    chosen: IntArray = np.sort(order, axis=-1)
    return chosen


def evict_tokens(*, scores: Any, budget_tokens: int, first_tokens: int = 0, recent_tokens: int = 0) -> IntArray:
    """The tokens that stay when a cache is cut to its budget: both protected ends, and the best of the rest.

    R-KV protects its window of recent tokens, LazyEviction its W most recent, TriAttention the prompt.

    Args:
        scores: [H, T], larger stays.
        budget_tokens: b; min(b, T) tokens stay, the protected ones counted inside.
        first_tokens, recent_tokens: how many of the oldest and of the newest always stay.

    Returns:
        tokens [H, min(b, T)], ascending; ties go to the lower index.

    Raises:
        ArgumentError: a shape, a non-finite score, or more protected tokens than the budget holds.

    Source: Locks App. C.2.

    >>> evict_tokens(scores=[[0.0, 1.0, 9.0, 8.0, 0.0]], budget_tokens=3, first_tokens=1, recent_tokens=1).tolist()
    [[0, 2, 4]]
    """
    sizes = Sizes()
    scores = real("scores", scores, "H T", sizes)
    T = sizes["T"]
    budget = whole("budget_tokens", budget_tokens, low=0)
    protected = protected_tokens(T, first_tokens, recent_tokens)
    if len(protected) > budget:
        raise ArgumentError(f"budget_tokens: expected at least the {len(protected)} protected tokens, got {budget}")
    return best(np.where(np.isin(np.arange(T), protected), np.inf, scores), budget)


def protected_tokens(tokens: int, first_tokens: int, recent_tokens: int) -> IntArray:
    """The oldest ``first_tokens`` and the newest ``recent_tokens`` of T, each once, ascending.

    >>> protected_tokens(6, 1, 2).tolist(), protected_tokens(2, 2, 2).tolist()
    ([0, 4, 5], [0, 1])
    """
    first = whole("first_tokens", first_tokens, low=0)
    recent = whole("recent_tokens", recent_tokens, low=0)
    index = np.arange(tokens)
    return index[(index < first) | (index >= tokens - recent)]
