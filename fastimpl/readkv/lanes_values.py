"""The fast reader's second pass: value depths, and the mix of value prefixes; every depth 0..8 exactly.

Mirrors the value decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.value_mix_kernel` is the plain twin.

    mix_by_lanes   grid (parts, rows), 1 warp    every parts-th run of 32 tokens, ``chunk`` tokens at most
        importance --bar--> depths --ballots--> a list of tokens per depth --planes, products--> mix [8, d]

Lists: depth 5 to 8 together (whole codes and a table), 4, 3, 2, 1 (8, 4, 2, 1 slots); depth 0 costs nothing. Weights
are float16 times 4096. Sums go over a list in the order of the tokens, so results do not depend on how programs are
scheduled. Bytes: 32 per pair of planes and token, 16 per token for its logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import lanes_ptx as ptx
from fastimpl.readkv.bar import BAR, CUT, REST
from fastimpl.readkv.lanes import (
    FOUR,
    LAST,
    LOAD_FOUR,
    SUMS,
    add_bits_and_ones,
    high_halves,
    low_halves,
    pack_half,
    times_half,
    zero_sums,
)

TABLE, TABLE_OPERANDS = tl.constexpr(ptx.table_text()), tl.constexpr(ptx.table_constraints())
FILL = tl.constexpr(ptx.fill_text())
FIRST = tl.constexpr([1.0 / ptx.last_factor(i) for i in range(32)])
INDEX = tl.constexpr([[c % 8 * 4 + c // 8 * 2 + column for c in range(16)] for column in range(2)])
"""Which sum has bit c, by column."""

STORE_FOUR = tl.constexpr(
    "{.reg .pred p; setp.ne.u32 p, $6, 0; @p st.global.v4.f32 [$1], {$2,$3,$4,$5}; mov.b32 $0, 0;}"
)
PLACES, PLACES_OPERANDS = tl.constexpr(ptx.places_text(5)), tl.constexpr(",".join(["=&r"] * 6 + ["r"] * 6))
PLACES_TYPES = tl.constexpr([tl.int32] * 6)
TOKEN_BITS, DEPTH_SHIFT = tl.constexpr((1 << 27) - 1), tl.constexpr(27)
"""A list's entry: a token, and its depth above."""


@triton.jit
def item_loads(
    lists, first, planes, logits, pair_stride, lane, DEPTH: tl.constexpr, W: tl.constexpr, WORDS: tl.constexpr
):
    """Start the loads of a lane's four tokens: list entries, logits, words of each pair of planes that are read.

    DEPTH 5 stands for 5 and more. A list ends in entries of depth 0, whose logit is -inf.
    """
    quad, group = lane & 3, lane >> 2
    at = (lists + first + quad * 4).to(tl.int64)
    entries = tl.inline_asm_elementwise(LOAD_FOUR, "=r,=r,=r,=r,l", [at], dtype=FOUR, is_pure=False, pack=1)
    found = ()
    PAIRS: tl.constexpr = (W + 1) // 2 if DEPTH == 5 else (DEPTH + 1) // 2
    for k in tl.static_range(4):
        token, depth = entries[k] & TOKEN_BITS, entries[k] >> DEPTH_SHIFT
        logit = tl.load(logits + token.to(tl.int64) * 8 + group, mask=depth > 0, other=float("-inf"))
        found = found + (logit.to(tl.float32), entries[k])
        for pair in tl.static_range(PAIRS):
            at_word = planes + pair * pair_stride + token.to(tl.int64) * WORDS + group
            if WORDS == 8 and (DEPTH < 5 or pair < 3):
                word = tl.load(at_word)
            else:
                word = tl.load(at_word, mask=(2 * pair < depth) & (group < WORDS), other=0)
            found = found + (word,)
    return found


@triton.jit
def item_weights(found, shifted_lse, PAIRS: tl.constexpr):
    """A lane's four weights times 4096 as two words of float16."""
    a, b = tl.exp2(found[0] - shifted_lse), tl.exp2(found[2 + PAIRS] - shifted_lse)
    c, d = tl.exp2(found[4 + 2 * PAIRS] - shifted_lse), tl.exp2(found[6 + 3 * PAIRS] - shifted_lse)
    return pack_half(a, b), pack_half(c, d)


@triton.jit
def plane_words(found, plane, PAIRS: tl.constexpr):
    """Bits of one plane of a lane's four tokens, as the products take them."""
    at: tl.constexpr = 2 + plane // 2
    step: tl.constexpr = 2 + PAIRS
    if plane % 2 == 0:
        return low_halves(found[at], found[step + at]), low_halves(found[2 * step + at], found[3 * step + at])
    return high_halves(found[at], found[step + at]), high_halves(found[2 * step + at], found[3 * step + at])


@triton.jit
def add_whole_codes(found, w0, w1, tables, sums, W: tl.constexpr):
    """32 sums after 16 tokens of depth 5 to 8."""
    PAIRS: tl.constexpr = (W + 1) // 2
    first, second = (), ()
    for plane in tl.static_range(8):
        if plane < 2 * PAIRS:
            x0, x1 = plane_words(found, plane, PAIRS)
        else:
            x0, x1 = found[1] * 0, found[1] * 0
        first = first + (x0,)
        second = second + (x1,)
    own = ()
    for k in tl.static_range(4):
        depth = tl.maximum(found[(2 + PAIRS) * k + 1] >> DEPTH_SHIFT, 5)
        own = own + (tables + (tl.minimum(depth, 8) - 5) * 512,)
    return tl.inline_asm_elementwise(TABLE, TABLE_OPERANDS, first + second + own + (w0, w1) + sums, dtype=SUMS,
                                     is_pure=True, pack=1)  # fmt: skip


@triton.jit
def slots_of(found, DEPTH: tl.constexpr):
    """Words of the slots of tokens of one depth, 1 to 4: its planes, then products of three of them."""
    PAIRS: tl.constexpr = (DEPTH + 1) // 2
    a0, a1 = plane_words(found, 0, PAIRS)
    slots0, slots1 = (a0,), (a1,)
    if DEPTH >= 2:
        b0, b1 = plane_words(found, 1, PAIRS)
        slots0, slots1 = (a0, b0), (a1, b1)
    if DEPTH >= 3:
        c0, c1 = plane_words(found, 2, PAIRS)
        slots0, slots1 = (a0, b0, c0, a0 ^ b0 ^ c0), (a1, b1, c1, a1 ^ b1 ^ c1)
    if DEPTH == 4:
        d0, d1 = plane_words(found, 3, PAIRS)
        slots0 = slots0 + (d0, a0 ^ b0 ^ d0, a0 ^ c0 ^ d0, b0 ^ c0 ^ d0)
        slots1 = slots1 + (d1, a1 ^ b1 ^ d1, a1 ^ c1 ^ d1, b1 ^ c1 ^ d1)
    return slots0, slots1


@triton.jit
def add_tokens(
    lists, count, planes, logits, coefficients, pair_stride, shifted_lse, lane, sums, DEPTH: tl.constexpr,
    W: tl.constexpr, WORDS: tl.constexpr,
):  # fmt: skip
    """36 sums after the tokens of one list, all of one depth, 1 to 4."""
    if count > 0:
        ahead = item_loads(lists, 0, planes, logits, pair_stride, lane, DEPTH, W, WORDS)
        for first in range(0, count, 16):
            found = ahead
            following = tl.minimum(first + 16, (count - 1) // 16 * 16)
            ahead = item_loads(lists, following, planes, logits, pair_stride, lane, DEPTH, W, WORDS)
            w0, w1 = item_weights(found, shifted_lse, (DEPTH + 1) // 2)
            slots0, slots1 = slots_of(found, DEPTH)
            for slot in tl.static_range(2 ** (DEPTH - 1)):
                factor = tl.load(coefficients + DEPTH * 8 + slot)
                sums = add_bits_and_ones(
                    slots0[slot], slots1[slot], times_half(w0, factor), times_half(w1, factor), sums
                )
    return sums


@triton.jit
def append(depth, token, lists, counts, size):
    """Append 32 tokens, one per lane, to the lists of their classes, in token order; the five counts after it."""
    kind = tl.where(depth > 0, tl.maximum(5 - depth, 0), 5)
    place, a, b, c, d, e = tl.inline_asm_elementwise(PLACES, PLACES_OPERANDS, (kind,) + counts, dtype=PLACES_TYPES,
                                                     is_pure=True, pack=1)  # fmt: skip
    tl.store(lists + kind * size + place, token | (depth << DEPTH_SHIFT), mask=depth > 0)
    return (a, b, c, d, e)


@triton.jit
def depths_of(value, steps, bar, cut, rest, item, inside, minimum, LEVELS: tl.constexpr):
    """Depths of 32 tokens; 0 where there is none. The steps' gains fall, so one step equals the bar at most."""
    before = (item < cut) | ((item == cut) & (rest > 0))
    own = bar - (before & (bar > 0)).to(tl.int32)
    depth = item * 0 + minimum
    for level in tl.static_range(LEVELS):
        depth += ((value * steps[level]).to(tl.int32, bitcast=True) > own).to(tl.int32)
    return tl.where(inside, depth, 0)


@triton.jit
def write_lists(
    importance, gains, state, depths, lists, row, part, parts, chunk, size, length, capacity, items_capacity,
    rows_per_pool, minimum, paired, lane, LEVELS: tl.constexpr, STATE: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, stored, and its lists; the counts of the five."""
    pool = state + row // rows_per_pool * STATE
    bar, cut, rest = (
        tl.load(pool + BAR).to(tl.int32),
        tl.load(pool + CUT).to(tl.int32),
        tl.load(pool + REST).to(tl.int32),
    )
    base = (row % rows_per_pool).to(tl.int32) * ((length + paired) >> paired)
    counts = (lane * 0, lane * 0, lane * 0, lane * 0, lane * 0)
    steps = ()
    for level in tl.static_range(LEVELS):
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)
    for first in range(0, chunk, 128):
        values = ()
        for run in tl.static_range(4):  # runs of 32 tokens go round the programs
            token = ((first // 32 + run) * parts + part) * 32 + lane
            at = importance + row * items_capacity + (token >> paired)
            values = values + (tl.load(at, mask=token < length, other=0.0),)
        for run in tl.static_range(4):
            token = ((first // 32 + run) * parts + part) * 32 + lane
            depth = depths_of(
                values[run], steps, bar, cut, rest, base + (token >> paired), token < length, minimum, LEVELS
            )
            tl.store(depths + row * capacity + token, depth.to(tl.int8), mask=token < length)
            counts = append(depth, token, lists, counts, size)
    end = lane * 0
    for kind in tl.static_range(5):  # a list is read 16 entries at a time
        tl.store(lists + kind * size + counts[kind] + lane, end, mask=lane < 16)
    tl.debug_barrier()  # the lists are read by other threads than wrote them
    return (
        tl.max(counts[0], 0),
        tl.max(counts[1], 0),
        tl.max(counts[2], 0),
        tl.max(counts[3], 0),
        tl.max(counts[4], 0),
    )


@triton.jit(
    do_not_specialize=[
        "heads",
        "capacity",
        "items_capacity",
        "rows_per_pool",
        "minimum",
        "paired",
        "parts",
        "chunk",
        "group_size",
    ]
)
def mix_by_lanes(
    planes, logits, lses, importance, gains, state, coefficients, prefix_tables, lengths, depths, lists, mixes, heads,
    capacity, items_capacity, rows_per_pool, minimum, paired, parts, chunk, group_size,
    W: tl.constexpr, D: tl.constexpr, STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, and its mix [8, d]."""
    follow(DEPENDENT)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, 32)
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads)
    WORDS: tl.constexpr = D // 16
    size = chunk + 16
    lists = lists + (row * parts + part) * (5 * size)
    n5, n4, n3, n2, n1 = write_lists(importance, gains, state, depths, lists, row, part, parts, chunk, size, length,
                                     capacity, items_capacity, rows_per_pool, minimum, paired, lane, W, STATE)  # fmt: skip
    own, row_logits = planes + row * ((W + 1) // 2) * capacity * WORDS, logits + row * capacity * 8
    pair_stride = capacity.to(tl.int64) * WORDS
    lse = tl.where(group < group_size, tl.load(lses + row * 8 + group) - 12.0, 1e30)  # no query head, no weight
    zero = lane.to(tl.float32) * 0.0
    sums = zero_sums(zero, 32)
    if W >= 5:
        if n5 > 0:
            tables = tl.inline_asm_elementwise(FILL, "=&r,l", [prefix_tables.to(tl.int64) + lane * 0], dtype=tl.int32,
                                               is_pure=False, pack=1)  # fmt: skip
            ahead = item_loads(lists, 0, own, row_logits, pair_stride, lane, 5, W, WORDS)
            for first in range(0, n5, 16):
                found = ahead
                following = tl.minimum(first + 16, (n5 - 1) // 16 * 16)
                ahead = item_loads(lists, following, own, row_logits, pair_stride, lane, 5, W, WORDS)
                w0, w1 = item_weights(found, lse, (W + 1) // 2)
                sums = add_whole_codes(found, w0, w1, tables, sums, W)
    raw = ()
    for i in tl.static_range(32):
        raw = raw + (sums[i] * FIRST[i],)
    sums = raw + zero_sums(zero, 4)
    if W >= 4:
        sums = add_tokens(lists + size, n4, own, row_logits, coefficients, pair_stride, lse, lane, sums, 4, W, WORDS)
    if W >= 3:
        sums = add_tokens(
            lists + 2 * size, n3, own, row_logits, coefficients, pair_stride, lse, lane, sums, 3, W, WORDS
        )
    if W >= 2:
        sums = add_tokens(
            lists + 3 * size, n2, own, row_logits, coefficients, pair_stride, lse, lane, sums, 2, W, WORDS
        )
    sums = add_tokens(lists + 4 * size, n1, own, row_logits, coefficients, pair_stride, lse, lane, sums, 1, W, WORDS)
    store_mix(sums, mixes + (row * parts + part) * 8 * D, group, quad, D)


@triton.jit
def store_mix(sums, out, group, quad, D: tl.constexpr):
    """A warp's 36 sums as mix [8, D]: a lane has 16 channels of two heads."""
    for column in tl.static_range(2):
        for quarter in tl.static_range(4):
            values = ()
            for c in tl.static_range(4):
                taken = sums[32 + column] if 4 * quarter + c != 15 else sums[32] * 0.0
                value = sums[INDEX[column][4 * quarter + c]] * LAST[INDEX[column][4 * quarter + c]] - taken
                values = values + (value * (1.0 / 4096.0),)
            at = (out + (quad * 2 + column) * D + group * 16 + 4 * quarter).to(tl.int64)
            tl.inline_asm_elementwise(STORE_FOUR, "=r,l,f,f,f,f,r", (at,) + values + ((group < D // 16).to(tl.int32),),
                                      dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip
