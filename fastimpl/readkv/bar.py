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

LOW, HIGH, FOUND, COME, BAR, CUT, REST, DONE = (tl.constexpr(i) for i in range(8))
STATE = 8
"""Numbers of a pool's state, int64: bracket, cost above it (times 2^32) and entries of the list, how many programs have
filled the bins (where they wait for each other), what `resolve` found, and how many programs are done."""


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
def cost_of_all(
    importance, gains, first_row, stride, items, all_items, low, high, minimum, cost, last_cost, bar, last_bar, before,
    LEVELS: tl.constexpr, W_PAD: tl.constexpr, SEARCH: tl.constexpr,
):  # fmt: skip
    """Cost of the steps inside the bracket with bar <= key <= last_bar whose item lies before ``before``, of all items."""
    total = tl.zeros([1], tl.int64)
    for first in range(0, all_items, SEARCH):
        item = first + tl.arange(0, SEARCH)
        value = tl.load(importance + (first_row + item // items).to(tl.int64) * stride + item % items,
                        mask=item < all_items, other=0.0)  # fmt: skip
        key = gain_keys(value, gains, minimum, LEVELS, W_PAD)
        steps = tl.sum(((key >= tl.maximum(bar, low)) & (key <= last_bar) & (key < high)).to(tl.int32), 1)
        each = tl.where(item % items == items - 1, last_cost, cost)
        total += tl.sum(tl.where(item < before, steps * each, 0).to(tl.int64), 0)
    return tl.sum(total, 0)


@triton.jit
def search_all(
    importance, gains, first_row, stride, items, all_items, low, high, left, minimum, cost, last_cost,
    LEVELS: tl.constexpr, W_PAD: tl.constexpr, SEARCH: tl.constexpr,
):  # fmt: skip
    """The bar in [low, high), the first item whose equals do not all fit, and how many of its equals do."""
    bar, step = low, low * 0 + (1 << 30)
    while step > 0:
        trial = bar + step
        if (step <= high - low) & (trial < high) & (trial > 0):
            reached = cost_of_all(importance, gains, first_row, stride, items, all_items, low, high, minimum, cost,
                                  last_cost, trial, high, all_items, LEVELS, W_PAD, SEARCH)  # fmt: skip
            bar = tl.where(reached > left, trial, tl.where(reached == left, trial - 1, bar))  # exactly: see `bar_of`
            step = tl.where(reached == left, 0, step)
        step = step >> 1
    reached = cost_of_all(importance, gains, first_row, stride, items, all_items, low, high, minimum, cost, last_cost,
                          bar, high, all_items, LEVELS, W_PAD, SEARCH)  # fmt: skip
    higher = cost_of_all(importance, gains, first_row, stride, items, all_items, low, high, minimum, cost, last_cost,
                         bar + 1, high, all_items, LEVELS, W_PAD, SEARCH)  # fmt: skip
    room = left - higher
    bar = tl.where((low == 1) & (bar == 1) & (reached <= left), 0, bar)  # everything of worth fits
    cut, rest = low * 0, room * 0
    if (bar > 0) & (room >= tl.minimum(cost, last_cost)):
        step = 1 << 30
        while step > 0:
            trial = cut + step
            if (trial < all_items) & (trial > 0):
                spent = cost_of_all(importance, gains, first_row, stride, items, all_items, low, high, minimum, cost,
                                    last_cost, bar, bar, trial, LEVELS, W_PAD, SEARCH)  # fmt: skip
                cut = tl.where(spent <= room, trial, cut)
            step = step >> 1
        spent = cost_of_all(importance, gains, first_row, stride, items, all_items, low, high, minimum, cost, last_cost,
                            bar, bar, cut, LEVELS, W_PAD, SEARCH)  # fmt: skip
        rest = (room - spent) // tl.where(cut % items == items - 1, last_cost, cost)
    return bar, cut, rest


@triton.jit
def costs_reached(keys, items_of, count, items, cost, last_cost, one, two, three, before, SEARCH: tl.constexpr):
    """Costs of the listed steps of items before ``before`` that reach each of three keys."""
    first, second, third = tl.zeros([SEARCH], tl.int32), tl.zeros([SEARCH], tl.int32), tl.zeros([SEARCH], tl.int32)
    for start in range(0, count, SEARCH):
        place = start + tl.arange(0, SEARCH)
        key = tl.load(keys + place, mask=place < count, other=0)
        item = tl.load(items_of + place, mask=place < count, other=0)
        each = tl.where(item < before, tl.where(item % items == items - 1, last_cost, cost), 0)
        first += tl.where(key >= one, each, 0)
        second += tl.where(key >= two, each, 0)
        third += tl.where(key >= three, each, 0)
    return tl.sum(first.to(tl.int64), 0), tl.sum(second.to(tl.int64), 0), tl.sum(third.to(tl.int64), 0)


@triton.jit
def search_pieces(keys, items_of, count, items, all_items, low, left, cost, last_cost, SEARCH: tl.constexpr):
    """`search_list` over a list that does not fit in registers."""
    bar, step = low, low * 0 + (1 << 18)
    while step > 0:  # as in `bar_of`
        first, second, third = costs_reached(keys, items_of, count, items, cost, last_cost, bar + step, bar + 2 * step,
                                             bar + 3 * step, all_items, SEARCH)  # fmt: skip
        more = (first > left).to(tl.int32) + (second > left).to(tl.int32) + (third > left).to(tl.int32)
        exact = (first == left) | (second == left) | (third == left)
        bar = tl.where(exact, bar + (more + 1) * step - 1, bar + more * step)
        step = tl.where(exact, 0, step >> 2)
    higher, _second, _third = costs_reached(keys, items_of, count, items, cost, last_cost, bar + 1, bar + 1, bar + 1,
                                            all_items, SEARCH)  # fmt: skip
    room, cut, rest = left - higher, low * 0, left * 0
    if room >= tl.minimum(cost, last_cost):
        step = 1 << 30
        while step > 0:
            trial = cut + step
            if (trial < all_items) & (trial > 0):
                spent, above, _third = costs_reached(keys, items_of, count, items, cost, last_cost, bar, bar + 1,
                                                     bar + 1, trial, SEARCH)  # fmt: skip
                cut = tl.where(spent - above <= room, trial, cut)
            step = step >> 1
        spent, above, _third = costs_reached(keys, items_of, count, items, cost, last_cost, bar, bar + 1, bar + 1, cut,
                                             SEARCH)  # fmt: skip
        rest = (room - spent + above) // tl.where(cut % items == items - 1, last_cost, cost)
    return bar, cut, rest


@triton.jit
def search_list(keys, items_of, count, items, low, left, cost, last_cost, SEARCH: tl.constexpr):
    """`search_all` over a list that fits in registers: keys of one step per item, within 2^20 of ``low``."""
    place = tl.arange(0, SEARCH)
    key = tl.load(keys + place, mask=place < count, other=0)
    item = tl.load(items_of + place, mask=place < count, other=0)
    each = tl.where(item % items == items - 1, last_cost, cost)
    bar = bar_of(key, each, left, low, 1 << 18, False)
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
    found = tl.load(own + FOUND)
    left = tl.load(lefts + pool) - (found >> 32)
    all_items = items * rows_per_pool
    bar, cut, rest = low * 0, low * 0, left * 0
    if (low > 0) & (items > 0):
        count = (found & 0x7FFFFFFF).to(tl.int32)
        if CLOSE | (low == 1) | (high - low > NARROW):  # an item may have several steps in the bracket
            bar, cut, rest = search_all(importance, gains, row, stride, items, all_items, low, high, left, minimum, cost,
                                        last_cost, LEVELS, W_PAD, SEARCH_WIDE)  # fmt: skip
        elif count <= SEARCH // 4:
            bar, cut, rest = search_list(listed_keys, listed_items, count, items, low, left, cost, last_cost,
                                         SEARCH // 4)  # fmt: skip
        elif count <= SEARCH:
            bar, cut, rest = search_list(listed_keys, listed_items, count, items, low, left, cost, last_cost, SEARCH)
        else:
            bar, cut, rest = search_pieces(listed_keys, listed_items, count, items, all_items, low, left, cost, last_cost,
                                           SEARCH // 2)  # fmt: skip
    tl.store(own + BAR, bar.to(tl.int64))
    tl.store(own + CUT, cut.to(tl.int64))
    tl.store(own + REST, rest)
