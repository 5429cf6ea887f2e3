"""The first half of the value pass: depths of a program's tokens, and a list of them per depth in shared memory.

    a lane has STEPS pairs of tokens in a run --bar--> depths --running counts--> its places in five lists

Lists: depth 5 to 8 together, 4, 3, 2, 1, each filled up to whole groups of 16; depth 0 is in none. A list is in the
order of tokens, so that a group's lie together in memory. A warp has a run of 64 STEPS tokens; runs go round the
programs.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import value_ptx as ptx
from fastimpl.readkv.bar import BAR, CUT, REST
from fastimpl.readkv.lanes import load_shared

LISTS_AT, COUNTS_AT = tl.constexpr(ptx.LISTS_AT), tl.constexpr(ptx.TABLE_BYTES)
TOKEN_BITS = tl.constexpr(ptx.TOKEN_BITS)
WARP, RUNNING = tl.constexpr(ptx.warp_text()), tl.constexpr(ptx.running_text(3))
THREE = tl.constexpr([tl.int32] * 3)
STORE_COUNTS = tl.constexpr(ptx.STORE_COUNTS)
PLACES_AT, LOAD_WORD = tl.constexpr(ptx.PLACES_AT), tl.constexpr(ptx.LOAD_WORD)
ITEMS = tl.constexpr([ptx.items_text(1 << size) for size in range(5)])
ITEMS_OPERANDS = tl.constexpr([",".join(["=&f"] * (1 << size) + ["l", "r"]) for size in range(5)])
ITEMS_TYPES = tl.constexpr([[tl.float32] * (1 << size) for size in range(5)])
STORE_DEPTHS = tl.constexpr([ptx.store_depths_text(1 << size) for size in range(4)])
STORE_DEPTHS_OPERANDS = tl.constexpr(["=r,l,r" + ",r" * max(1, (1 << size) // 2) for size in range(4)])
DEPTHS = tl.constexpr([ptx.depths_text(levels) for levels in range(1, 9)])
DEPTHS_OPERANDS = tl.constexpr(["=&r,f,r,r" + ",f" * levels for levels in range(1, 9)])
STORE_ENTRY, STORE_PAIR = tl.constexpr(ptx.STORE_ENTRY), tl.constexpr(ptx.STORE_PAIR)


@triton.jit
def depths_of(value, steps, bar, last, item, inside, minimum):
    """Depths of items, one per lane; 0 where there is none. The steps' gains fall, so one step equals the bar at most."""
    own = tl.where(item < last, bar - 1, bar)
    depth = tl.inline_asm_elementwise(DEPTHS[len(steps) - 1], DEPTHS_OPERANDS[len(steps) - 1],
                                      (value, own, item * 0 + minimum) + steps, dtype=tl.int32, is_pure=True,
                                      pack=1)  # fmt: skip
    return tl.where(inside, depth, 0)


@triton.jit
def entry_of(token, depth, inside):
    """A token's entry."""
    return token | (depth << TOKEN_BITS) | tl.where(inside, -0x80000000, 0)


@triton.jit
def depths_of_tokens(
    importance, gains, state, depths, row, part, parts, length, capacity, items_capacity, rows_per_pool, minimum,
    thread, LEVELS: tl.constexpr, STATE: tl.constexpr, STEPS: tl.constexpr, WARPS: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Entries of a lane's STEPS pairs of tokens and the depths they are listed by.

    Stores the depths. A token past the end is listed beside its neighbour, with depth 0.
    """
    pool = state + row // rows_per_pool * STATE
    bar, cut, rest = (
        tl.load(pool + BAR).to(tl.int32),
        tl.load(pool + CUT).to(tl.int32),
        tl.load(pool + REST).to(tl.int32),
    )
    base = (row % rows_per_pool).to(tl.int32) * ((length + PAIRED) >> PAIRED)
    last = tl.where(bar > 0, cut + (rest > 0).to(tl.int32), 0) - base  # before this one, equals of the bar are bought
    steps = ()
    for level in tl.static_range(LEVELS):
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)
    pair = (((thread >> 5) * parts + part) * 32 + (thread & 31)) * STEPS  # a lane's first
    live = (2 * pair < length).to(tl.int32)
    PER: tl.constexpr = 1 if PAIRED else 2
    VALUES: tl.constexpr = STEPS * PER  # 1, 2, 4, 8, 16
    SIZE: tl.constexpr = (VALUES > 1) + (VALUES > 2) + (VALUES > 4) + (VALUES > 8)
    at = (importance + row * items_capacity + pair * PER).to(tl.int64)
    values = tl.inline_asm_elementwise(ITEMS[SIZE], ITEMS_OPERANDS[SIZE], [at, live], dtype=ITEMS_TYPES[SIZE],
                                       is_pure=False, pack=1)  # fmt: skip
    entries, listed, words = (), (), ()
    for step in tl.static_range(STEPS):
        token = 2 * (pair + step)
        inside, both = token < length, token + 1 < length
        if PAIRED:
            first = depths_of(values[step], steps, bar, last, pair + step, inside, minimum)
            second = tl.where(both, first, 0)
        else:
            first = depths_of(values[2 * step], steps, bar, last, token, inside, minimum)
            second = depths_of(values[2 * step + 1], steps, bar, last, token + 1, both, minimum)
        words = words + (first | (second << 8),)
        entries = entries + (entry_of(token, first, inside), entry_of(token + 1, second, both))
        listed = listed + (first, first if PAIRED else tl.where(both, second, first))
    store_depths((depths + row * capacity + 2 * pair).to(tl.int64), words, live, STEPS)
    return entries, listed


@triton.jit
def store_depths(at, words, live, STEPS: tl.constexpr):
    """Depths of a lane's tokens, a byte each, two of them in a word."""
    if STEPS == 1:
        packed = words
    else:
        packed = ()
        for i in tl.static_range(STEPS // 2):
            packed = packed + (words[2 * i] | (words[2 * i + 1] << 16),)
    SIZE: tl.constexpr = (STEPS > 1) + (STEPS > 2) + (STEPS > 4)
    tl.inline_asm_elementwise(STORE_DEPTHS[SIZE], STORE_DEPTHS_OPERANDS[SIZE], (at, live) + packed, dtype=tl.int32,
                              is_pure=False, pack=1)  # fmt: skip


@triton.jit
def count_lists(listed, thread, STEPS: tl.constexpr, PAIRED: tl.constexpr):
    """How many of a lane's entries each list takes: words of two counts, of depth 5 and more | 4, 3 | 2, 1."""
    counts = thread * 0
    for step in tl.static_range(STEPS):
        counts += 1 << (5 * tl.minimum(listed[2 * step], 5))  # five bits each: at most 16 entries
        if not PAIRED:
            counts += 1 << (5 * tl.minimum(listed[2 * step + 1], 5))
    found = ()
    for kind in tl.static_range(5):
        count = (counts >> (25 - 5 * kind)) & 31
        found = found + (count * 2 if PAIRED else count,)
    return found[0] | (found[1] << 16), found[2] | (found[3] << 16), found[4]


@triton.jit
def write_lists(entries, listed, memory, thread, warp, STEPS: tl.constexpr, WARPS: tl.constexpr, PAIRED: tl.constexpr):
    """Write the lists; how many entries each of the five has, and where it begins, in entries."""
    words = count_lists(listed, thread, STEPS, PAIRED)
    running = tl.inline_asm_elementwise(RUNNING, "=&r,=&r,=&r,r,r,r", words, dtype=THREE, is_pure=True, pack=1)
    at = memory + COUNTS_AT + (thread >> 5) * 16
    tl.inline_asm_elementwise(STORE_COUNTS, "=r,r,r,r,r,r", (at,) + running + (((thread & 31) == 31).to(tl.int32),),
                              dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
    tl.debug_barrier()
    t0, t1, t2 = warp * 0, warp * 0, warp * 0
    b0, b1, b2 = warp * 0, warp * 0, warp * 0
    for other in tl.static_range(WARPS):
        c0, c1, c2, _ = load_shared(memory + (COUNTS_AT + 16 * other))
        t0, t1, t2 = t0 + c0, t1 + c1, t2 + c2
        b0 += tl.where(other < warp, c0, 0)
        b1 += tl.where(other < warp, c1, 0)
        b2 += tl.where(other < warp, c2, 0)
    counts = (t0 & 0xFFFF, t0 >> 16, t1 & 0xFFFF, t1 >> 16, t2)
    e0, e1, e2 = running[0] - words[0] + b0, running[1] - words[1] + b1, running[2] - words[2] + b2
    before = (e0 & 0xFFFF, e0 >> 16, e1 & 0xFFFF, e1 >> 16, e2)
    starts, start = (), warp * 0
    own = memory + PLACES_AT + thread * 4  # where a lane's next entry of each list goes
    for kind in tl.static_range(5):
        starts = starts + (start,)
        store_entry(own + kind * (128 * WARPS), memory + LISTS_AT + 4 * (start + before[kind]), thread * 0 + 1)
        end = (start + counts[kind] + 15) & -16
        at = start + counts[kind] + thread
        store_entry(memory + LISTS_AT + 4 * at, thread * 0, (at < end).to(tl.int32))  # groups are read whole
        start = end
    taken = thread * 0
    for step in tl.static_range(STEPS):
        taken = place_entry(entries, listed, own, taken, 2 * step, WARPS, PAIRED)
        if not PAIRED:
            taken = place_entry(entries, listed, own, taken, 2 * step + 1, WARPS, PAIRED)
    tl.debug_barrier()
    return counts, starts


@triton.jit
def place_entry(entries, listed, own, taken, AT: tl.constexpr, WARPS: tl.constexpr, PAIRED: tl.constexpr):
    """Write an entry, or a pair of them, to its list; ``taken`` counts a lane's entries (pairs) so far, 5 bits a depth."""
    depth = tl.minimum(listed[AT], 5)
    at = tl.inline_asm_elementwise(LOAD_WORD, "=r,r", [own + (5 - tl.maximum(depth, 1)) * (128 * WARPS)],
                                   dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
    at += ((taken >> (5 * depth)) & 31) * (8 if PAIRED else 4)
    if PAIRED:
        tl.inline_asm_elementwise(STORE_PAIR, "=r,r,r,r,r", [at, entries[AT], entries[AT + 1], depth], dtype=tl.int32,
                                  is_pure=False, pack=1)  # fmt: skip
    else:
        store_entry(at, entries[AT], depth)
    return taken + (1 << (5 * depth))


@triton.jit
def store_entry(at, entry, wanted):
    """Write an entry where it is wanted."""
    tl.inline_asm_elementwise(STORE_ENTRY, "=r,r,r,r", [at, entry, wanted], dtype=tl.int32, is_pure=False, pack=1)
