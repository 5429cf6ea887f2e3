"""Select: the sink page, the most recent page and the top of the rest (Locks Sec. 2 and 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, real, whole


def pages_within_budget(budget_tokens: int, page_size: int, pages: int) -> int:
    """How many pages are kept, min(k, P) with k = ceil(b / B); k < 2 with P > 1 is an error (AMB-04).

    >>> pages_within_budget(64, 16, 100), pages_within_budget(65, 16, 100), pages_within_budget(64, 16, 3)
    (4, 5, 3)
    """
    k = -(-whole("budget_tokens", budget_tokens, low=1) // whole("page_size", page_size, low=1))
    if k < 2 and pages > 1:
        raise ArgumentError(
            f"budget_tokens: expected at least two pages (sink and most recent) of {page_size} tokens, "
            f"got {budget_tokens}"
        )
    return min(k, pages)


def locks_select_pages(*, shares: Any, budget_tokens: int, page_size: int) -> IntArray:
    """The pages that each KV head attends: page 0, page P-1, and the largest shares among the others.

    Args:
        shares: [H, P], any real ranking values.
        budget_tokens: b; k = ceil(b/B) pages, sink and most recent counted inside it. P <= k keeps all pages.
        page_size: B.

    Returns:
        pages [H, min(k, P)], ascending (AMB-05); ties go to the lower page index, +0 equals -0 (AMB-06).

    Raises:
        ArgumentError: a shape, a non-finite share, or k < 2 with P > 1.

    Source: Locks Sec. 2 (budget), Sec. 4 (selection); AMB-03, AMB-04.

    >>> locks_select_pages(shares=[[0.0, 0.1, 0.4, 0.4, 0.1]], budget_tokens=48, page_size=16).tolist()
    [[0, 2, 4]]
    """
    sizes = Sizes()
    shares = real("shares", shares, "H P", sizes)
    P = sizes["P"]
    kept = pages_within_budget(budget_tokens, page_size, P)
    return np.stack([select_one(row, kept) for row in shares]) if sizes["H"] else np.zeros((0, kept), np.int64)


def select_one(shares: FloatArray, kept: int) -> IntArray:
    """``kept`` pages of one KV head's shares [P]: 0, P-1 and the top of the rest, ascending.

    >>> select_one(np.array([0.0, 0.2, 0.3, 0.0]), 3).tolist()
    [0, 2, 3]
    """
    P = len(shares)
    if kept >= P:
        return np.arange(P)
    order = np.argsort(-shares[1 : P - 1], kind="stable") + 1  # stable: the lower page first among equals
    return np.sort(np.concatenate([[0, P - 1], order[: kept - 2]]))
