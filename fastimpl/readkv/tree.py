"""The progressive Lloyd tree in float32, and the tables that kernels look up.

Mirrors `refimpl.readkv.tree.readkv_tree`; built once on the host in float64, no kernel. Tables, float32 unless named:

    thresholds [255]   level l begins at 2^l - 1; ascending within a level
    centroids  [511]   depth t begins at 2^t - 1; the first is 0
    gains      [8]     D(t-1) - D(t)
    buckets    [1024, 2]  of z in steps of 1/128 from -4: leaf at the bucket's lower end (as float32) and the one split
                       inside the bucket (+inf where there is none), so that encoding is one look-up and one comparison
    cells      [CELLS + 1]  int32, of z held to -4..4 in steps of 2^-20, X = floor(2^20 (z + 4)): one word W per cell
                       floor(X * CELLS / 2^23) such that the leaf is bits 16..23 of 4 X + W: one sum, no comparison
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import torch

from fastimpl.checks import whole

LEVELS = 8
"""Depth of the stages' codes."""

STEPS_PER_UNIT, BUCKETS = 128, 1024

CELLS, STEPS = 537, 1 << 23
"""Cells and steps of -4..4; 537 is the fewest above 512 that parts all splits, and 4 X moves less than 2^16 in each."""


class Tables(NamedTuple):
    """Tables of the tree on one device, as the module's docstring lists them."""

    thresholds: torch.Tensor
    centroids: torch.Tensor
    gains: torch.Tensor
    buckets: torch.Tensor
    cells: torch.Tensor


def _mass(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Normal mass of ``(low, high)``, 0 <= low: differences of upper tails cancel little."""
    return (torch.special.erfc(low / math.sqrt(2.0)) - torch.special.erfc(high / math.sqrt(2.0))) / 2.0


def _mean(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    fall = torch.exp(-low * low / 2.0) - torch.exp(-high * high / 2.0)
    return fall / (math.sqrt(2.0 * math.pi) * _mass(low, high))


def _split(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """The point midway between the means of its two halves, by bisection; unique for a log-concave law."""
    left, right = low.clone(), torch.minimum(high, low + 2.0)
    for _ in range(60):
        middle = (left + right) / 2.0
        beyond = middle > (_mean(low, middle) + _mean(middle, high)) / 2.0
        left, right = torch.where(beyond, left, middle), torch.where(beyond, middle, right)
    return (left + right) / 2.0


def _both_sides(positive: torch.Tensor) -> torch.Tensor:
    return torch.cat([-positive.flip(0), positive]).to(torch.float32)


@functools.cache
def lloyd_tree(depth: int) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """Thresholds by level, centroids by depth, gains [depth]; float32, on the host."""
    edges = torch.tensor([0.0, math.inf], dtype=torch.float64)  # of the positive half; the other mirrors it
    thresholds, centroids, gains = [torch.zeros(1)], [torch.zeros(1)], []
    before = torch.zeros(1, dtype=torch.float64)
    for level in range(depth):
        if level:
            inner = _split(edges[:-1], edges[1:])
            thresholds.append(_both_sides(inner))
            edges = torch.cat([edges, inner]).sort().values
        mass, mean = _mass(edges[:-1], edges[1:]), _mean(edges[:-1], edges[1:])
        centroids.append(_both_sides(mean))
        parent = before.repeat_interleave(len(mean) // len(before))
        gains.append(2.0 * float((mass * (mean - parent) ** 2).sum()))  # what the finer means explain on top
        before = mean
    return thresholds, centroids, torch.tensor(gains, dtype=torch.float64).to(torch.float32)


def _buckets(thresholds: list[torch.Tensor]) -> torch.Tensor:
    splits = torch.cat(thresholds).sort().values.to(torch.float64)
    edges = torch.arange(-BUCKETS // 2, BUCKETS // 2 + 1, dtype=torch.float64) / STEPS_PER_UNIT
    leaf = torch.searchsorted(splits, edges, right=True)  # splits at or below the edge
    inside = leaf[1:] - leaf[:-1]
    if int(inside.max()) > 1:
        raise AssertionError("buckets: expected at most one split inside a bucket; make STEPS_PER_UNIT larger")
    padded = torch.cat([splits, torch.tensor([math.inf], dtype=torch.float64)])
    following = padded[leaf[:-1]]  # the first split above the lower edge, beyond the bucket where it has none
    return torch.stack([leaf[:-1].to(torch.float64), following], dim=1).to(torch.float32)


def _cells(thresholds: list[torch.Tensor]) -> torch.Tensor:
    splits = torch.cat(thresholds).sort().values.to(torch.float64)
    steps = torch.ceil((splits + 4.0) * (STEPS / 8)).to(torch.int64)  # X >= steps just where z >= the split
    inside = steps * CELLS // STEPS
    if int((inside[1:] == inside[:-1]).sum()):
        raise AssertionError("cells: expected at most one split inside a cell; make CELLS larger")
    first = torch.arange(CELLS + 1) * STEPS // CELLS
    leaf = torch.searchsorted(inside, torch.arange(CELLS + 1))  # splits of the cells before
    words = (leaf << 16) - 4 * first
    words[inside] = ((leaf[inside] + 1) << 16) - 4 * steps
    return words.to(torch.int32)


@functools.cache
def tables(device: torch.device) -> Tables:
    """The tables of depth 8 on ``device``."""
    thresholds, centroids, gains = lloyd_tree(LEVELS)
    parts = (torch.cat(thresholds), torch.cat(centroids), gains, _buckets(thresholds), _cells(thresholds))
    return Tables(*(part.to(device).contiguous() for part in parts))


def readkv_tree(*, depth: int) -> dict[str, Any]:
    """Thresholds, centroids (lists by level) and gains [depth] of the Lloyd tree, float32 (ReadKV App. D).

    Raises ArgumentError for a depth outside 1..12.
    """
    thresholds, centroids, gains = lloyd_tree(whole("depth", depth, 1, 12))
    return {"thresholds": [t.clone() for t in thresholds], "centroids": [c.clone() for c in centroids],
            "gains": gains.clone()}  # fmt: skip
