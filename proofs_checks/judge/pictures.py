"""What a report may draw of a fault: where in the tensor it is, or which pages were kept. Small by construction."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROWS, COLUMNS = 24, 64
"""The finest picture of a tensor; larger ones show the largest value of each block."""

PAGES = 128
"""Pages drawn of a selection."""


@dataclass(frozen=True)
class RatioMap:
    """error / bound of one result, leading axes as rows and the last axis as columns, at most ROWS x COLUMNS cells."""

    result: str
    shape: tuple[int, ...]
    cells: tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class PageRow:
    """One KV head's selection: what it must hold, what it may hold, what it holds.

    ``pages`` are those drawn, of ``total``; ``low`` and ``high`` enclose their shares.
    """

    where: tuple[int, ...]
    total: int
    pages: tuple[int, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    must: frozenset[int]
    may: frozenset[int]
    kept: frozenset[int]


Picture = RatioMap | PageRow


def ratio_map(result: str, ratio: Any) -> RatioMap:
    """The picture of error / bound (or of 0 and inf where equality was asked for).

    >>> ratio_map("lse", np.array([[0.5, 2.0]])).cells
    ((0.5, 2.0),)
    >>> [len(r) for r in ratio_map("output", np.ones((2, 3, 128))).cells]
    [64, 64, 64, 64, 64, 64]
    """
    ratio = np.asarray(ratio, dtype=np.float64)
    grid = ratio.reshape(-1, ratio.shape[-1]) if ratio.ndim else ratio.reshape(1, 1)
    grid = _block_maximum(_block_maximum(grid, ROWS).T, COLUMNS).T
    return RatioMap(result, ratio.shape, tuple(tuple(float(v) for v in row) for row in grid))


def _block_maximum(grid: Any, most: int) -> Any:
    """At most ``most`` rows, each the maximum over neighbouring rows."""
    if len(grid) <= most:
        return grid
    edges = np.linspace(0, len(grid), most, endpoint=False).astype(int)
    return np.maximum.reduceat(grid, edges, axis=0)


def page_row(
    where: tuple[int, ...], low: Any, high: Any, must: Iterable[int], may: Iterable[int], kept: Iterable[int]
) -> PageRow:
    """The picture of a selection; where there are many pages, of the wrong ones and of those that matter most.

    >>> row = page_row((0,), [0.5, 0.5], [0.5, 0.5], {0, 1}, {0, 1}, {0})
    >>> row.pages, sorted(row.must - row.kept)
    ((0, 1), [1])
    """
    must, may, kept = frozenset(must), frozenset(may), frozenset(kept)
    wrong, shares = (must - kept) | (kept - may), np.asarray(high)
    order = sorted(range(len(shares)), key=lambda p: (p not in wrong, p not in must, -shares[p], p))
    pages = tuple(sorted(order[:PAGES]))
    return PageRow(
        where,
        len(shares),
        pages,
        tuple(float(low[p]) for p in pages),
        tuple(float(high[p]) for p in pages),
        must & set(pages),
        may & set(pages),
        kept & set(pages),
    )
