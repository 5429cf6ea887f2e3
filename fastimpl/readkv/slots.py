"""Key depths as slots: centroids of prefixes written as exact sums over products of signs, so that bits can be used raw.

A prefix of t bits with signs s_p = +-1 names the centroid sum_S a_S prod_{p in S} s_p over the subsets S of its planes;
the tree is symmetric, so only subsets of odd size occur: 1, 2, 4, 8, .. 128 of them at depth 1, 2, 3, 4, .. 8. The sign
of a subset is the exclusive or of its planes (an odd number of them). Hence

    logit = scale * sum over slots (channel, S) of (q_c sigma_c a_S) * sign(xor of planes in S)

Channels go by falling depth into groups of 4 of depth 4 to 8, then of 8 of depth 3, 16 of depth 2, 32 of depth 1; the
last group of a depth is filled with shallower channels. A group is 32 rows of planes that are read, each once, and one
block of 32 slots; a group of depth t > 4 has 2^(t-4) blocks, one for every subset of planes 4 .. t - 1.

    slots_kernel   grid (8, rows)   depths -> groups; program i makes slot i of every channel's eight

    members [rows, GROUPS, 32] int32        first word of a row of key planes (of plane * d + channel), -1 for none: row
                                            8 q + i of lane q; eight groups of none come last
    weights [rows, BLOCKS, 8, 4, 16] int8   of head g and lane q: high bytes of its slots 0 .. 7, then low bytes
    counts  [rows, 8] int32                 groups of 4, 8, 16, 32 channels; of the first, those of depth 8, 7, 6, 5 up
    sums    [rows, 8, 8] int32              by head, sums of each program's weights: signs are 2 bit - 1
    units   [rows, 8] float32               what a weight of 1 is worth, per head
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from fastimpl.device import follow, round_to_even
from fastimpl.readkv.tree import LEVELS, lloyd_tree

PARTS = 8
LOW_SUBSETS = ((0,), (1,), (2,), (0, 1, 2), (3,), (0, 1, 3), (0, 2, 3), (1, 2, 3))
"""Planes of slots 0 to 7 of a channel's first block."""

LARGEST = tl.constexpr(32512.0)
"""The largest weight: 127 * 256."""


class SlotTables(NamedTuple):
    """coefficients [9, 16, 8] by depth, block and slot; largest [9] of them by depth; float32."""

    coefficients: torch.Tensor
    largest: torch.Tensor


def subset_of(block: int, slot: int) -> tuple[int, ...]:
    """Planes of a channel's slot: block b has the planes 4 + j of the bits j of b's Gray code, as they are or, where
    these are odd in number, with plane 0 turned over: so one exclusive or leads from block to block.

    >>> subset_of(0, 3), subset_of(1, 0), subset_of(1, 1), subset_of(2, 4)
    ((0, 1, 2), (4,), (0, 1, 4), (3, 4, 5))
    """
    code = block ^ (block >> 1)
    chosen = set(LOW_SUBSETS[slot]) ^ ({0} if code.bit_count() % 2 else set())
    return tuple(sorted(chosen | {4 + j for j in range(4) if code >> j & 1}))


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
    coefficients = torch.zeros(LEVELS + 1, 16, 8, dtype=torch.float64)
    for block in range(16):
        for slot in range(8):
            subset = subset_of(block, slot)
            for depth in range(max(subset) + 1, LEVELS + 1):
                coefficients[depth, block, slot] = multilinear(centroids[depth], subset)
    single = coefficients.to(torch.float32)
    return SlotTables(single.to(device), single.abs().amax((1, 2)).to(device))


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


def group_capacity(d: int) -> int:
    """Groups that a row has room for: one of every four channels, the last of each smaller depth, and those of none."""
    return d // 4 + 4 + PARTS


def block_capacity(d: int, stored_depth: int) -> int:
    """Blocks that a row has room for: every channel at the stored depth, and one more that is loaded ahead."""
    return d // 4 * 2 ** max(stored_depth - 4, 0) + 5


@triton.jit
def groups_of(deep, at8, at7, at6, at5):
    """Blocks before group ``deep`` of those of four channels, of which the first at8 have depth 8, and so on."""
    return (deep + tl.minimum(deep, at5) + 2 * tl.minimum(deep, at6) + 4 * tl.minimum(deep, at7)
            + 8 * tl.minimum(deep, at8))  # fmt: skip


@triton.jit
def count_groups(depth):
    """Ranks of channels by falling depth; how many have a depth; the eight counts (see `counts` above)."""
    one = tl.where(depth > 0, tl.full(depth.shape, 1, tl.int64) << (8 * (depth - 1)).to(tl.int64), 0)
    upto, total = tl.cumsum(one, 0), tl.sum(one, 0)
    rank = ((upto >> (8 * tl.maximum(depth - 1, 0)).to(tl.int64)) & 255).to(tl.int32) - 1
    reached = ()  # channels of depth 8 at least, 7 at least, .. 1
    deeper = rank * 0
    count = tl.sum(depth, 0) * 0
    for i in tl.static_range(8):
        deeper = tl.where(depth == 8 - i, count, deeper)
        count += ((total >> (8 * (7 - i))) & 255).to(tl.int32)
        reached = reached + (count,)
    return rank + deeper, reached[7], group_counts(reached)


@triton.jit
def group_counts(reached):
    """The eight counts (see `counts` above) where so many channels have depth 8 at least, 7 at least, .. 1."""
    fours = (reached[4] + 3) // 4
    eights = (tl.maximum(reached[5] - 4 * fours, 0) + 7) // 8
    sixteens = (tl.maximum(reached[6] - 4 * fours - 8 * eights, 0) + 15) // 16
    more = (tl.maximum(reached[7] - 4 * fours - 8 * eights - 16 * sixteens, 0) + 31) // 32
    deep = ((reached[0] + 3) // 4, (reached[1] + 3) // 4, (reached[2] + 3) // 4, (reached[3] + 3) // 4)
    return (fours, eights, sixteens, more) + deep


@triton.jit
def place_of(rank, counts):
    """Group, first block, number of blocks, quad, first of its slots and their number of channels of these ranks."""
    in8, in16, in32 = 4 * counts[0], 4 * counts[0] + 8 * counts[1], 4 * counts[0] + 8 * counts[1] + 16 * counts[2]
    shift = tl.where(rank < in8, 0, tl.where(rank < in16, 1, tl.where(rank < in32, 2, 3)))
    inside = rank - tl.where(rank < in8, 0, tl.where(rank < in16, in8, tl.where(rank < in32, in16, in32)))
    before = tl.where(rank < in8, 0, tl.where(rank < in16, counts[0], counts[0] + counts[1]))
    before += tl.where(rank < in32, 0, counts[2])
    group = before + (inside >> (2 + shift))
    deep = tl.minimum(group, counts[0])
    block = groups_of(deep, counts[4], counts[5], counts[6], counts[7]) + group - deep
    blocks = groups_of(deep + 1, counts[4], counts[5], counts[6], counts[7])
    blocks -= groups_of(deep, counts[4], counts[5], counts[6], counts[7])
    blocks = tl.where(group < counts[0], blocks, 1)
    first = (inside & ((1 << shift) - 1)) * (8 >> shift)
    return group, block, blocks, (inside >> shift) & 3, first, 8 >> shift


@triton.jit
def store_weight(weights, value, block, quad, slot, own):
    """The two bytes of weights [8, N] of one slot each."""
    head = tl.arange(0, 8)
    at = weights + block[None, :] * 512 + (head[:, None] * 4 + quad[None, :]) * 16 + slot[None, :]
    high = (value + 128) >> 8
    tl.store(at, high.to(tl.int8), mask=own[None, :])
    tl.store(at + 8, (value - high * 256).to(tl.int8), mask=own[None, :])


@triton.jit
def store_slots(
    query, depth, live, coefficients, largest, members, weights, counts, sums, units, words, row, part,
    D: tl.constexpr, D_PAD: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """Slot ``part`` of every channel of one row: queries [8, d] times scales, depths [d]."""
    head, channel = tl.arange(0, 8), tl.arange(0, D_PAD)
    top = tl.max(tl.abs(query) * tl.load(largest + depth)[None, :], 1)
    unit = tl.maximum(top, 1e-30) / LARGEST
    rank, channels, found = count_groups(depth)
    if part == 0:
        tl.store(units + row * 8 + head, unit)
        for i in tl.static_range(8):
            tl.store(counts + row * 8 + i, found[i])
    group, block, blocks, quad, first, width = place_of(rank, found)
    own = live & (depth > 0) & (part < width)
    members, weights = members + row * (GROUPS * 32), weights + row * (BLOCKS * 512)
    member = tl.where(part < depth, (part * D + channel) * words, -1)
    tl.store(members + group * 32 + quad * 8 + first + part, member, mask=own)
    inverse = (1.0 / unit)[:, None]
    total = tl.zeros([8], tl.int32)
    for k in range(tl.max(tl.where(own, blocks, 0), 0)):
        factor = tl.load(coefficients + depth * 128 + k * 8 + part)
        value = round_to_even(query * factor[None, :] * inverse).to(tl.int32)
        value = tl.where((own & (k < blocks))[None, :], value, 0)
        total += tl.sum(value, 1)
        store_weight(weights, value, block + k, quad, first + part, own & (k < blocks))
    tl.store(sums + (row * 8 + head) * PARTS + part, total)
    # places of the last group that no channel took
    rank = channels + tl.arange(0, 32)
    group, block, blocks, quad, first, width = place_of(rank, found)
    groups = found[0] + found[1] + found[2] + found[3]
    own = (group < groups) & (part < width)
    tl.store(members + (groups + part) * 32 + tl.arange(0, 32), tl.full([32], -1, tl.int32))
    tl.store(members + group * 32 + quad * 8 + first + part, tl.full([32], -1, tl.int32), mask=own)
    for k in range(tl.max(tl.where(own, blocks, 0), 0)):
        store_weight(weights, tl.zeros([8, 32], tl.int32), block + k, quad, first + part, own & (k < blocks))


@triton.jit
def slots_kernel(
    queries, scales, depths, coefficients, largest, members, weights, counts, sums, units, heads, words,
    G: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr,
    DEPENDENT: tl.constexpr,
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
    store_slots(query, depth, live, coefficients, largest, members, weights, counts, sums, units, words, row, part, D,
                D_PAD, PARTS, GROUPS, BLOCKS)  # fmt: skip
