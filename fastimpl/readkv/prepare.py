"""The fast reader's first kernel where every KV head has a budget of its own: from queries to slots in one launch.

Mirrors `refimpl.readkv.reader.read_two_stages` up to its key depths: `merge.query_kernel`, `choose.choose_kernel` and
`slots.slots_kernel`, whose functions it calls.

    prepare_kernel   grid (8, rows)   queries [G, d] -> rotate -> importances [d] -> depths [d] -> slots

Each of a row's eight programs repeats the cheap steps and makes an eighth of the slots. Bytes: queries, scales, signs and
the Hadamard matrix (bfloat16), which is loaded while the kernel before still runs; a few thousand written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import dot, follow
from fastimpl.readkv.choose import bought_steps
from fastimpl.readkv.slots import store_slots


@triton.jit
def prepare_kernel(
    queries, hadamard, signs, scales, gains, lefts, coefficients, largest, rotated, importance, depths, bins, state, members,
    weights, counts, sums, units, heads, words, stride_n, stride_h, stride_g, minimum, inverse_root, G: tl.constexpr,
    G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    FEW: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr, BINS: tl.constexpr, STATE: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rotated queries, importances and depths of one row's channels, and every PARTS-th slot; bins and state are made 0."""
    i = tl.arange(0, D_PAD)
    matrix = tl.load(hadamard + i[:, None] * D + i[None, :], mask=(i < D)[:, None] & (i < D)[None, :], other=0.0)
    follow(DEPENDENT)
    part, row, channel = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, D_PAD)
    live = channel < D
    group = tl.arange(0, G_PAD)
    inside = (group < G)[:, None] & live[None, :]
    at = queries + row // heads * stride_n + row % heads * stride_h + group[:, None] * stride_g + channel[None, :]
    query = tl.load(at, mask=inside, other=0.0)
    sign = tl.load(signs + channel, mask=live, other=0.0)[None, :]
    result = dot((query.to(tl.float32) * sign).to(query.dtype), matrix) * inverse_root
    weighted = tl.where(
        inside, result * tl.load(scales + row % heads * D + channel, mask=live, other=0.0)[None, :], 0.0
    )
    worth = tl.sum(weighted * weighted, 0)
    bought = bought_steps(worth, gains, live.to(tl.int32), tl.load(lefts + row), minimum, LEVELS, W_PAD, FEW)
    depth = tl.where(live, minimum + bought, 0)
    each = tl.arange(0, BINS // PARTS)
    tl.store(bins + row * BINS + part * (BINS // PARTS) + each, tl.zeros([BINS // PARTS], tl.int32))
    if part == 0:
        tl.store(state + row * STATE + tl.arange(0, STATE), tl.zeros([STATE], tl.int64))
        tl.store(rotated + (row * G + group)[:, None] * D + channel[None, :], result, mask=inside)
        tl.store(importance + row * D + channel, worth, mask=live)
        tl.store(depths + row * D + channel, depth, mask=live)
    eight = tl.sum(tl.reshape(weighted, [G_PAD // 8, 8, D_PAD]), 0)  # rows from G on are 0
    store_slots(eight, depth, live, coefficients, largest, members, weights, counts, sums, units, words, row, part, D,
                D_PAD, PARTS, GROUPS, BLOCKS)  # fmt: skip
