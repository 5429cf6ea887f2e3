"""The first half of the value pass: depths of a program's tokens, and a list of them per depth in shared memory.

    a lane has STEPS pairs of tokens --bar--> depths --running counts--> its places in five lists

Lists: depth 5 to 8 together, 4, 3, 2, 1, each filled up to whole groups of 16; depth 0 is in none. A list is in the
order of warps, lanes, tokens: it depends on the depths alone. Pairs go round the programs by runs of 32.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import value_ptx as ptx
from fastimpl.readkv.bar import BAR, CUT, REST

FOUR = tl.constexpr([tl.int32] * 4)
LISTS_AT, COUNTS_AT = tl.constexpr(ptx.LISTS_AT), tl.constexpr(ptx.TABLE_BYTES)
DEPTH_SHIFT = tl.constexpr(ptx.TOKEN_BITS)
WARP, RUNNING = tl.constexpr(ptx.warp_text()), tl.constexpr(ptx.running_text(3))
THREE = tl.constexpr([tl.int32] * 3)
LOAD_SHARED, STORE_COUNTS = tl.constexpr(ptx.LOAD_SHARED), tl.constexpr(ptx.STORE_COUNTS)
STORE_ENTRY, STORE_PAIR = tl.constexpr(ptx.STORE_ENTRY), tl.constexpr(ptx.STORE_PAIR)


@triton.jit
def load_shared(at):
    """Four words of shared memory."""
    return tl.inline_asm_elementwise(LOAD_SHARED, "=r,=r,=r,=r,r", [at], dtype=FOUR, is_pure=False, pack=1)


@triton.jit
def depths_of(value, steps, bar, cut, rest, item, inside, minimum, LEVELS: tl.constexpr):
    """Depths of items, one per lane; 0 where there is none. The steps' gains fall, so one step equals the bar at most."""
    before = (item < cut) | ((item == cut) & (rest > 0))
    own = bar - (before & (bar > 0)).to(tl.int32)
    depth = item * 0 + minimum
    for level in tl.static_range(LEVELS):
        depth += ((value * steps[level]).to(tl.int32, bitcast=True) > own).to(tl.int32)
    return tl.where(inside, depth, 0)


@triton.jit
def depths_of_tokens(
    importance, gains, state, depths, row, part, parts, length, capacity, items_capacity, rows_per_pool, minimum,
    thread, LEVELS: tl.constexpr, STATE: tl.constexpr, STEPS: tl.constexpr, WARPS: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Entries of a lane's STEPS pairs of tokens (a token, its depth above) and the depths they are listed by.

    Stores the depths. A token past the end is listed beside its neighbour, with depth 0.
    """
    pool = state + row // rows_per_pool * STATE
    bar, cut, rest = (
        tl.load(pool + BAR).to(tl.int32),
        tl.load(pool + CUT).to(tl.int32),
        tl.load(pool + REST).to(tl.int32),
    )
    steps = ()
    for level in tl.static_range(LEVELS):
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)
    base = (row % rows_per_pool).to(tl.int32) * ((length + PAIRED) >> PAIRED)
    values = ()
    for step in tl.static_range(STEPS):
        pair = ((step * WARPS + (thread >> 5)) * parts + part) * 32 + (thread & 31)
        at = importance + row * items_capacity
        if PAIRED:
            values = values + (tl.load(at + pair, mask=2 * pair < length, other=0.0),)
        else:
            values = values + (tl.load(at + 2 * pair, mask=2 * pair < length, other=0.0),)
            values = values + (tl.load(at + 2 * pair + 1, mask=2 * pair + 1 < length, other=0.0),)
    entries, listed = (), ()
    for step in tl.static_range(STEPS):
        pair = ((step * WARPS + (thread >> 5)) * parts + part) * 32 + (thread & 31)
        inside, both = 2 * pair < length, 2 * pair + 1 < length
        if PAIRED:
            first = depths_of(values[step], steps, bar, cut, rest, base + pair, inside, minimum, LEVELS)
            second = tl.where(both, first, 0)
        else:
            item = base + 2 * pair
            first = depths_of(values[2 * step], steps, bar, cut, rest, item, inside, minimum, LEVELS)
            second = depths_of(values[2 * step + 1], steps, bar, cut, rest, item + 1, both, minimum, LEVELS)
        at = (depths + row * capacity + 2 * pair).to(tl.pointer_type(tl.int16))
        tl.store(at, (first | (second << 8)).to(tl.int16), mask=inside)
        entries = entries + (2 * pair | (first << DEPTH_SHIFT), (2 * pair + 1) | (second << DEPTH_SHIFT))
        listed = listed + (first, first if PAIRED else tl.where(both, second, first))
    return entries, listed


@triton.jit
def in_list(depth, KIND: tl.constexpr):
    """Whether a depth's tokens go into a list: 0 is that of depth 5 and more, then 4, 3, 2, 1."""
    return (depth > 4).to(tl.int32) if KIND == 0 else (depth == 5 - KIND).to(tl.int32)


@triton.jit
def write_lists(entries, listed, memory, thread, warp, STEPS: tl.constexpr, WARPS: tl.constexpr, PAIRED: tl.constexpr):
    """Write the lists; how many entries each of the five has, and where it begins, in entries."""
    own = ()
    for kind in tl.static_range(5):
        count = thread * 0
        for step in tl.static_range(STEPS):
            count += in_list(listed[2 * step], kind) + in_list(listed[2 * step + 1], kind)
        own = own + (count,)
    words = (own[0] | (own[1] << 16), own[2] | (own[3] << 16), own[4])
    running = tl.inline_asm_elementwise(RUNNING, "=&r,=&r,=&r,r,r,r", words, dtype=THREE, is_pure=True, pack=1)
    at = memory + COUNTS_AT + (thread >> 5) * 16
    tl.inline_asm_elementwise(STORE_COUNTS, "=r,r,r,r,r,r", (at,) + running + (((thread & 31) == 31).to(tl.int32),),
                              dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
    tl.debug_barrier()
    t0, t1, t2 = warp * 0, warp * 0, warp * 0
    b0, b1, b2 = warp * 0, warp * 0, warp * 0
    for other in tl.static_range(WARPS):
        c0, c1, c2, c3 = load_shared(memory + (COUNTS_AT + 16 * other))
        t0, t1, t2 = t0 + c0, t1 + c1, t2 + c2
        b0 += tl.where(other < warp, c0, 0)
        b1 += tl.where(other < warp, c1, 0)
        b2 += tl.where(other < warp, c2, 0)
    counts = (t0 & 0xFFFF, t0 >> 16, t1 & 0xFFFF, t1 >> 16, t2)
    e0, e1, e2 = running[0] - words[0] + b0, running[1] - words[1] + b1, running[2] - words[2] + b2
    before = (e0 & 0xFFFF, e0 >> 16, e1 & 0xFFFF, e1 >> 16, e2)
    starts, start = (), warp * 0
    for kind in tl.static_range(5):
        starts = starts + (start,)
        at = memory + LISTS_AT + 4 * (start + before[kind])
        for step in tl.static_range(STEPS):
            one, two = in_list(listed[2 * step], kind), in_list(listed[2 * step + 1], kind)
            if PAIRED:
                tl.inline_asm_elementwise(STORE_PAIR, "=r,r,r,r,r", [at, entries[2 * step], entries[2 * step + 1], one],
                                          dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
            else:
                store_entry(at, entries[2 * step], one)
                store_entry(at + 4 * one, entries[2 * step + 1], two)
            at += 4 * (one + two)
        end = (start + counts[kind] + 15) & -16
        at = start + counts[kind] + thread
        store_entry(memory + LISTS_AT + 4 * at, thread * 0, (at < end).to(tl.int32))  # groups are read whole
        start = end
    tl.debug_barrier()
    return counts, starts


@triton.jit
def store_entry(at, entry, wanted):
    """Write an entry where it is wanted."""
    tl.inline_asm_elementwise(STORE_ENTRY, "=r,r,r,r", [at, entry, wanted], dtype=tl.int32, is_pure=False, pack=1)
