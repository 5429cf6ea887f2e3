"""The fast reader's two passes, lane by lane on NVIDIA's matrix units: every depth 0..8 exactly, up to 8 query heads.

Mirrors the decoders of `refimpl.readkv.reader.read_two_stages`; `prefix.py` is the plain twin, `lanes_ptx.py` has the
texts. d 64 or 128.

    logits_by_lanes   grid (tiles, rows), 1 warp    one tile of 256 tokens, planes copied ahead into shared memory
        slots (`slots.py`) --xor of planes--> words --masks, products--> logits [256, 8] float16, in base 2
    weigh_by_lanes    grid (blocks, rows)           `weigh.py`'s pass, a token's eight logits in one load
    mix_by_lanes      grid (parts, rows), 1 warp    every parts-th run of 32 tokens, ``chunk`` tokens at most
        importance --bar--> depths --sorted by class--> list of tokens --planes, products--> mix [8, d]

Classes of tokens: depth 5 to 8 (whole codes and a table), 4, 3, 2, 1 (8, 4, 2, 1 slots); depth 0 costs nothing. Weights are float16 times 4096. Sums go over the list in the order of the tokens, so results do not depend on
how programs are scheduled. Bytes: 32 per pair of planes and token, 16 per token for its logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import lanes_ptx as ptx
from fastimpl.readkv.threshold import BAR, BINS, CUT, REST, bin_of, item_cost, row_items
from fastimpl.readkv.weigh import log_mass_of_tiles

BITS, BITS_OPERANDS = tl.constexpr(ptx.bits_text(False)), tl.constexpr(ptx.bits_constraints(False))
ONES, ONES_OPERANDS = tl.constexpr(ptx.bits_text(True)), tl.constexpr(ptx.bits_constraints(True))
TABLE, TABLE_OPERANDS = tl.constexpr(ptx.table_text()), tl.constexpr(ptx.table_constraints())
FILL = tl.constexpr(ptx.fill_text())
SUMS = tl.constexpr([tl.float32] * 32)
SUMS_AND_ONES = tl.constexpr([tl.float32] * 36)
LAST = tl.constexpr([ptx.last_factor(i) for i in range(32)])
FIRST = tl.constexpr([1.0 / ptx.last_factor(i) for i in range(32)])
BIT = tl.constexpr([i // 4 + 8 * (i // 2 % 2) for i in range(32)])
"""The bit of a half that sum i is about."""
INDEX = tl.constexpr([[c % 8 * 4 + c // 8 * 2 + column for c in range(16)] for column in range(2)])
"""Which sum has bit c, by column."""
FOUR = tl.constexpr([tl.int32] * 4)
LOAD_FOUR = tl.constexpr("ld.global.v4.b32 {$0,$1,$2,$3}, [$4];")
OWN_BINS = tl.constexpr("{.shared .align 16 .b8 importance_bins[16384]; mov.u32 $0, importance_bins;}")
CLEAR_BIN = tl.constexpr("{.reg .b32 z; mov.b32 z, 0; st.shared.b32 [$1], z; mov.b32 $0, z;}")
ADD_TO_BIN = tl.constexpr("red.shared.add.u32 [$1], $2; mov.b32 $0, 0;")
READ_BIN = tl.constexpr("ld.shared.b32 $0, [$1];")
RING = tl.constexpr("{.shared .align 128 .b8 key_ring[8192]; mov.u32 $0, key_ring;}")
COPY = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16, $3; mov.b32 $0, 0;")
COMMIT = tl.constexpr("cp.async.commit_group; mov.b32 $0, 0;")
SYNC = tl.constexpr("bar.warp.sync 0xffffffff; mov.b32 $0, 0;")
READ_FOUR = tl.constexpr(
    "ld.shared.b32 $0, [$4]; ld.shared.b32 $1, [$4+128]; ld.shared.b32 $2, [$4+256]; ld.shared.b32 $3, [$4+384];"
)
STAGES = tl.constexpr([8, 4, 2, 2])
WAITS = tl.constexpr([f"cp.async.wait_group {n}; bar.warp.sync 0xffffffff; mov.b32 $0, 0;" for n in (6, 2, 0, 0)])
"""Groups of 16 slots of order 1, 3, 5, 7 that the ring holds, and how long to wait for the oldest."""
STORE_FOUR = tl.constexpr(
    "{.reg .pred p; setp.ne.u32 p, $6, 0; @p st.global.v4.f32 [$1], {$2,$3,$4,$5}; mov.b32 $0, 0;}"
)
PLACES, PLACES_OPERANDS = tl.constexpr(ptx.places_text(5)), tl.constexpr(",".join(["=&r"] * 6 + ["r"] * 6))
PLACES_TYPES = tl.constexpr([tl.int32] * 6)
TOKEN_BITS, DEPTH_SHIFT = tl.constexpr((1 << 27) - 1), tl.constexpr(27)
"""A list's entry: a token, and its depth above."""

FARTHEST = tl.constexpr(60000.0)
"""Logits are kept within float16."""


@triton.jit
def low_halves(a, b):
    """The low 16 bits of two words in one."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def high_halves(a, b):
    """The high 16 bits of two words in one."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def pack_half(low, high):
    """Two float32 as float16 in one word."""
    return tl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=tl.int32,
                                     is_pure=True, pack=1)  # fmt: skip


@triton.jit
def times_half(a, b):
    """Products of two pairs of float16."""
    return tl.inline_asm_elementwise("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def zero_sums(zero, COUNT: tl.constexpr):
    """COUNT accumulators."""
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (zero,)  # noqa: RUF005
    return sums


@triton.jit
def add_bits(x0, x1, w0, w1, sums):
    """32 sums after 16 items' bits."""
    return tl.inline_asm_elementwise(BITS, BITS_OPERANDS, (x0, x1, w0, w1) + sums, dtype=SUMS, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def add_bits_and_ones(x0, x1, w0, w1, sums):
    """32 sums after 16 items' bits, and 4 of their weights."""
    return tl.inline_asm_elementwise(ONES, ONES_OPERANDS, (x0, x1, w0, w1) + sums, dtype=SUMS_AND_ONES, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def copy_slots(members, planes, ring, group, count, capacity, words, lane, ORDER: tl.constexpr, STAGES: tl.constexpr):
    """Start the copy of group ``group`` of 16 slots into the ring: a lane copies half a sector of one slot's planes.

    Slot 4 q + i lies at place 4 i + q, so that four lanes that read their i-th slots meet in no bank.
    """
    slot, place = lane >> 1, ((lane >> 1) & 3) * 4 + (lane >> 3)
    live = group * 16 + slot < count
    size = tl.where(live, 16, 0)
    target = ring + group % STAGES * (512 * ORDER) + place * 32 + (lane & 1) * 16
    for j in tl.static_range(ORDER):
        member = tl.load(members + j * capacity + group * 16 + slot, mask=live, other=0)
        source = (planes + member.to(tl.int64) * words + (lane & 1) * 4).to(tl.int64)
        tl.inline_asm_elementwise(COPY, "=r,r,l,r", [target + 512 * j, source, size], dtype=tl.int32, is_pure=False,
                                  pack=1)  # fmt: skip
    tl.inline_asm_elementwise(COMMIT, "=r,r", [lane], dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def add_slots(
    planes, members, weights, ring, count, capacity, words, lane, low, high, KIND: tl.constexpr
):  # fmt: skip
    """The sums of both halves of the words after all slots of order 2 KIND + 1."""
    group, quad = lane >> 2, lane & 3
    ORDER: tl.constexpr = 2 * KIND + 1
    AHEAD: tl.constexpr = STAGES[KIND]
    if count > 0:
        tl.inline_asm_elementwise(SYNC, "=r,r", [lane], dtype=tl.int32, is_pure=False, pack=1)
        for i in tl.static_range(AHEAD - 1):
            copy_slots(members, planes, ring, i, count, capacity, words, lane, ORDER, AHEAD)
        own = (weights + (quad * 8 + group) * 4).to(tl.pointer_type(tl.int64))
        following = tl.load(own)
        for i in range((count + 15) // 16):
            weight = following
            following = tl.load(own + (i + 1) * 32, mask=lane * 0 + (i + 1) * 16 < count, other=0)
            tl.inline_asm_elementwise(WAITS[KIND], "=r,r", [lane], dtype=tl.int32, is_pure=False, pack=1)
            at = ring + i % AHEAD * (512 * ORDER) + quad * 32 + group * 4
            a, b, c, d = tl.inline_asm_elementwise(READ_FOUR, "=r,=r,=r,=r,r", [at], dtype=FOUR, is_pure=False, pack=1)
            for j in tl.static_range(1, ORDER):
                e, f, g, h = tl.inline_asm_elementwise(READ_FOUR, "=r,=r,=r,=r,r", [at + 512 * j], dtype=FOUR,
                                                       is_pure=False, pack=1)  # fmt: skip
                a, b, c, d = a ^ e, b ^ f, c ^ g, d ^ h
            copy_slots(members, planes, ring, i + (AHEAD - 1), count, capacity, words, lane, ORDER, AHEAD)
            w0, w1 = weight.to(tl.int32), (weight >> 32).to(tl.int32)
            low = add_bits(low_halves(a, b), low_halves(c, d), w0, w1, low)
            high = add_bits(high_halves(a, b), high_halves(c, d), w0, w1, high)
    return low, high


@triton.jit
def per_quad(x, MAXIMUM: tl.constexpr):
    """The largest (or the sum) over rows of one number per lane, back on every lane."""
    tile = tl.reshape(x, [8, 4])
    if MAXIMUM:
        total = tl.max(tile, 0)
    else:
        total = tl.sum(tile, 0)
    return tl.reshape(tl.broadcast_to(total[None, :], [8, 4]), [32])


@triton.jit
def finish_half(sums, even, odd, token, length, scale_log2):
    """Logits of one half of the words as they are stored, and the largest of each column on this lane."""
    found = ()
    top_even, top_odd = even * 0.0 - 1e30, even * 0.0 - 1e30
    for i in tl.static_range(32):
        taken = (even if i % 2 == 0 else odd) if BIT[i] != 15 else even * 0.0
        value = sums[i] * (scale_log2 * LAST[i]) - taken * scale_log2
        value = tl.minimum(tl.maximum(value, -FARTHEST), FARTHEST)
        value = tl.where(token + 8 * BIT[i] < length, value.to(tl.float16).to(tl.float32), -1e30)
        if i % 2 == 0:
            top_even = tl.maximum(top_even, value)
        else:
            top_odd = tl.maximum(top_odd, value)
        found = found + (value,)  # noqa: RUF005
    return found, top_even, top_odd


@triton.jit
def store_half(found, top_even, top_odd, out):
    """Store one half's logits, 128 bytes at a time; the sums of their powers on this lane."""
    sum_even, sum_odd = top_even * 0.0, top_even * 0.0
    for i in tl.static_range(0, 32, 2):
        sum_even += tl.exp2(found[i] - top_even)
        sum_odd += tl.exp2(found[i + 1] - top_odd)
        tl.store(out + 32 * BIT[i], pack_half(found[i], found[i + 1]))
    return sum_even, sum_odd


@triton.jit(do_not_specialize=["heads", "words", "capacity", "slots", "tiles"])
def logits_by_lanes(
    planes, members, weights, counts, sums_of_weights, lengths, logits, largests, totals, heads, words, capacity,
    slots, tiles, scale_log2, W: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [256, 8] of one tile of one row, their largest and their sum of powers per head."""
    follow(DEPENDENT)
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, 32)
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads)
    zero = lane.to(tl.float32) * 0.0
    at = (row * tiles + tile) * 8 + quad * 2
    if tile * 256 >= length:
        for column in tl.static_range(2):
            tl.store(largests + at + column, zero - 1e30, mask=lane < 4)
            tl.store(totals + at + column, zero, mask=lane < 4)
        return
    ring = tl.inline_asm_elementwise(RING, "=r,r", [lane], dtype=tl.int32, is_pure=False, pack=1)
    own = planes + row * (W * D) * words + tile * 8
    low, high = zero_sums(zero, 32), zero_sums(zero, 32)
    for order in tl.static_range(4):
        count, first = tl.load(counts + row * 8 + order), tl.load(counts + row * 8 + 4 + order)
        low, high = add_slots(own, members + row * 7 * slots + first, weights + (row * slots + first) * 8, ring, count,
                              slots, words, lane, low, high, order)  # fmt: skip
    even, odd = zero, zero
    for part in tl.static_range(PARTS):
        even += tl.load(sums_of_weights + (row * PARTS + part) * 8 + quad * 2)
        odd += tl.load(sums_of_weights + (row * PARTS + part) * 8 + quad * 2 + 1)
    token = tile * 256 + group
    low_found, top_even, top_odd = finish_half(low, even, odd, token, length, scale_log2)
    high_found, also_even, also_odd = finish_half(high, even, odd, token + 128, length, scale_log2)
    top_even = per_quad(tl.maximum(top_even, also_even), True)
    top_odd = per_quad(tl.maximum(top_odd, also_odd), True)
    out = (logits + (row * capacity + token) * 8 + quad * 2).to(tl.pointer_type(tl.int32))
    sum_even, sum_odd = store_half(low_found, top_even, top_odd, out)
    more_even, more_odd = store_half(high_found, top_even, top_odd, out + 512)
    tl.store(largests + at, top_even, mask=lane < 4)
    tl.store(largests + at + 1, top_odd, mask=lane < 4)
    tl.store(totals + at, per_quad(sum_even + more_even, False), mask=lane < 4)
    tl.store(totals + at + 1, per_quad(sum_odd + more_odd, False), mask=lane < 4)


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
        found = found + (logit.to(tl.float32), entries[k])  # noqa: RUF005
        for pair in tl.static_range(PAIRS):
            at_word = planes + pair * pair_stride + token.to(tl.int64) * WORDS + group
            if WORDS == 8 and (DEPTH < 5 or pair < 3):
                word = tl.load(at_word)
            else:
                word = tl.load(at_word, mask=(2 * pair < depth) & (group < WORDS), other=0)
            found = found + (word,)  # noqa: RUF005
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
        first = first + (x0,)  # noqa: RUF005
        second = second + (x1,)  # noqa: RUF005
    own = ()
    for k in tl.static_range(4):
        depth = tl.maximum(found[(2 + PAIRS) * k + 1] >> DEPTH_SHIFT, 5)
        own = own + (tables + (tl.minimum(depth, 8) - 5) * 512,)  # noqa: RUF005
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
        slots0 = slots0 + (d0, a0 ^ b0 ^ d0, a0 ^ c0 ^ d0, b0 ^ c0 ^ d0)  # noqa: RUF005
        slots1 = slots1 + (d1, a1 ^ b1 ^ d1, a1 ^ c1 ^ d1, b1 ^ c1 ^ d1)  # noqa: RUF005
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
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)  # noqa: RUF005
    for first in range(0, chunk, 128):
        values = ()
        for run in tl.static_range(4):  # runs of 32 tokens go round the programs
            token = ((first // 32 + run) * parts + part) * 32 + lane
            at = importance + row * items_capacity + (token >> paired)
            values = values + (tl.load(at, mask=token < length, other=0.0),)  # noqa: RUF005
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
        raw = raw + (sums[i] * FIRST[i],)  # noqa: RUF005
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
                values = values + (value * (1.0 / 4096.0),)  # noqa: RUF005
            at = (out + (quad * 2 + column) * D + group * 16 + 4 * quarter).to(tl.int64)
            tl.inline_asm_elementwise(STORE_FOUR, "=r,l,f,f,f,f,r", (at,) + values + ((group < D // 16).to(tl.int32),),
                                      dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip


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
def squares_of(logits, token, length, lses):
    """Sums of the squared weights of tokens [N], eight float16 logits each; 0 beyond ``length``."""
    at = (logits + token.to(tl.int64) * 8).to(tl.int64)
    words = tl.inline_asm_elementwise(LOAD_FOUR, "=r,=r,=r,=r,l", [at], dtype=FOUR, is_pure=False, pack=1)
    total = tl.zeros(token.shape, tl.float32)
    for i in tl.static_range(4):
        for half in tl.static_range(2):
            bits = (words[i] >> (16 * half)).to(tl.int16)
            weight = tl.exp2(bits.to(tl.float16, bitcast=True).to(tl.float32) - lses[2 * i + half])
            total += weight * weight
    return tl.where(token < length, total, 0.0)


@triton.jit
def weigh_by_lanes(
    logits, largests, totals, lses, importance, bins, lengths, heads, capacity, items_capacity, tiles, rows_per_pool,
    cost, group_size, ITEMS: tl.constexpr, STEPS: tl.constexpr, STEP: tl.constexpr, PAIRED: tl.constexpr,
    THREADS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Importances of STEPS * ITEMS items of one row, added to its pool's bins through bins in shared memory."""
    own = cleared_bins(THREADS)
    follow(DEPENDENT)
    row, group = tl.program_id(1).to(tl.int64), tl.arange(0, 8)
    lse = log_mass_of_tiles(largests, totals, row, tiles, 8, STEP)
    if tl.program_id(0) == 0:
        tl.store(lses + row * 8 + group, lse)
    lse = tl.where(group < group_size, lse, 1e30)  # columns that are no query head weigh nothing
    each = ()
    for g in tl.static_range(8):
        each = each + (tl.sum(tl.where(group == g, lse, 0.0), 0),)  # noqa: RUF005
    length = tl.load(lengths + row // heads)
    items, one, last = row_items(lengths, row, heads, 0, cost, cost, True, PAIRED)
    for step in range(STEPS):
        item = (tl.program_id(0) * STEPS + step) * ITEMS + tl.arange(0, ITEMS)
        if PAIRED:
            value = squares_of(logits + row * capacity * 8, item * 2, length, each)
            value += squares_of(logits + row * capacity * 8, item * 2 + 1, length, each)
        else:
            value = squares_of(logits + row * capacity * 8, item, length, each)
        tl.store(importance + row * items_capacity + item, value, mask=item < items)
        tl.inline_asm_elementwise(ADD_TO_BIN, "=r,r,r",
                                  [own + 4 * bin_of(value), item_cost(item, items, one, last)], dtype=tl.int32,
                                  is_pure=False, pack=1)  # fmt: skip
    tl.debug_barrier()
    j = tl.arange(0, BINS)
    amount = shared_word(READ_BIN, own + 4 * j)
    tl.atomic_add(bins + row // rows_per_pool * BINS + j, amount, mask=amount > 0, sem="relaxed")
