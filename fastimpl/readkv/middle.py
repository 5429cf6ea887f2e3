"""Between the fast reader's passes, in one kernel: importances of value tokens, and the exact bar of their depths.

Mirrors `refimpl.readkv.importance.readkv_value_importance` and `refimpl.readkv.allocation.readkv_choose_depths` inside
the reader; `lanes_weigh.weigh_by_lanes` and `threshold.collect_kernel` do the same in two kernels.

    allocate_by_lanes   grid (blocks, rows)   logits -> importances, kept in registers -> own bins -> the pool's bins
                                              wait until all of the pool's programs have come; each brackets the bar
                                              steps inside the bracket -> the pool's list; its last program: the bar

All programs must be resident at once, or those that wait keep the others out: the caller launches them all at once or
not at all (cooperatively), `steps_of` bounds their number, and where they do not fit the caller takes the two kernels. A
pool's state counts who has come; the chain's first kernel makes it 0.
Bytes: 16 per token read, 4 per item written, 8 per listed step written and read.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import middle_ptx as ptx
from fastimpl.readkv.bar import BAR, COME, CUT, FOUND, NARROW, REST, row_items, search_all
from fastimpl.readkv.lanes_weigh import ADD_TO_BIN, item_logits, log_mass_of_row, squares_of
from fastimpl.readkv.threshold import BINS, arrive, bin_of, item_cost

WARPS = 16
"""Of a program, one to a multiprocessor; `lanes_weigh.weigh_by_lanes` has as many, so that both add up masses in one
order."""

STEPS = (1, 2, 4, 8, 16)
"""Items of a thread."""

SEARCH_WIDE = 512
"""Items at a time where the bracket is wide."""

MEMORY, MEET, WAIT = tl.constexpr(ptx.MEMORY), tl.constexpr(ptx.MEET), tl.constexpr(ptx.WAIT)
CLEAR, FLUSH = tl.constexpr(ptx.clear_text(WARPS)), tl.constexpr(ptx.flush_text(WARPS))
BRACKET, PLACE = tl.constexpr(ptx.Bracket(WARPS).text()), tl.constexpr(ptx.place_text(WARPS))
SEARCH, THREADS = tl.constexpr(ptx.Search(WARPS).text()), tl.constexpr(32 * WARPS)
BRACKET_OPERANDS, PLACE_OPERANDS = tl.constexpr(ptx.Bracket.OPERANDS), tl.constexpr(ptx.PLACE_OPERANDS)
SEARCH_OPERANDS = tl.constexpr(ptx.Search.OPERANDS)
TWO, THREE = tl.constexpr([tl.int32] * 2), tl.constexpr([tl.int32] * 3)


def steps_of(items: int, rows: int, processors: int) -> int | None:
    """The fewest items of a thread with which all programs of rows of ``items`` are resident at once; None: too many.

    Half as many programs where a thread has one item: what they tell each other takes longer than the items.

    >>> steps_of(65536, 4, 132), steps_of(16384, 4, 132), steps_of(1024, 4, 132), steps_of(1 << 20, 4, 132)
    (4, 2, 1, None)
    """
    each = 32 * WARPS
    fit = (n for n in STEPS if -(-items // (each * n)) * rows <= (processors if n > 1 else processors // 2))
    return next(fit, None)


@triton.jit
def bracket_by_lanes(bins, memory, gains, left, levels):
    """Bracket [low, high) of the bar of a pool with these bins, from ``levels`` gains on; low = 0: everything fits."""
    fits = tl.minimum(left, 0x7FFFFFFF).to(tl.int32)
    low, high, total = tl.inline_asm_elementwise(BRACKET, BRACKET_OPERANDS,
                                                 [bins.to(tl.int64), memory, gains.to(tl.int64), levels, fits],
                                                 dtype=THREE, is_pure=False, pack=1)  # fmt: skip
    return tl.where(left >= total.to(tl.int64) * levels, 0, low), high


@triton.jit
def list_steps(
    values, first, row, low, high, gains, steps, own, keys_at, items_at, memory, items, one, last, rows_per_pool,
    levels,
):  # fmt: skip
    """List the one step in low .. high - 1 that each of this thread's items may have; add up those above."""
    here, spent, keys = first * 0, first * 0, ()
    for step in tl.static_range(len(values)):
        item, above = first + step * THREADS, first * 0
        for level in tl.static_range(len(steps)):
            above += ((values[step] * steps[level]).to(tl.int32, bitcast=True) >= high).to(tl.int32)
        gain = tl.load(gains + above, mask=above < levels, other=0.0)  # of the step after those above
        key = tl.where(item < items, (values[step] * gain).to(tl.int32, bitcast=True), 0)
        keys = keys + (key,)
        here += (key >= low).to(tl.int32)
        spent += above * item_cost(item, items, one, last)
    place = tl.inline_asm_elementwise(PLACE, PLACE_OPERANDS,
                                      [here, spent, (own + FOUND + here * 0).to(tl.int64), memory + here * 0],
                                      dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
    number = (row % rows_per_pool).to(tl.int32) * items + first
    for step in tl.static_range(len(values)):
        listed = keys[step] >= low
        tl.store(keys_at + place, keys[step], mask=listed)
        tl.store(items_at + place, number + step * THREADS, mask=listed)
        place += listed.to(tl.int32)


@triton.jit
def resolve_by_lanes(
    keys_at, items_at, importance, gains, left, own, pool, stride, low, high, items, one, last, memory, rows_per_pool,
    minimum, LEVELS: tl.constexpr, W_PAD: tl.constexpr, CLOSE: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """A pool's bar, cut and rest, into its state, when all its listed steps are there."""
    found = tl.load(own + FOUND, cache_modifier=".cg")
    left -= found >> 32
    all_items, rest = items * rows_per_pool, left * 0
    if CLOSE | (low == 1) | (high - low > NARROW):  # an item may have several steps in the bracket
        bar, cut, rest = search_all(importance, gains, pool.to(tl.int32) * rows_per_pool, stride, items, all_items, low,
                                    high, left, minimum, one, last, LEVELS, W_PAD, WIDE)  # fmt: skip
    else:
        bar, cut = tl.inline_asm_elementwise(
            SEARCH, SEARCH_OPERANDS,
            [keys_at.to(tl.int64), items_at.to(tl.int64), (found & 0x7FFFFFFF).to(tl.int32), low, high,
             left.to(tl.int32), items, all_items, one, last, memory],
            dtype=TWO, is_pure=False, pack=1,
        )  # fmt: skip
    tl.store(own + BAR, bar.to(tl.int64))
    tl.store(own + CUT, cut.to(tl.int64))
    tl.store(own + REST, rest)


@triton.jit(
    do_not_specialize=[
        "heads",
        "capacity",
        "items_capacity",
        "tiles",
        "rows_per_pool",
        "cost",
        "minimum",
        "list_capacity",
        "programs",
    ]
)
def allocate_by_lanes(
    logits, masses, lses, importance, bins, lefts, gains, state, listed_keys, listed_items, lengths, heads, capacity,
    items_capacity, tiles, rows_per_pool, cost, minimum, list_capacity, programs, G: tl.constexpr, STEPS: tl.constexpr,
    STEP: tl.constexpr, PAIRED: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    STATE: tl.constexpr, CLOSE: tl.constexpr, WIDE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Importances of THREADS * STEPS items of one row; with the last program of its pool, the pool's bar."""
    row, pool = tl.program_id(1).to(tl.int64), (tl.program_id(1) // rows_per_pool).to(tl.int64)
    memory = tl.inline_asm_elementwise(MEMORY, "=r,r", [tl.program_id(0)], dtype=tl.int32, is_pure=False, pack=1)
    tl.inline_asm_elementwise(CLEAR, "=r,r", [memory], dtype=tl.int32, is_pure=False, pack=1)
    tl.debug_barrier()
    items, one, last = row_items(lengths, row, heads, 0, cost, cost, True, PAIRED)
    left, steps = tl.load(lefts + pool), ()  # what no kernel of the chain writes
    for level in tl.static_range(W_PAD):
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)
    own, own_bins = state + pool * STATE, bins + pool * BINS
    first = tl.program_id(0) * (STEPS * THREADS) + tl.arange(0, THREADS)
    logits, importance_of_row = logits + row * capacity * 8, importance + row * items_capacity
    room = capacity // 2 if PAIRED else capacity
    follow(DEPENDENT)
    words = item_logits(logits, first, room, PAIRED)
    lse, group = log_mass_of_row(masses, row, tiles, STEP), tl.arange(0, 8)
    doubled, values = (), ()
    for g in tl.static_range(8):
        doubled = doubled + (2.0 * tl.sum(tl.where(group == g, lse, 0.0), 0),)
    for step in tl.static_range(STEPS):
        item = first + step * THREADS
        following = words
        if step + 1 < STEPS:
            following = item_logits(logits, item + THREADS, room, PAIRED)
        value = squares_of(words, doubled, G, 8 if PAIRED else 4)
        tl.inline_asm_elementwise(ADD_TO_BIN, "=r,r,r",
                                  [memory + 4 * bin_of(value), item_cost(item, items, one, last)], dtype=tl.int32,
                                  is_pure=False, pack=1)  # fmt: skip
        words, values = following, values + (value,)
    tl.debug_barrier()
    tl.inline_asm_elementwise(FLUSH, "=r,r,l", [memory, own_bins.to(tl.int64)], dtype=tl.int32,
                              is_pure=False, pack=1)  # fmt: skip
    tl.inline_asm_elementwise(MEET, "=r,l", [(own + COME).to(tl.int64)], dtype=tl.int32, is_pure=False, pack=1)
    for step in tl.static_range(STEPS):
        item = first + step * THREADS
        tl.store(importance_of_row + item, values[step], mask=item < items)
    if tl.program_id(0) == 0:
        tl.store(lses + row * 8 + group, lse)
    tl.inline_asm_elementwise(WAIT, "=r,l,r", [(own + COME).to(tl.int64), programs], dtype=tl.int32, is_pure=False,
                              pack=1)  # fmt: skip
    low, high = bracket_by_lanes(own_bins, memory, gains + minimum, left, LEVELS - minimum)
    if low > 0:  # else the bar is 0, as it was made by the chain's first kernel
        keys_at, items_at = listed_keys + pool * list_capacity, listed_items + pool * list_capacity
        list_steps(values, first, row, low, high, gains + minimum, steps, own, keys_at, items_at, memory, items, one,
                   last, rows_per_pool, LEVELS - minimum)  # fmt: skip
        if arrive(own, programs):
            resolve_by_lanes(keys_at, items_at, importance, gains, left, own, pool, items_capacity, low, high, items,
                             one, last, memory, rows_per_pool, minimum, LEVELS, W_PAD, CLOSE, WIDE)  # fmt: skip
