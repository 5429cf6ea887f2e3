"""The fast reader's second pass: value depths, and the mix of value prefixes; every depth 0..8 exactly.

Mirrors the value decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.value_mix_kernel` is the plain twin.

    mix_by_lanes   grid (parts, rows), WARPS warps    STEPS runs of 64 tokens to a warp, every parts-th run of the row
        importance --bar--> depths --counts--> a list of tokens per depth, in shared memory     (`lanes_lists.py`)
        groups of 16 tokens of a list go round the warps: planes, weights --products--> sums
        sums of the warps, added in shared memory --> mix [8, d], in the order of `store_mix`

Lists: depth 5 to 8 together (whole codes and a table), 4 (a table of two tokens' codes), 3, 2, 1 (4, 2, 1 slots); depth 0
costs nothing. Weights
are float16 times 4096. A group's words and logits are asked for once those of the group before are packed, and arrive
while those are multiplied. Sums go over a list in its order, so results do not depend on how programs are scheduled.
Bytes: 32 per pair of planes and token, 16 per token for its logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import lanes_ptx, value_ptx
from fastimpl.readkv.lanes import LAST, SUMS, add_bits_and_ones, high_halves, low_halves, times_half, zero_sums
from fastimpl.readkv.lanes_lists import LISTS_AT, TOKEN_BITS, WARP, depths_of_tokens, load_shared, write_lists

CODES, CODES_OPERANDS = tl.constexpr(lanes_ptx.codes_text()), tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 8))
PAIR_CODES, PAIR_CODES_OPERANDS = (
    tl.constexpr(lanes_ptx.pair_codes_text()),
    tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 4)),
)
PAIR_TABLE = tl.constexpr(lanes_ptx.pair_table_text())
PAIR_TABLE_OPERANDS = tl.constexpr(lanes_ptx.pair_table_constraints())
EIGHT = tl.constexpr([tl.int32] * 8)
TABLE, TABLE_OPERANDS = tl.constexpr(lanes_ptx.table_text()), tl.constexpr(lanes_ptx.table_constraints())
FIRST = tl.constexpr([1.0 / lanes_ptx.last_factor(i) for i in range(32)])
INDEX = tl.constexpr([[c % 8 * 4 + c // 8 * 2 + column for c in range(16)] for column in range(2)])
"""Which sum has bit c, by column."""

WEIGHTS = tl.constexpr(value_ptx.weights_text())
ONE, TWO = tl.constexpr([tl.int32]), tl.constexpr([tl.int32] * 2)
FOUR_SUMS = tl.constexpr([tl.float32] * 4)
PAIRS_AT = tl.constexpr(value_ptx.PAIRS_AT)
SUM_BYTES, TOKEN_MASK = tl.constexpr(value_ptx.SUM_BYTES), tl.constexpr((1 << value_ptx.TOKEN_BITS) - 1)
STORE_SUMS, LOAD_SUMS = tl.constexpr(value_ptx.STORE_SUMS), tl.constexpr(value_ptx.LOAD_SUMS)
STORE_FOUR = tl.constexpr(value_ptx.STORE_FOUR)


MEMORY = tl.constexpr(value_ptx.memory_text(value_ptx.WARPS))
FILL = tl.constexpr(value_ptx.fill_text(value_ptx.WARPS))
WORDS_OF = tl.constexpr([[value_ptx.words_text(count, stride) for count in (1, 2)] for stride in (16, 32)])
WORDS_IF = tl.constexpr([[value_ptx.words_if_text(count, stride) for count in (1, 2)] for stride in (16, 32)])
LOGITS = tl.constexpr([value_ptx.words_text(count, 16, "u16") for count in (1, 2)])
WARPS = tl.constexpr(value_ptx.WARPS)


@triton.jit
def token_words(token, base, wanted, ALWAYS: tl.constexpr, WORDS: tl.constexpr, PAIRED: tl.constexpr):
    """Words of a token, or of a pair of them, at one pair of planes; anything where ``wanted`` is negative."""
    if PAIRED and ALWAYS:
        found = tl.inline_asm_elementwise(WORDS_OF[WORDS // 8][1], "=&r,=&r,r,l", [token, base], dtype=TWO,
                                          is_pure=False, pack=1)  # fmt: skip
    elif PAIRED:
        found = tl.inline_asm_elementwise(WORDS_IF[WORDS // 8][1], "=&r,=&r,r,l,r", [token, base, wanted],
                                          dtype=TWO, is_pure=False, pack=1)  # fmt: skip
    elif ALWAYS:
        found = tl.inline_asm_elementwise(WORDS_OF[WORDS // 8][0], "=&r,r,l", [token, base], dtype=ONE,
                                          is_pure=False, pack=1)  # fmt: skip
    else:
        found = tl.inline_asm_elementwise(WORDS_IF[WORDS // 8][0], "=&r,r,l,r", [token, base, wanted],
                                          dtype=ONE, is_pure=False, pack=1)  # fmt: skip
    return found


@triton.jit
def token_logits(token, base, PAIRED: tl.constexpr):
    """Logits of a token, or of a pair of them, as words."""
    if PAIRED:
        found = tl.inline_asm_elementwise(LOGITS[1], "=&r,=&r,r,l", [token, base], dtype=TWO, is_pure=False,
                                          pack=1)  # fmt: skip
    else:
        found = tl.inline_asm_elementwise(LOGITS[0], "=&r,r,l", [token, base], dtype=ONE, is_pure=False,
                                          pack=1)  # fmt: skip
    return found


@triton.jit
def item_loads(entries, source, DEPTH: tl.constexpr, W: tl.constexpr, WORDS: tl.constexpr, PAIRED: tl.constexpr):
    """Start the loads of a lane's four tokens: their logits, then their words, pair of planes by pair.

    ``source``: addresses of token 0's logit and of its word in each pair of planes. DEPTH 5 stands for 5 and more: only those read a fourth pair of planes that are deep enough.
    """
    STEP: tl.constexpr = 2 if PAIRED else 1
    found = ()
    for k in tl.static_range(0, 4, STEP):
        found = found + token_logits(entries[k] & TOKEN_MASK, source[0], PAIRED)
    for pair in tl.static_range((W + 1) // 2 if DEPTH == 5 else (DEPTH + 1) // 2):
        for k in tl.static_range(0, 4, STEP):
            wanted = depth_of(entries[k]) - (2 * pair + 1)
            found = found + token_words(entries[k] & TOKEN_MASK, source[1 + pair], wanted, pair < 3, WORDS,
                                        PAIRED)  # fmt: skip
    return found


@triton.jit
def depth_of(entry):
    """The depth in an entry."""
    return (entry >> TOKEN_BITS) & 15


@triton.jit
def item_weights(found, entries, shifted_lse):
    """A lane's four weights times 4096 as two words of float16."""
    return tl.inline_asm_elementwise(WEIGHTS, "=r,=r,r,r,r,r,f,r,r,r,r", found[:4] + (shifted_lse,) + entries,
                                     dtype=TWO, is_pure=True, pack=1)  # fmt: skip


@triton.jit
def plane_words(found, plane):
    """Bits of one plane of a lane's four tokens, as the products take them."""
    at: tl.constexpr = 4 + plane // 2 * 4
    if plane % 2 == 0:
        return low_halves(found[at], found[at + 1]), low_halves(found[at + 2], found[at + 3])
    return high_halves(found[at], found[at + 1]), high_halves(found[at + 2], found[at + 3])


@triton.jit
def table_addresses(entries, tables):
    """Addresses of the tables of a lane's four tokens of depth 5 to 8."""
    found = ()
    for k in tl.static_range(4):
        depth = tl.minimum(tl.maximum(depth_of(entries[k]), 5), 8)
        found = found + (tables + (depth - 5) * 512,)
    return found


@triton.jit
def whole_codes(found, W: tl.constexpr):
    """Codes of a lane's four tokens of depth 5 to 8, byte by byte: 16 words."""
    first, second = (), ()
    for plane in tl.static_range(8):
        if plane < (W + 1) // 2 * 2:
            x0, x1 = plane_words(found, plane)
        else:
            x0, x1 = found[0] * 0, found[0] * 0
        first = first + (x0,)
        second = second + (x1,)
    return (
        tl.inline_asm_elementwise(CODES, CODES_OPERANDS, first, dtype=EIGHT, is_pure=True, pack=1)
        + tl.inline_asm_elementwise(CODES, CODES_OPERANDS, second, dtype=EIGHT, is_pure=True, pack=1)
    )


@triton.jit
def add_whole_codes(codes, tables, w0, w1, sums):
    """32 sums after 16 tokens of depth 5 to 8."""
    return tl.inline_asm_elementwise(TABLE, TABLE_OPERANDS, codes + tables + (w0, w1) + sums, dtype=SUMS, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def pair_codes(found):
    """Codes of a lane's four tokens of depth 4, two tokens to a byte: 16 words."""
    first, second = (), ()
    for plane in tl.static_range(4):
        x0, x1 = plane_words(found, plane)
        first = first + (x0,)
        second = second + (x1,)
    return (
        tl.inline_asm_elementwise(PAIR_CODES, PAIR_CODES_OPERANDS, first, dtype=EIGHT, is_pure=True, pack=1)
        + tl.inline_asm_elementwise(PAIR_CODES, PAIR_CODES_OPERANDS, second, dtype=EIGHT, is_pure=True, pack=1)
    )


@triton.jit
def add_pair_codes(codes, table, w0, w1, sums):
    """32 sums after 16 tokens of depth 4."""
    return tl.inline_asm_elementwise(PAIR_TABLE, PAIR_TABLE_OPERANDS, codes + (table, w0, w1) + sums, dtype=SUMS,
                                     is_pure=True, pack=1)  # fmt: skip


@triton.jit
def slots_of(found, DEPTH: tl.constexpr):
    """Words of the slots of tokens of one depth, 1 to 3: its planes, then the product of three of them."""
    a0, a1 = plane_words(found, 0)
    slots0, slots1 = (a0,), (a1,)
    if DEPTH >= 2:
        b0, b1 = plane_words(found, 1)
        slots0, slots1 = (a0, b0), (a1, b1)
    if DEPTH >= 3:
        c0, c1 = plane_words(found, 2)
        slots0, slots1 = (a0, b0, c0, a0 ^ b0 ^ c0), (a1, b1, c1, a1 ^ b1 ^ c1)
    return slots0, slots1


@triton.jit
def add_slots(slots0, slots1, w0, w1, factors, sums, COUNT: tl.constexpr):
    """36 sums after 16 tokens of one depth, 1 to 3."""
    for slot in tl.static_range(COUNT):
        factor = factors[slot]
        sums = add_bits_and_ones(slots0[slot], slots1[slot], times_half(w0, factor), times_half(w1, factor), sums)
    return sums


@triton.jit
def add_list(
    lists, count, turn, source, coefficients, tables, shifted_lse, sums,
    DEPTH: tl.constexpr, W: tl.constexpr, WORDS: tl.constexpr, PAIRED: tl.constexpr,
):  # fmt: skip
    """Sums after this warp's groups of one list: those from ``turn`` on, every WARPS-th. 36 sums below depth 4, else 32.

    At depths 1 and 2 two groups a turn, so that twice as many loads are on their way.
    """
    groups = (count + 15) >> 4
    SLOTS: tl.constexpr = 2 ** (DEPTH - 1) if DEPTH < 4 else 0
    BOTH: tl.constexpr = DEPTH < 3
    STRIDE: tl.constexpr = 2 * WARPS if BOTH else WARPS
    if turn < groups:
        factors = ()
        for slot in tl.static_range(SLOTS):
            factors = factors + (tl.load(coefficients + DEPTH * 8 + slot),)
        entries = load_shared(lists + turn * 64)
        found = item_loads(entries, source, DEPTH, W, WORDS, PAIRED)
        if BOTH:
            others = load_shared(lists + tl.minimum(turn + WARPS, groups - 1) * 64)
            also = item_loads(others, source, DEPTH, W, WORDS, PAIRED)
        for group in range(turn, groups, STRIDE):
            following = load_shared(lists + tl.minimum(group + STRIDE, groups - 1) * 64)
            w0, w1 = item_weights(found, entries, shifted_lse)
            if DEPTH == 5:
                codes, at = whole_codes(found, W), table_addresses(entries, tables)
            elif DEPTH == 4:
                codes = pair_codes(found)
            else:
                slots0, slots1 = slots_of(found, DEPTH)
            if BOTH:
                beyond = tl.maximum(group + (WARPS + 1) - groups, 0).to(tl.float32)  # then the weights are 0
                w2, w3 = item_weights(also, others, shifted_lse + beyond * 1e30)
                slots2, slots3 = slots_of(also, DEPTH)
                others = load_shared(lists + tl.minimum(group + STRIDE + WARPS, groups - 1) * 64)
            entries = following
            found = item_loads(entries, source, DEPTH, W, WORDS, PAIRED)
            if BOTH:
                also = item_loads(others, source, DEPTH, W, WORDS, PAIRED)
            if DEPTH == 5:
                sums = add_whole_codes(codes, at, w0, w1, sums)
            elif DEPTH == 4:
                sums = add_pair_codes(codes, tables + PAIRS_AT, w0, w1, sums)
            else:
                sums = add_slots(slots0, slots1, w0, w1, factors, sums, SLOTS)
            if BOTH:
                sums = add_slots(slots2, slots3, w2, w3, factors, sums, SLOTS)
    return sums


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
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, and its mix [8, d]."""
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
    follow(DEPENDENT)
    entries, listed = depths_of_tokens(importance, gains, state, depths, row, part, parts, length, capacity,
                                       items_capacity, rows_per_pool, minimum, thread, W, STATE, STEPS, WARPS,
                                       PAIRED)  # fmt: skip
    counts, starts = write_lists(entries, listed, memory, thread, warp, STEPS, WARPS, PAIRED)
    word = planes + row * ((W + 1) // 2) * capacity * WORDS + tl.minimum(group, WORDS - 1)
    source = ((logits + row * capacity * 8 + group).to(tl.int64),)
    for pair in tl.static_range((W + 1) // 2):
        source = source + ((word + pair * capacity.to(tl.int64) * WORDS).to(tl.int64),)
    lse = tl.where(group < group_size, tl.load(lses + row * 8 + group) - 12.0, 1e30)  # no query head, no weight
    zero = thread.to(tl.float32) * 0.0
    sums = zero_sums(zero, 32)
    lists = memory + LISTS_AT + quad * 16
    taken = warp * 0
    for kind in tl.static_range(2):
        if 5 - kind <= W:
            sums = add_list(lists + 4 * starts[kind], counts[kind], (warp - taken) & (WARPS - 1), source, coefficients,
                            memory, lse, sums, 5 - kind, W, WORDS, PAIRED)  # fmt: skip
        taken += (counts[kind] + 15) >> 4
    raw = ()
    for i in tl.static_range(32):
        raw = raw + (sums[i] * FIRST[i],)
    sums = raw + zero_sums(zero, 4)
    for kind in tl.static_range(2, 5):
        if 5 - kind <= W:
            sums = add_list(lists + 4 * starts[kind], counts[kind], (warp - taken) & (WARPS - 1), source, coefficients,
                            memory, lse, sums, 5 - kind, W, WORDS, PAIRED)  # fmt: skip
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
