"""The fast reader's first kernel where every KV head has a budget of its own: from queries to slots in one launch.

Mirrors `refimpl.readkv.reader.read_two_stages` up to its key depths: what `merge.query_kernel`, `choose.choose_kernel`
and `slots.slots_kernel` do, with a channel per thread (`lanes_slots.py`).

    prepare_kernel   grid (8, rows)   queries [G, d] -> rotate -> importances [d] -> depths [d] -> slots

Each of a row's eight programs repeats the cheap steps and makes an eighth of the slots. Bytes: queries, and before the
kernel before has ended scales, signs, gains and the slots' tables (5 KB, into shared memory); a few thousand written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.lanes import effect
from fastimpl.readkv.lanes_slots import (
    ARRIVED,
    BOUGHT,
    BOUGHT_OPERANDS,
    FILL,
    LARGEST_AT,
    MEMORY,
    QUERIES_AT,
    ROW,
    STORE_FLOAT,
    load_float,
    rotate_pairs,
    square,
    store_pairs,
    store_slots_by_lanes,
)


@triton.jit
def channel_keys(worth, gains):
    """Keys of a channel's steps (`choose.py`)."""
    keys = ()
    for gain in tl.static_range(len(gains)):
        keys = keys + ((worth * gains[gain]).to(tl.int32, bitcast=True),)
    return keys


@triton.jit
def prepare_kernel(
    queries, signs, scales, gains, lefts, coefficients, largest, rotated, importance, depths, bins, state, members,
    weights, counts, sums, units, heads, words, stride_n, stride_h, stride_g, minimum, inverse_root, G: tl.constexpr,
    D: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr,
    BLOCKS: tl.constexpr, BINS: tl.constexpr, STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rotated queries, importances and depths of one row's channels, and a part of its slots; bins and state are made 0."""
    part, row, thread = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, 128)
    live = thread < D
    memory = effect(MEMORY, "=r,r", (part,))
    effect(FILL, "=r,l,l,r,r", (coefficients.to(tl.int64), largest.to(tl.int64), memory, thread))
    sign = tl.load(signs + thread, mask=live, other=1.0)
    scale = tl.load(scales + row % heads * D + thread, mask=live, other=0.0)
    steps = ()
    for w in tl.static_range(W_PAD):
        steps = steps + (tl.load(gains + minimum + w, mask=minimum + w < LEVELS, other=0.0),)
    follow(DEPENDENT)
    at = queries + row // heads * stride_n + row % heads * stride_h + thread
    raw = ()
    for head in tl.static_range(8):
        raw = raw + (tl.load(at + head * stride_g, mask=live & (head < G), other=0.0),)
    left = tl.minimum(tl.load(lefts + row), 1 << 20).to(tl.int32)
    each = tl.arange(0, BINS // PARTS)
    tl.store(bins + row * BINS + part * (BINS // PARTS) + each, tl.zeros([BINS // PARTS], tl.int32))
    if part == 0:
        tl.store(state + row * STATE + tl.arange(0, STATE), tl.zeros([STATE], tl.int64))
    store_pairs(raw, sign, memory, thread)
    effect(ARRIVED, "=r,r", (thread,))
    tl.debug_barrier()
    rotate_pairs(memory, thread, inverse_root, D)
    tl.debug_barrier()
    weighted, squares = (), ()
    for head in tl.static_range(8):
        own = memory + QUERIES_AT + head * ROW + thread * 4
        result = tl.where(live, load_float(own), 0.0)
        if (part == 0) & (head < G):
            tl.store(rotated + (row * G + head) * D + thread, result, mask=live)
        effect(STORE_FLOAT, "=r,r,f", (own, result * scale))
        weighted, squares = weighted + (result * scale,), squares + (square(result * scale),)
    s = squares
    worth = ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]))
    bought = tl.inline_asm_elementwise(BOUGHT[W_PAD - 1], BOUGHT_OPERANDS[W_PAD - 1],
                                       channel_keys(worth, steps) + (left, memory), dtype=tl.int32, is_pure=False,
                                       pack=1)  # fmt: skip
    depth = tl.where(live, minimum + bought, 0)
    if part == 0:
        tl.store(importance + row * D + thread, worth, mask=live)
        tl.store(depths + row * D + thread, depth, mask=live)
    store_slots_by_lanes(weighted, depth, load_float(memory + LARGEST_AT + 4 * depth), members, weights, counts, sums, units,
                         memory, thread, words, row, part, D, PARTS, GROUPS, BLOCKS)  # fmt: skip
