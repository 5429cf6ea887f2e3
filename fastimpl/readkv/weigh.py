"""Between the two passes: log-masses, importances of value tokens, and the first pass of their allocation.

Mirrors `refimpl.readkv.importance.readkv_value_importance` inside the reader.

    weigh_kernel     grid (T / TOKENS, rows)   tiles' masses -> lse [G]; logits -> weights -> sum of squares -> importance
                                               (of pairs of tokens: their sum) -> bins of `threshold.py`
    weights_kernel   grid (T / TOKENS, rows)   logits and lse -> weights [G, T], for the caller who wants them

Branch PTX counts in shared memory first: thousands of programs adding to the same few bins wait for each other.
Bytes: logits read once, 4 per token (or pair) written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.threshold import BINS, bin_of, item_cost, row_items


OWN_BINS = tl.constexpr("{.shared .align 16 .b8 importance_bins[16384]; mov.u32 $0, importance_bins;}")
CLEAR_BIN = tl.constexpr("{.reg .b32 z; mov.b32 z, 0; st.shared.b32 [$1], z; mov.b32 $0, z;}")
ADD_TO_BIN = tl.constexpr("red.shared.add.u32 [$1], $2; mov.b32 $0, 0;")
READ_BIN = tl.constexpr("ld.shared.b32 $0, [$1];")


@triton.jit
def shared_word(text: tl.constexpr, address):
    """Clear or read the words of shared memory at these addresses."""
    return tl.inline_asm_elementwise(text, "=r,r", [address], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def cleared_bins(THREADS: tl.constexpr):
    """Address of this program's own bins in shared memory, all 0."""
    first = tl.max(shared_word(OWN_BINS, tl.arange(0, THREADS)), 0)
    shared_word(CLEAR_BIN, first + 4 * tl.arange(0, BINS))
    tl.debug_barrier()
    return first


@triton.jit
def log_mass_of_tiles(largests, totals, row, tiles, GP: tl.constexpr, STEP: tl.constexpr):
    """Base-2 log-masses [GP] of a row out of its tiles' largest logits and sums."""
    group, lane = tl.arange(0, GP), tl.arange(0, STEP)
    top, total = tl.full([GP], -1e30, tl.float32), tl.zeros([GP], tl.float32)
    for first in range(0, tiles, STEP):
        tile = first + lane
        at = (row * tiles + tile)[:, None] * GP + group[None, :]
        largest = tl.load(largests + at, mask=(tile < tiles)[:, None], other=-1e30)
        amount = tl.load(totals + at, mask=(tile < tiles)[:, None], other=0.0)
        higher = tl.maximum(top, tl.max(largest, 0))
        total = total * tl.exp2(top - higher) + tl.sum(amount * tl.exp2(largest - higher[None, :]), 0)
        top = higher
    return top + tl.log2(tl.maximum(total, 1e-30))


@triton.jit
def importance_of(logits, lse, row, block, length, capacity, G: tl.constexpr, GP: tl.constexpr, TOKENS: tl.constexpr):
    """Sums [TOKENS] of the squared weights of one block of tokens; 0 beyond the row's length."""
    group, token = tl.arange(0, GP), block * TOKENS + tl.arange(0, TOKENS)
    inside = (token < length)[:, None] & (group < G)[None, :]
    logit = tl.load(logits + (row * capacity + token)[:, None] * GP + group[None, :], mask=inside, other=0.0)
    weight = tl.where(inside, tl.exp2(logit.to(tl.float32) - lse[None, :]), 0.0)
    return tl.sum(weight * weight, 1)


@triton.jit
def weigh_kernel(
    logits, largests, totals, lses, importance, bins, lengths, heads, capacity, items_capacity, tiles, rows_per_pool,
    cost, G: tl.constexpr, GP: tl.constexpr, TOKENS: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr,
    PAIRED: tl.constexpr, PTX: tl.constexpr, THREADS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Importances of STEPS * TOKENS tokens of one row, added to its pool's bins."""
    if PTX:
        own = cleared_bins(THREADS)
    follow(DEPENDENT)
    row = tl.program_id(1).to(tl.int64)
    lse = log_mass_of_tiles(largests, totals, row, tiles, GP, STEP)
    if tl.program_id(0) == 0:
        tl.store(lses + row * GP + tl.arange(0, GP), lse)
    length = tl.load(lengths + row // heads)
    items, each, last = row_items(lengths, row, heads, 0, cost, cost, True, PAIRED)
    SIZE: tl.constexpr = TOKENS // 2 if PAIRED else TOKENS
    pool = bins + row // rows_per_pool * BINS
    for step in range(STEPS):
        block = tl.program_id(0) * STEPS + step
        value = importance_of(logits, lse, row, block, length, capacity, G, GP, TOKENS)
        if PAIRED:
            value = tl.sum(tl.reshape(value, [SIZE, 2]), 1)
        item = block * SIZE + tl.arange(0, SIZE)
        tl.store(importance + row * items_capacity + item, value, mask=item < items)
        amount = item_cost(item, items, each, last)
        if PTX:
            tl.inline_asm_elementwise(ADD_TO_BIN, "=r,r,r", [own + 4 * bin_of(value), amount], dtype=tl.int32,
                                      is_pure=False, pack=1)  # fmt: skip
        else:
            tl.atomic_add(pool + bin_of(value), amount, mask=item < items, sem="relaxed")
    if PTX:
        tl.debug_barrier()
        j = tl.arange(0, BINS)
        amount = shared_word(READ_BIN, own + 4 * j)
        tl.atomic_add(pool + j, amount, mask=amount > 0, sem="relaxed")


@triton.jit
def weights_kernel(
    logits, lses, weights, lengths, heads, capacity, tokens, G: tl.constexpr, GP: tl.constexpr, TOKENS: tl.constexpr
):
    """Attention weights [rows, G, T] of TOKENS tokens; 0 beyond a row's length."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, token = tl.arange(0, GP), block * TOKENS + tl.arange(0, TOKENS)
    inside = (token < tl.load(lengths + row // heads))[:, None] & (group < G)[None, :]
    logit = tl.load(logits + (row * capacity + token)[:, None] * GP + group[None, :], mask=inside, other=0.0)
    lse = tl.load(lses + row * GP + group)
    weight = tl.where(inside, tl.exp2(logit.to(tl.float32) - lse[None, :]), 0.0)
    at = (row * G + group)[None, :] * tokens + token[:, None]
    tl.store(weights + at, weight, mask=(token < tokens)[:, None] & (group < G)[None, :])
