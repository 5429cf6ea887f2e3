"""The last step of `threshold.py`: the bar of a pool among the few listed steps near it, and how its equals are shared.

Mirrors the tie rule of `refimpl.readkv.allocation.readkv_choose_depths`: equals are bought in item order while they fit.

    resolve   one program per pool   listed keys in registers: two bits of the bar per round; a longer list, or all items
                                     where the bracket is wide, in pieces: one bit per round

Bytes: 8 per listed step and round, once where the list fits in registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv.choose import bar_of, gain_keys

NARROW, SHIFT = tl.constexpr(4 << 18), tl.constexpr(18)
"""A bracket of at most four bins holds one step of an item, where gains are a fifth apart."""

LOW, HIGH, ABOVE, LISTED, BAR, CUT, REST, DONE = (tl.constexpr(i) for i in range(8))
STATE = 8
"""Numbers of a pool's state, int64: bracket, cost above it, entries of the list, what `resolve` found, and how many
programs are done."""


@triton.jit
def row_items(lengths, row, heads, items_of_all, cost, last_cost, LENGTHS: tl.constexpr, PAIRED: tl.constexpr):
    """Items of a row and their costs: tokens, or pairs of tokens of which an odd last one costs 1."""
    if LENGTHS:
        items_of_all = tl.load(lengths + row // heads).to(tl.int32)
        if PAIRED:
            last_cost = 2 - items_of_all % 2
            items_of_all = (items_of_all + 1) // 2
    return items_of_all, cost, last_cost


@triton.jit
def steps_near(
    listed_keys, listed_items, importance, gains, base, first_row, stride, place, count, items, low, high, minimum,
    WIDE: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
):  # fmt: skip
    """Keys [SEARCH, W] inside the bracket (0 elsewhere) and items [SEARCH] of places in the list, or of all items."""
    live = place < count
    if WIDE:
        row, item = place // items, place % items
        value = tl.load(importance + (first_row + row).to(tl.int64) * stride + item, mask=live, other=0.0)
        key = gain_keys(value, gains, minimum, LEVELS, W_PAD)
        key = tl.where((key >= low) & (key < high), key, 0)
        item = place
    else:
        key = tl.load(listed_keys + base + place, mask=live, other=0)[:, None]
        item = tl.load(listed_items + base + place, mask=live, other=0)
    return key, item


@triton.jit
def cost_between(
    listed_keys, listed_items, importance, gains, base, first_row, stride, count, items, low, high, minimum, cost,
    last_cost, bar, last_bar, before, WIDE: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    SEARCH: tl.constexpr,
):  # fmt: skip
    """Cost of the listed steps with bar <= key <= last_bar whose item lies before ``before``."""
    total = tl.zeros([1], tl.int64)
    for first in range(0, count, SEARCH):
        place = first + tl.arange(0, SEARCH)
        key, item = steps_near(listed_keys, listed_items, importance, gains, base, first_row, stride, place, count,
                               items, low, high, minimum, WIDE, LEVELS, W_PAD)  # fmt: skip
        each = tl.where(item % items == items - 1, last_cost, cost)
        steps = tl.sum(((key >= bar) & (key <= last_bar)).to(tl.int32), 1)
        total += tl.sum(tl.where(item < before, steps * each, 0).to(tl.int64), 0)
    return tl.sum(total, 0)


@triton.jit
def search(
    listed_keys, listed_items, importance, gains, base, first_row, stride, count, items, all_items, low, high, left,
    minimum, cost, last_cost, WIDE: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr, SEARCH: tl.constexpr,
):  # fmt: skip
    """The bar in [low, high), the first item whose equals do not all fit, and how many of its equals do."""
    bar, step = low, low * 0 + (1 << 30)
    while step > 0:
        trial = bar + step
        if (step <= high - low) & (trial < high) & (trial > 0):
            reached = cost_between(listed_keys, listed_items, importance, gains, base, first_row, stride, count, items,
                                   low, high, minimum, cost, last_cost, trial, high, all_items, WIDE, LEVELS, W_PAD,
                                   SEARCH)  # fmt: skip
            bar = tl.where(reached > left, trial, tl.where(reached == left, trial - 1, bar))  # exactly: see `bar_of`
            step = tl.where(reached == left, 0, step)
        step = step >> 1
    reached = cost_between(listed_keys, listed_items, importance, gains, base, first_row, stride, count, items, low,
                           high, minimum, cost, last_cost, bar, high, all_items, WIDE, LEVELS, W_PAD, SEARCH)  # fmt: skip
    higher = cost_between(listed_keys, listed_items, importance, gains, base, first_row, stride, count, items, low,
                          high, minimum, cost, last_cost, bar + 1, high, all_items, WIDE, LEVELS, W_PAD, SEARCH)  # fmt: skip
    room = left - higher
    bar = tl.where((low == 1) & (bar == 1) & (reached <= left), 0, bar)  # everything of worth fits
    cut, rest = low * 0, room * 0
    if (bar > 0) & (room >= tl.minimum(cost, last_cost)):
        step = 1 << 30
        while step > 0:
            trial = cut + step
            if (trial < all_items) & (trial > 0):
                spent = cost_between(listed_keys, listed_items, importance, gains, base, first_row, stride, count,
                                     items, low, high, minimum, cost, last_cost, bar, bar, trial, WIDE, LEVELS, W_PAD,
                                     SEARCH)  # fmt: skip
                cut = tl.where(spent <= room, trial, cut)
            step = step >> 1
        spent = cost_between(listed_keys, listed_items, importance, gains, base, first_row, stride, count, items, low,
                             high, minimum, cost, last_cost, bar, bar, cut, WIDE, LEVELS, W_PAD, SEARCH)  # fmt: skip
        rest = (room - spent) // tl.where(cut % items == items - 1, last_cost, cost)
    return bar, cut, rest


@triton.jit
def search_list(keys, items_of, count, items, low, left, cost, last_cost, SEARCH: tl.constexpr):
    """`search` over a list that fits in registers: keys of one step per item, within 2^20 of ``low``."""
    place = tl.arange(0, SEARCH)
    key = tl.load(keys + place, mask=place < count, other=0)
    item = tl.load(items_of + place, mask=place < count, other=0)
    each = tl.where(item % items == items - 1, last_cost, cost)
    bar = bar_of(key[:, None], each, left, low, 1 << 18)
    room = left - tl.sum(tl.where(key > bar, each, 0), 0)
    cut, rest = low * 0, left * 0
    if room >= tl.minimum(cost, last_cost):
        spent = tl.where(key == bar, each, 0)
        step = low * 0 + (1 << 30)
        while step > 0:
            trial = cut + step
            cut = tl.where((trial > 0) & (tl.sum(tl.where(item < trial, spent, 0), 0) <= room), trial, cut)
            step = step >> 1
        rest = (room - tl.sum(tl.where(item < cut, spent, 0), 0)) // tl.where(cut % items == items - 1, last_cost, cost)
    return bar, cut, rest


@triton.jit
def resolve(
    listed_keys, listed_items, importance, gains, lefts, own, pool, stride, items, cost, last_cost, rows_per_pool,
    minimum, LEVELS: tl.constexpr, W_PAD: tl.constexpr, CLOSE: tl.constexpr, SEARCH: tl.constexpr,
    SEARCH_WIDE: tl.constexpr,
):  # fmt: skip
    """A pool's bar, cut and rest, into its state, when all its listed steps are there."""
    row = pool.to(tl.int32) * rows_per_pool
    low, high = tl.load(own + LOW).to(tl.int32), tl.load(own + HIGH).to(tl.int32)
    left = tl.load(lefts + pool) - tl.load(own + ABOVE)
    all_items = items * rows_per_pool
    bar, cut, rest = low * 0, low * 0, left * 0
    if (low > 0) & (items > 0):
        count = tl.load(own + LISTED).to(tl.int32)
        if CLOSE | (low == 1) | (high - low > NARROW):  # an item may have several steps in the bracket
            bar, cut, rest = search(listed_keys, listed_items, importance, gains, 0, row, stride, all_items, items,
                                    all_items, low, high, left, minimum, cost, last_cost, True, LEVELS, W_PAD,
                                    SEARCH_WIDE)  # fmt: skip
        elif count <= SEARCH // 4:
            bar, cut, rest = search_list(listed_keys, listed_items, count, items, low, left, cost, last_cost,
                                         SEARCH // 4)  # fmt: skip
        elif count <= SEARCH:
            bar, cut, rest = search_list(listed_keys, listed_items, count, items, low, left, cost, last_cost, SEARCH)
        else:
            bar, cut, rest = search(listed_keys, listed_items, importance, gains, 0, row, stride, count, items,
                                    all_items, low, high, left, minimum, cost, last_cost, False, LEVELS, W_PAD,
                                    SEARCH)  # fmt: skip
    tl.store(own + BAR, bar.to(tl.int64))
    tl.store(own + CUT, cut.to(tl.int64))
    tl.store(own + REST, rest)
