"""Key depths as slots: centroids of prefixes written as exact sums over products of signs, so that bits can be used raw.

A prefix of t bits with signs s_p = +-1 names the centroid sum_S a_S prod_{p in S} s_p over the subsets S of its planes;
the tree is symmetric, so only subsets of odd size occur: 1, 2, 4, 8, .. 128 of them at depth 1, 2, 3, 4, .. 8. The sign
of a subset is the exclusive or of its planes (an odd number of them). Hence

    logit = scale * sum over slots (channel, S) of (q_c sigma_c a_S) * sign(xor of planes in S)

    slots_kernel   grid (PARTS, rows)   depths -> for every order 1, 3, 5, 7: the slots' planes and float16 weights

    members [rows, 7, SLOTS] int32      row of key planes (plane * d + channel) of a slot's j-th plane
    weights [rows, SLOTS * 8] float16   slot 16 s + 4 q + i of head g at ((4 s + q) * 8 + g) * 4 + i: a lane's operand
    counts  [rows, 8] int32             slots of order 1, 3, 5, 7, then where each begins (a multiple of 32)
    sums    [rows, PARTS, 8] float32    sum of a part's rounded weights per head: signs are 2 bit - 1
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.tree import LEVELS, lloyd_tree

PARTS = 8
ORDERS = (1, 3, 5, 7)
PAD = 32


class SlotTables(NamedTuple):
    """coefficients [9, 128] by depth and subset, float32; counts [9, 4] by depth and order; planes [128, 8]; int32."""

    coefficients: torch.Tensor
    counts: torch.Tensor
    planes: torch.Tensor


def _subsets() -> list[tuple[int, ...]]:
    """Odd subsets of the planes, by order; those of the first t planes come first within an order."""
    chosen: list[tuple[int, ...]] = []
    for order in ORDERS:
        chosen += sorted(itertools.combinations(range(LEVELS), order), key=lambda s: (max(s), s))
    return chosen


def multilinear(centroids: torch.Tensor, subset: tuple[int, ...]) -> float:
    """The coefficient of prod s_p over ``subset`` in centroids [2^t] of depth t, s_p = +1 where bit p is 1.

    >>> multilinear(torch.tensor([-3.0, -1.0, 1.0, 3.0]), (0,)), multilinear(torch.tensor([-3.0, -1.0, 1.0, 3.0]), (1,))
    (2.0, 1.0)
    """
    depth = len(centroids).bit_length() - 1
    index = torch.arange(len(centroids))
    sign = torch.ones(len(centroids), dtype=torch.float64)
    for plane in subset:
        sign *= 2.0 * ((index >> (depth - 1 - plane)) & 1) - 1.0
    return float((sign * centroids.to(torch.float64)).mean())


@functools.cache
def slot_tables(device: torch.device) -> SlotTables:
    """The tables on ``device``."""
    _, centroids, _ = lloyd_tree(LEVELS)
    subsets = _subsets()
    coefficients = torch.zeros(LEVELS + 1, len(subsets), dtype=torch.float64)
    counts = torch.zeros(LEVELS + 1, len(ORDERS), dtype=torch.int32)
    planes = torch.zeros(len(subsets), 8, dtype=torch.int32)
    for number, subset in enumerate(subsets):
        planes[number, : len(subset)] = torch.tensor(subset, dtype=torch.int32)
        for depth in range(max(subset) + 1, LEVELS + 1):
            coefficients[depth, number] = multilinear(centroids[depth], subset)
            counts[depth, ORDERS.index(len(subset))] += 1
    return SlotTables(coefficients.to(torch.float32).to(device), counts.to(device), planes.to(device))


@functools.cache
def prefix_tables(device: torch.device) -> torch.Tensor:
    """Centroids [4, 256] float16 of depths 5 to 8 by code, bit p of the code being plane p; deeper bits do not count."""
    _, centroids, _ = lloyd_tree(LEVELS)
    code = torch.arange(256)
    found = []
    for depth in range(5, 9):
        prefix = torch.zeros_like(code)
        for plane in range(depth):
            prefix = prefix * 2 + ((code >> plane) & 1)
        found.append(centroids[depth][prefix])
    return torch.stack(found).to(torch.float16).to(device).contiguous()


def slot_capacity(d: int, stored_depth: int) -> int:
    """Slots that a row has room for: every channel at the stored depth, each order padded."""
    return d * 2 ** (stored_depth - 1) + 2 * PAD * len(ORDERS)


@triton.jit
def slots_kernel(
    queries, scales, depths, coefficients, count_table, plane_table, members, weights, counts, sums, heads, capacity,
    G: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, PARTS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Every PARTS-th slot of every channel of one row: rotated queries [G, d], depths [d]."""
    follow(DEPENDENT)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, channel = tl.arange(0, 8), tl.arange(0, D_PAD)
    live = channel < D
    depth = tl.load(depths + row * D + channel, mask=live, other=0)
    scale = tl.load(scales + row % heads * D + channel, mask=live, other=0.0)
    query = tl.load(queries + (row * G + group)[:, None] * D + channel[None, :],
                    mask=(group < G)[:, None] & live[None, :], other=0.0) * scale[None, :]  # fmt: skip
    deepest = tl.max(depth, 0)
    total = tl.zeros([8], tl.float32)
    base, first = 0, 0
    for order in tl.static_range(4):
        mine = tl.load(count_table + depth * 4 + order)
        place = tl.cumsum(mine, 0) - mine
        count = tl.sum(mine, 0)
        if part == 0:
            tl.store(counts + row * 8 + order, count)
            tl.store(counts + row * 8 + 4 + order, base)
            slot = base + count + tl.arange(0, 16)  # the last group of 16 is filled up with weights of 0
            at = row * capacity * 8 + ((slot // 4)[None, :] * 8 + group[:, None]) * 4 + (slot % 4)[None, :]
            tl.store(weights + at, tl.zeros([8, 16], tl.float16))
        for s in range(part, tl.load(count_table + deepest * 4 + order), PARTS):
            has = s < mine
            factor = tl.load(coefficients + depth * 128 + first + s)
            weight = tl.where(has[None, :], query * factor[None, :], 0.0).to(tl.float16)
            total += tl.sum(weight.to(tl.float32), 1)
            slot = base + place + s
            at = row * capacity * 8 + ((slot // 4)[None, :] * 8 + group[:, None]) * 4 + (slot % 4)[None, :]
            tl.store(weights + at, weight, mask=has[None, :] & (group < 8)[:, None])
            for j in tl.static_range(2 * order + 1):
                plane = tl.load(plane_table + (first + s) * 8 + j)
                tl.store(members + (row * 7 + j) * capacity + slot, plane * D + channel, mask=has)
        base += (count + 31) // 32 * 32
        first += 56 if order == 1 or order == 2 else 8
    tl.store(sums + (row * PARTS + part) * 8 + group, total)
