"""The fast reader's second pass: value depths, and the mix of value prefixes; every depth 0..8 exactly.

Mirrors the value decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.value_mix_kernel` is the plain twin.

    mix_by_lanes   grid (parts, rows), WARPS warps    a run of 64 STEPS tokens to a warp; runs go round the programs
        importance --bar--> depths --counts--> a list of tokens per depth, in shared memory    (`lanes_lists.py`)
        groups of 16 tokens of a list go round the warps: planes, weights --products--> sums   (`lanes_groups.py`)
        sums of the warps, added in shared memory --> mix [8, d], in the order of `store_mix`

Lists: depth 5 to 8 together (a table of whole codes), 4 (a table of two tokens' codes), 3, 2, 1 (4, 2, 1 slots); depth 0
costs nothing. Weights are float16 times 4096. A group's words and logits are asked for once those of the group before
are packed, and arrive while those are multiplied. Sums go over a list in its order, so results do not depend on how
programs are scheduled. Bytes: 32 per pair of planes and token, 16 per token for its logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import lanes_ptx, value_ptx
from fastimpl.readkv.lanes import LAST, load_shared, zero_sums
from fastimpl.readkv.lanes_groups import (
    add_pair_codes,
    add_slots,
    add_whole_codes,
    item_loads,
    item_weights,
    pair_codes,
    slots_of,
    table_addresses,
    whole_codes,
)
from fastimpl.readkv.lanes_lists import LISTS_AT, TOKEN_BITS, WARP, depths_of_tokens, write_lists

FIRST = tl.constexpr([1.0 / lanes_ptx.last_factor(i) for i in range(32)])
INDEX = tl.constexpr([[c % 8 * 4 + c // 8 * 2 + column for c in range(16)] for column in range(2)])
"""Which sum has bit c, by column."""

FOUR_SUMS = tl.constexpr([tl.float32] * 4)
PAIRS_AT = tl.constexpr(value_ptx.PAIRS_AT)
SUM_BYTES = tl.constexpr(value_ptx.SUM_BYTES)
STORE_SUMS, LOAD_SUMS = tl.constexpr(value_ptx.STORE_SUMS), tl.constexpr(value_ptx.LOAD_SUMS)
STORE_FOUR = tl.constexpr(value_ptx.STORE_FOUR)
MEMORY = tl.constexpr(value_ptx.memory_text(value_ptx.WARPS))
FILL = tl.constexpr(value_ptx.fill_text(value_ptx.WARPS))
WARPS = tl.constexpr(value_ptx.WARPS)
ASK = tl.constexpr(value_ptx.ASK)
TURNS = tl.constexpr([1, 1, 1, 2, 2])
"""Groups of a list at a time."""


@triton.jit
def add_list(
    lists, count, turn, source, coefficients, tables, shifted_lse, sums,
    DEPTH: tl.constexpr, W: tl.constexpr, WORDS: tl.constexpr, PAIRED: tl.constexpr, TURN: tl.constexpr,
):  # fmt: skip
    """Sums after this warp's groups of one list: those from ``turn`` on, every WARPS-th. 36 sums below depth 4, else 32.

    TURN groups at a time, so that the loads of as many are on their way.
    """
    groups = (count + 15) >> 4
    SLOTS: tl.constexpr = 2 ** (DEPTH - 1) if DEPTH < 4 else 0
    SIZE: tl.constexpr = 4 + 4 * ((W + 1) // 2 if DEPTH == 5 else (DEPTH + 1) // 2)
    if turn < groups:
        factors, entries, found = (), (), ()
        for slot in tl.static_range(SLOTS):
            factors = factors + (tl.load(coefficients + DEPTH * 8 + slot),)
        for i in tl.static_range(TURN):
            some = load_shared(lists + tl.minimum(turn + i * WARPS, groups - 1) * 64)
            entries, found = entries + some, found + item_loads(some, source, DEPTH, W, WORDS, PAIRED)
        for group in range(turn, groups, TURN * WARPS):
            weights, packed, also = (), (), ()
            for i in tl.static_range(TURN):
                lse = shifted_lse
                if i > 0:
                    beyond = tl.maximum(group + (i * WARPS + 1) - groups, 0).to(tl.float32)
                    lse = shifted_lse + beyond * 1e30  # past the last group the weights are 0
                mine, own = found[i * SIZE : i * SIZE + SIZE], entries[i * 4 : i * 4 + 4]
                weights = weights + item_weights(mine, own, lse)
                if DEPTH == 5:
                    packed, also = whole_codes(mine, W), table_addresses(own, tables)
                elif DEPTH == 4:
                    packed = packed + pair_codes(mine)
                else:
                    slots0, slots1 = slots_of(mine, DEPTH)
                    packed, also = packed + slots0, also + slots1
            following, ahead = (), ()
            for i in tl.static_range(TURN):
                some = load_shared(lists + tl.minimum(group + (TURN + i) * WARPS, groups - 1) * 64)
                following, ahead = following + some, ahead + item_loads(some, source, DEPTH, W, WORDS, PAIRED)
            entries, found = following, ahead
            for i in tl.static_range(TURN):
                w0, w1 = weights[2 * i], weights[2 * i + 1]
                if DEPTH == 5:
                    sums = add_whole_codes(packed, also, w0, w1, sums)
                elif DEPTH == 4:
                    sums = add_pair_codes(packed[i * 16 : i * 16 + 16], tables + PAIRS_AT, w0, w1, sums)
                else:
                    sums = add_slots(packed[i * SLOTS : i * SLOTS + SLOTS], also[i * SLOTS : i * SLOTS + SLOTS], w0, w1,
                                     factors, sums, SLOTS)  # fmt: skip
    return sums


@triton.jit
def ask_ahead(planes, part, parts, length, thread, STEPS: tl.constexpr, WORDS: tl.constexpr):
    """Bring the first two planes of a lane's tokens to the L2 cache."""
    first = 2 * STEPS * (((thread >> 5) * parts + part) * 32 + (thread & 31))
    for i in tl.static_range(2 * STEPS):
        ask(planes + (first + i).to(tl.int64) * WORDS, first + i < length)


@triton.jit
def ask_deeper(planes, entries, listed, capacity, STEPS: tl.constexpr, WORDS: tl.constexpr, W: tl.constexpr):
    """Bring what more is read of a lane's tokens to the L2 cache: a list after the other would wait for it."""
    for i in tl.static_range(2 * STEPS):
        at = planes + (entries[i] & ((1 << TOKEN_BITS) - 1)).to(tl.int64) * WORDS
        for pair in tl.static_range(1, (W + 1) // 2):
            ask(at + pair * capacity.to(tl.int64) * WORDS, listed[i] > 2 * pair)


@triton.jit
def ask(at, wanted):
    """Bring a sector to the L2 cache where it is wanted."""
    tl.inline_asm_elementwise(ASK, "=r,l,r", [at.to(tl.int64), wanted.to(tl.int32)], dtype=tl.int32, is_pure=False,
                              pack=1)  # fmt: skip


@triton.jit(
    do_not_specialize=[
        "heads",
        "capacity",
        "items_capacity",
        "rows_per_pool",
        "minimum",
        "parts",
        "group_size",
    ]
)
def mix_by_lanes(
    planes, logits, lses, importance, gains, state, coefficients, prefix_tables, lengths, depths, mixes, heads,
    capacity, items_capacity, rows_per_pool, minimum, parts, group_size,
    W: tl.constexpr, D: tl.constexpr, STATE: tl.constexpr, STEPS: tl.constexpr, PAIRED: tl.constexpr,
    AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, and its mix [8, d]. AHEAD: the first two planes of all are read in any case."""
    WORDS: tl.constexpr = D // 16
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    thread = tl.arange(0, 32 * WARPS)
    group, quad = (thread & 31) >> 2, thread & 3
    memory = tl.inline_asm_elementwise(MEMORY, "=r,r", [part], dtype=tl.int32, is_pure=False, pack=1)
    warp = tl.inline_asm_elementwise(WARP, "=r,r", [part], dtype=tl.int32, is_pure=True, pack=1)
    if W >= 4:
        tl.inline_asm_elementwise(FILL, "=r,l,r", [prefix_tables.to(tl.int64), memory], dtype=tl.int32,
                                  is_pure=False, pack=1)  # fmt: skip
    length = tl.load(lengths + row // heads)  # no kernel of the chain writes the lengths
    planes += row * ((W + 1) // 2) * capacity * WORDS
    if AHEAD:
        ask_ahead(planes, part, parts, length, thread, STEPS, WORDS)
    follow(DEPENDENT)
    lse = tl.where(group < group_size, tl.load(lses + row * 8 + group) - 12.0, 1e30)  # no query head, no weight
    entries, listed = depths_of_tokens(importance, gains, state, depths, row, part, parts, length, capacity,
                                       items_capacity, rows_per_pool, minimum, thread, W, STATE, STEPS, WARPS,
                                       PAIRED)  # fmt: skip
    if AHEAD:
        ask_deeper(planes, entries, listed, capacity, STEPS, WORDS, W)
    counts, starts = write_lists(entries, listed, memory, thread, warp, STEPS, WARPS, PAIRED)
    word = planes + tl.minimum(group, WORDS - 1)
    source = ((logits + row * capacity * 8 + group).to(tl.int64),)
    for pair in tl.static_range((W + 1) // 2):
        source = source + ((word + pair * capacity.to(tl.int64) * WORDS).to(tl.int64),)
    zero = thread.to(tl.float32) * 0.0
    sums = zero_sums(zero, 32)
    lists = memory + LISTS_AT + quad * 16
    taken = warp * 0
    for kind in tl.static_range(2):
        if 5 - kind <= W:
            sums = add_list(lists + 4 * starts[kind], counts[kind], (warp - taken) & (WARPS - 1), source, coefficients,
                            memory, lse, sums, 5 - kind, W, WORDS, PAIRED, 1)  # fmt: skip
        taken += (counts[kind] + 15) >> 4
    raw = ()
    for i in tl.static_range(32):
        raw = raw + (sums[i] * FIRST[i],)
    sums = raw + zero_sums(zero, 4)
    for kind in tl.static_range(2, 5):
        if 5 - kind <= W:
            sums = add_list(lists + 4 * starts[kind], counts[kind], (warp - taken) & (WARPS - 1), source, coefficients,
                            memory, lse, sums, 5 - kind, W, WORDS, PAIRED, TURNS[kind])  # fmt: skip
        taken += (counts[kind] + 15) >> 4
    store_mix(sums, memory + LISTS_AT, mixes + (row * parts + part) * 8 * D, thread, WORDS)


@triton.jit
def store_mix(sums, memory, out, thread, WORDS: tl.constexpr):
    """Sums of all warps, as mix: head 2q + i and channel 16g + 4v + r at ((4i + v) * 4 + q) * d / 4 + 4g + r."""
    tl.debug_barrier()
    lane = (thread & 3) * 8 + ((thread & 31) >> 2)
    for column in tl.static_range(2):
        for quarter in tl.static_range(4):
            values = ()
            for c in tl.static_range(4):
                taken = sums[32 + column] if 4 * quarter + c != 15 else sums[32] * 0.0
                value = sums[INDEX[column][4 * quarter + c]] * LAST[INDEX[column][4 * quarter + c]] - taken
                values = values + (value * (1.0 / 4096.0),)
            at = memory + (thread >> 5) * SUM_BYTES + (column * 4 + quarter) * 512 + lane * 16
            tl.inline_asm_elementwise(STORE_SUMS, "=r,r,f,f,f,f", (at,) + values, dtype=tl.int32, is_pure=False, pack=1)
    tl.debug_barrier()
    UNITS: tl.constexpr = 32 * WORDS
    for first in tl.static_range(0, UNITS, 32 * WARPS):
        unit = first + thread
        lane = unit // WORDS % 4 * 8 + unit % WORDS
        at = memory + unit // (4 * WORDS) * 512 + lane * 16
        a, b, c, d = load_sums(at)
        for other in tl.static_range(1, WARPS):
            e, f, g, h = load_sums(at + other * SUM_BYTES)
            a, b, c, d = a + e, b + f, c + g, d + h
        to = (out + unit * 4).to(tl.int64)
        tl.inline_asm_elementwise(STORE_FOUR, "=r,l,f,f,f,f,r", [to, a, b, c, d, (unit < UNITS).to(tl.int32)],
                                  dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip


@triton.jit
def load_sums(at):
    """Four sums in shared memory."""
    return tl.inline_asm_elementwise(LOAD_SUMS, "=f,=f,=f,=f,r", [at], dtype=FOUR_SUMS, is_pure=False, pack=1)
