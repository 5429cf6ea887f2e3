"""Between the two passes: log-masses, importances of value tokens, and the first pass of their allocation.

Mirrors `refimpl.readkv.importance.readkv_value_importance` inside the reader.

    weigh_kernel     grid (T / TOKENS, rows)   tiles' masses -> lse [G]; logits -> weights -> sum of squares -> importance
                                               (of pairs of tokens: their sum) -> bins of `threshold.py`
    weights_kernel   grid (T / TOKENS, rows)   logits and lse -> weights [G, T], for the caller who wants them

Bytes: logits read once, 4 per token (or pair) written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.bar import row_items
from fastimpl.readkv.threshold import BINS, arrive, bin_of, bracket_of, item_cost


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
def weigh_kernel(
    logits, largests, totals, lses, importance, bins, suffixes, lefts, gains, state, lengths, heads, capacity,
    items_capacity, tiles, rows_per_pool, cost, minimum, programs, G: tl.constexpr, GP: tl.constexpr,
    TOKENS: tl.constexpr, STEP: tl.constexpr, PAIRED: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Importances of TOKENS tokens of one row, added to its pool's bins; the last program brackets the pool's bar."""
    follow(DEPENDENT)
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, token = tl.arange(0, GP), block * TOKENS + tl.arange(0, TOKENS)
    lse = log_mass_of_tiles(largests, totals, row, tiles, GP, STEP)
    if block == 0:
        tl.store(lses + row * GP + group, lse)
    length = tl.load(lengths + row // heads)
    inside = (token < length)[:, None] & (group < G)[None, :]
    logit = tl.load(logits + (row * capacity + token)[:, None] * GP + group[None, :], mask=inside, other=float("-inf"))
    weight = tl.where(inside, tl.exp2(logit.to(tl.float32) - lse[None, :]), 0.0)
    value = tl.sum(weight * weight, 1)
    items, each, last = row_items(lengths, row, heads, 0, cost, cost, True, PAIRED)
    SIZE: tl.constexpr = TOKENS // 2 if PAIRED else TOKENS
    if PAIRED:
        value = tl.sum(tl.reshape(value, [SIZE, 2]), 1)
    item = block * SIZE + tl.arange(0, SIZE)
    tl.store(importance + row * items_capacity + item, value, mask=item < items)
    pool = row // rows_per_pool
    tl.atomic_add(bins + pool * BINS + bin_of(value), item_cost(item, items, each, last), mask=item < items,
                  sem="relaxed")  # fmt: skip
    if arrive(state + pool * STATE, programs):
        bracket_of(bins, suffixes, lefts, gains, state, pool, minimum, LEVELS, W_PAD, STATE)


@triton.jit
def weights_kernel(
    logits, lses, weights, lengths, heads, capacity, tokens, G: tl.constexpr, GP: tl.constexpr, TOKENS: tl.constexpr
):
    """Attention weights [rows, G, T] of TOKENS tokens; 0 beyond a row's length."""
    block, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    group, token = tl.arange(0, GP), block * TOKENS + tl.arange(0, TOKENS)
    inside = (token < tl.load(lengths + row // heads))[:, None] & (group < G)[None, :]
    logit = tl.load(logits + (row * capacity + token)[:, None] * GP + group[None, :], mask=inside, other=float("-inf"))
    lse = tl.load(lses + row * GP + group)
    weight = tl.where(inside, tl.exp2(logit.to(tl.float32) - lse[None, :]), 0.0)
    at = (row * G + group)[None, :] * tokens + token[:, None]
    tl.store(weights + at, weight, mask=(token < tokens)[:, None] & (group < G)[None, :])
