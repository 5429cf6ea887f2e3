"""The fast reader's two passes, lane by lane on NVIDIA's matrix units: every depth 0..8 exactly, up to 8 query heads.

Mirrors the decoders of `refimpl.readkv.reader.read_two_stages`; `prefix.py` is the plain twin, `lanes_ptx.py` has the
texts. d 64 or 128.

    logits_by_lanes   grid (tiles, rows), 1 warp    one tile of 256 tokens, planes copied ahead into shared memory
        slots (`slots.py`) --xor of planes--> words --masks, products--> logits [256, 8] float16, in base 2
    weigh_by_lanes    grid (blocks, rows)           `weigh.py`'s pass, a token's eight logits in one load
    mix_by_lanes      grid (parts, rows), 1 warp    every parts-th run of 32 tokens, ``chunk`` tokens at most
        importance --bar--> depths --sorted by class--> list of tokens --planes, products--> mix [8, d]

Classes of tokens: depth 5 to 8 (whole codes and a table), 4 (8 slots), 3 (4 slots), 1 and 2 (2 slots); depth 0 costs
nothing. Weights are float16 times 4096. Sums go over the list in the order of the tokens, so results do not depend on
how programs are scheduled. Bytes: 32 per pair of planes and token, 16 per token for its logits.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import lanes_ptx as ptx
from fastimpl.readkv.threshold import BAR, BINS, CUT, REST, bin_of, item_cost, row_items, steps_at
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
        for i in range(0, (count + 15) // 16):
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
def four_entries(lists, first, quad):
    """A lane's four list entries of 16, int32: number of the token in the program's chunk, and its depth << 12."""
    pair = tl.load((lists + first + quad * 4).to(tl.pointer_type(tl.int64)))
    low, high = pair.to(tl.int32), (pair >> 32).to(tl.int32)
    return low & 0xFFFF, (low >> 16) & 0xFFFF, high & 0xFFFF, (high >> 16) & 0xFFFF


@triton.jit
def token_of(entry, part, parts):
    """The token that a list entry names: runs of 32 tokens go round the programs."""
    number = entry & 4095
    return ((number >> 5) * parts + part) * 32 + (number & 31)


@triton.jit
def item_loads(
    lists, first, count, base, planes, logits, pair_stride, part, parts, lane, CLASS: tl.constexpr, W: tl.constexpr,
    WORDS: tl.constexpr,
):  # fmt: skip
    """Start the loads of a lane's four tokens: words of each pair of planes that the class may need, logits, entries."""
    quad, group = lane & 3, lane >> 2
    entries = four_entries(lists, first, quad)
    found = ()
    PAIRS: tl.constexpr = ((W + 1) // 2 if CLASS == 0 else 2) if CLASS < 3 else 1
    for k in tl.static_range(4):
        token = tl.where(first + quad * 4 + k < count, token_of(entries[k], part, parts), 0)
        logit = tl.load(logits + token.to(tl.int64) * 8 + group, mask=first + quad * 4 + k < count, other=0.0)
        found = found + (logit.to(tl.float32), entries[k])  # noqa: RUF005
        depth = tl.where(first + quad * 4 + k < count, entries[k] >> 12, 0)
        for pair in tl.static_range(PAIRS):
            word = tl.load(planes + pair * pair_stride + token.to(tl.int64) * WORDS + group,
                           mask=(2 * pair < depth) & (group < WORDS), other=0)  # fmt: skip
            found = found + (word,)  # noqa: RUF005
    return found


@triton.jit
def item_weights(found, first, count, lse, live, quad, PAIRS: tl.constexpr):
    """A lane's four weights times 4096; 0 beyond the list and for columns that are no query head."""
    weights = ()
    for k in tl.static_range(4):
        weight = tl.exp2(found[(2 + PAIRS) * k] - lse + 12.0)
        weights = weights + (tl.where(live & (first + quad * 4 + k < count), weight, 0.0),)  # noqa: RUF005
    return weights


@triton.jit
def plane_words(found, plane, PAIRS: tl.constexpr):
    """Bits of one plane of a lane's four tokens, as the products take them."""
    at: tl.constexpr = 2 + plane // 2
    step: tl.constexpr = 2 + PAIRS
    if plane % 2 == 0:
        return low_halves(found[at], found[step + at]), low_halves(found[2 * step + at], found[3 * step + at])
    return high_halves(found[at], found[step + at]), high_halves(found[2 * step + at], found[3 * step + at])


@triton.jit
def add_whole_codes(found, weights, tables, sums, W: tl.constexpr):
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
        depth = tl.maximum(found[(2 + PAIRS) * k + 1] >> 12, 5)
        own = own + (tables + (tl.minimum(depth, 8) - 5) * 512,)  # noqa: RUF005
    w = (pack_half(weights[0], weights[1]), pack_half(weights[2], weights[3]))
    return tl.inline_asm_elementwise(TABLE, TABLE_OPERANDS, first + second + own + w + sums, dtype=SUMS, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def add_slots_of(found, weights, coefficients, sums, DEPTH: tl.constexpr):
    """36 sums after 16 tokens of depth 3 or 4: 4 or 8 slots each."""
    w0, w1 = pack_half(weights[0], weights[1]), pack_half(weights[2], weights[3])
    a0, a1 = plane_words(found, 0, 2)
    b0, b1 = plane_words(found, 1, 2)
    c0, c1 = plane_words(found, 2, 2)
    slots0, slots1 = (a0, b0, c0, a0 ^ b0 ^ c0), (a1, b1, c1, a1 ^ b1 ^ c1)
    if DEPTH == 4:
        d0, d1 = plane_words(found, 3, 2)
        slots0 = slots0 + (d0, a0 ^ b0 ^ d0, a0 ^ c0 ^ d0, b0 ^ c0 ^ d0)  # noqa: RUF005
        slots1 = slots1 + (d1, a1 ^ b1 ^ d1, a1 ^ c1 ^ d1, b1 ^ c1 ^ d1)  # noqa: RUF005
    for slot in tl.static_range(4 if DEPTH == 3 else 8):
        factor = tl.load(coefficients + DEPTH * 8 + slot)
        sums = add_bits_and_ones(slots0[slot], slots1[slot], times_half(w0, factor), times_half(w1, factor), sums)
    return sums


@triton.jit
def add_two_planes(found, weights, one, two_first, two_second, sums):
    """36 sums after 16 tokens of depth 1 or 2: their first plane, and the second where the depth is 2."""
    a0, a1 = plane_words(found, 0, 1)
    b0, b1 = plane_words(found, 1, 1)
    u, v = (), ()
    for k in tl.static_range(4):
        deep = found[3 * k + 1] >= 8192  # depth 2 or more in the entry's high bits
        u = u + (weights[k] * tl.where(deep, two_first, one),)  # noqa: RUF005
        v = v + (tl.where(deep, weights[k] * two_second, 0.0),)  # noqa: RUF005
    sums = add_bits_and_ones(a0, a1, pack_half(u[0], u[1]), pack_half(u[2], u[3]), sums)
    return add_bits_and_ones(b0, b1, pack_half(v[0], v[1]), pack_half(v[2], v[3]), sums)


@triton.jit
def write_lists(depth, number, lists, counts, chunk):
    """Append tokens to the lists of their classes, in token order; counts of the four classes in 16 bits each."""
    kind = tl.where(depth >= 5, 0, tl.where(depth == 4, 1, tl.where(depth == 3, 2, 3)))
    shift = (kind * 16).to(tl.int64)
    one = tl.where(depth > 0, (depth * 0 + 1).to(tl.int64) << shift, 0)
    place = counts + tl.cumsum(one, 0) - one
    at = kind * (chunk + 16) + ((place >> shift) & 0xFFFF).to(tl.int32)
    tl.store(lists + at, (number | (depth << 12)).to(tl.int16), mask=depth > 0)
    return counts + tl.sum(one, 0)


@triton.jit
def depths_of_chunk(
    importance, gains, state, depths, row, number, part, parts, length, capacity, items_capacity, rows_per_pool, minimum,
    paired, LEVELS: tl.constexpr, W_PAD: tl.constexpr, STATE: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, stored and returned; 0 beyond the row's length."""
    own = state + row // rows_per_pool * STATE
    bar, cut, rest = (
        tl.load(own + BAR).to(tl.int32),
        tl.load(own + CUT).to(tl.int32),
        tl.load(own + REST).to(tl.int32),
    )
    token = token_of(number, part, parts)
    inside = token < length
    item, items = token >> paired, (length + paired) >> paired
    value = tl.load(importance + row * items_capacity + item, mask=inside, other=0.0)
    place = (row % rows_per_pool).to(tl.int32) * items + item
    depth = tl.where(inside, minimum + steps_at(value, gains, bar, cut, rest, place, minimum, LEVELS, W_PAD), 0)
    tl.store(depths + row * capacity + token, depth.to(tl.int8), mask=inside)
    return depth


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
    capacity, items_capacity, rows_per_pool, minimum, paired, parts, chunk, group_size, one, two_first, two_second,
    W: tl.constexpr, D: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr, STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of a program's tokens, and its mix [8, d]."""
    follow(DEPENDENT)
    part, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    lane = tl.arange(0, 32)
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads)
    WORDS: tl.constexpr = D // 16
    lists = lists + (row * parts + part) * (4 * (chunk + 16))
    counts = tl.zeros([1], tl.int64)
    for first in range(0, chunk, 256):
        number = first + tl.arange(0, 256)
        depth = depths_of_chunk(importance, gains, state, depths, row, number, part, parts, length, capacity,
                                items_capacity, rows_per_pool, minimum, paired, LEVELS, W_PAD, STATE)  # fmt: skip
        counts = write_lists(depth, number, lists, counts, chunk)
    tl.debug_barrier()  # the lists are read by other threads than wrote them
    total = tl.sum(counts, 0)
    n0, n1 = (total & 0xFFFF).to(tl.int32), ((total >> 16) & 0xFFFF).to(tl.int32)
    n2, n3 = ((total >> 32) & 0xFFFF).to(tl.int32), ((total >> 48) & 0xFFFF).to(tl.int32)
    s1, s2, s3 = chunk + 16, 2 * (chunk + 16), 3 * (chunk + 16)
    own, row_logits = planes + row * ((W + 1) // 2) * capacity * WORDS, logits + row * capacity * 8
    pair_stride = capacity.to(tl.int64) * WORDS
    lse = tl.load(lses + row * 8 + group)
    live = group < group_size
    sums = zero_sums(lane.to(tl.float32) * 0.0, 32)
    if W >= 5:
        if n0 > 0:
            tables = tl.inline_asm_elementwise(FILL, "=&r,l", [prefix_tables.to(tl.int64) + lane * 0], dtype=tl.int32,
                                               is_pure=False, pack=1)  # fmt: skip
            ahead = item_loads(lists, 0, n0, own, own, row_logits, pair_stride, part, parts, lane, 0, W, WORDS)
            for first in range(0, n0, 16):
                found = ahead
                following = tl.minimum(first + 16, (n0 - 1) // 16 * 16)
                ahead = item_loads(
                    lists, following, n0, own, own, row_logits, pair_stride, part, parts, lane, 0, W, WORDS
                )
                weights = item_weights(found, first, n0, lse, live, quad, (W + 1) // 2)
                sums = add_whole_codes(found, weights, tables, sums, W)
    raw = ()
    for i in tl.static_range(32):
        raw = raw + (sums[i] * FIRST[i],)  # noqa: RUF005
    sums = raw + zero_sums(lane.to(tl.float32) * 0.0, 4)
    if W >= 4:
        if n1 > 0:
            ahead = item_loads(lists + s1, 0, n1, own, own, row_logits, pair_stride, part, parts, lane, 1, W, WORDS)
            for first in range(0, n1, 16):
                found = ahead
                following = tl.minimum(first + 16, (n1 - 1) // 16 * 16)
                ahead = item_loads(
                    lists + s1, following, n1, own, own, row_logits, pair_stride, part, parts, lane, 1, W, WORDS
                )
                weights = item_weights(found, first, n1, lse, live, quad, 2)
                sums = add_slots_of(found, weights, coefficients, sums, 4)
    if W >= 3:
        if n2 > 0:
            ahead = item_loads(lists + s2, 0, n2, own, own, row_logits, pair_stride, part, parts, lane, 2, W, WORDS)
            for first in range(0, n2, 16):
                found = ahead
                following = tl.minimum(first + 16, (n2 - 1) // 16 * 16)
                ahead = item_loads(
                    lists + s2, following, n2, own, own, row_logits, pair_stride, part, parts, lane, 2, W, WORDS
                )
                weights = item_weights(found, first, n2, lse, live, quad, 2)
                sums = add_slots_of(found, weights, coefficients, sums, 3)
    if n3 > 0:
        ahead = item_loads(lists + s3, 0, n3, own, own, row_logits, pair_stride, part, parts, lane, 3, W, WORDS)
        for first in range(0, n3, 16):
            found = ahead
            following = tl.minimum(first + 16, (n3 - 1) // 16 * 16)
            ahead = item_loads(
                lists + s3, following, n3, own, own, row_logits, pair_stride, part, parts, lane, 3, W, WORDS
            )
            weights = item_weights(found, first, n3, lse, live, quad, 1)
            sums = add_two_planes(found, weights, one, two_first, two_second, sums)
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
