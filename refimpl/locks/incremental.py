"""Incremental build: a page is summarised when it fills; the result equals the batched build (Locks Sec. 4, Build)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import FloatArray, Sizes, real, whole
from refimpl.locks.summary import locks_build_summary


class SummaryBuilder:
    """Summaries of a growing cache. The open page waits, without a summary, until its last token arrives (AMB-02).

    Args:
        kv_heads: H. head_size: d. page_size: B. rank: r, 1 <= r <= min(B, d).

    Source: Locks Sec. 4 ("one incremental build per finalized page").

    >>> builder = SummaryBuilder(kv_heads=1, head_size=1, page_size=2, rank=1)
    >>> builder.append([[[0.0], [4.0], [9.0]]])                     # one page fills, one token waits
    1
    >>> builder.summary["centroid"].tolist(), builder.open_page.tolist()
    ([[[2.0]]], [[[9.0]]])
    """

    def __init__(self, *, kv_heads: int, head_size: int, page_size: int, rank: int) -> None:
        self._sizes = Sizes({"H": whole("kv_heads", kv_heads, low=0), "d": whole("head_size", head_size, low=1)})
        self.page_size = whole("page_size", page_size, low=1)
        self.rank = whole("rank", rank, low=1, high=min(page_size, head_size))
        self.open_page: FloatArray = np.zeros((kv_heads, 0, head_size))
        """[H, n, d], 0 <= n < B: the tokens of the page that is not complete."""
        empty = np.zeros((kv_heads, 0, page_size, head_size))
        self._built = [locks_build_summary(key_pages=empty, rank=self.rank)]

    def append(self, keys: Any) -> int:
        """Add keys [H, n, d] of the next n tokens; returns how many pages they completed.

        Raises ArgumentError for a shape or a non-finite key.
        """
        keys = real("keys", keys, "H n d", Sizes(self._sizes))
        waiting = np.concatenate([self.open_page, keys], axis=1)
        complete = waiting.shape[1] // self.page_size
        for page in range(complete):
            one = waiting[:, page * self.page_size : (page + 1) * self.page_size]
            self._built.append(locks_build_summary(key_pages=one[:, None], rank=self.rank))
        self.open_page = waiting[:, complete * self.page_size :]
        return complete

    @property
    def summary(self) -> dict[str, FloatArray]:
        """``centroid``, ``basis`` and ``coefficients`` of all complete pages, as `locks_build_summary` gives them."""
        return {name: np.concatenate([one[name] for one in self._built], axis=1) for name in self._built[0]}
