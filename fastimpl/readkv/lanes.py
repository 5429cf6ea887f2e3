"""The fast reader's two passes, lane by lane on NVIDIA's matrix units: every depth 0..8 exactly, up to 8 query heads.

Mirrors the decoders of `refimpl.readkv.reader.read_two_stages`; `prefix.py` is the plain twin, `lanes_ptx.py` has the
texts. d 64 or 128.

    logits_by_lanes   grid (tiles, rows), 2 warps   one tile of 256 tokens; a warp takes 16 of the 32 bits of every word
        slots (`slots.py`) --xor of planes--> words --masks, products--> logits [256, 8] float16, in base 2
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
from fastimpl.readkv.threshold import BAR, CUT, REST, steps_at

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
TWO = tl.constexpr([tl.int32] * 2)
LOAD_FOUR = tl.constexpr("ld.global.v4.b32 {$0,$1,$2,$3}, [$4];")
LOAD_TWO = tl.constexpr("ld.global.v2.b32 {$0,$1}, [$2];")
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
def chosen_halves(a, b, selector):
    """One half of each of two words in one, as ``selector`` says per thread."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, $3;", "=r,r,r,r", [a, b, selector], dtype=tl.int32,
                                     is_pure=True, pack=1)  # fmt: skip


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
def slot_words(planes, members, first, count, capacity, words, quad, ORDER: tl.constexpr):
    """Words of a lane's four slots: exclusive or of their planes; 0 beyond ``count``."""
    found = ()
    rows = ()
    for j in tl.static_range(ORDER):
        rows = rows + tl.inline_asm_elementwise(LOAD_FOUR, "=r,=r,=r,=r,l",
                                                [(members + j * capacity + first + quad * 4).to(tl.int64)], dtype=FOUR,
                                                is_pure=False, pack=1)  # fmt: skip
    for i in tl.static_range(4):
        live = first + quad * 4 + i < count
        word = tl.load(planes + rows[i].to(tl.int64) * words, mask=live, other=0)
        for j in tl.static_range(1, ORDER):
            word = word ^ tl.load(planes + rows[4 * j + i].to(tl.int64) * words, mask=live, other=0)
        found = found + (word,)  # noqa: RUF005
    return found


@triton.jit
def slot_weights(weights, first, lane, count):
    """A lane's two words of weights; 0 beyond ``count``."""
    quad, group = lane & 3, lane >> 2
    at = (weights + ((first // 4 + quad) * 8 + group) * 4).to(tl.int64)
    w0, w1 = tl.inline_asm_elementwise(LOAD_TWO, "=r,=r,l", [at], dtype=TWO, is_pure=False, pack=1)
    slot = first + quad * 4
    w0 = tl.where(slot < count, tl.where(slot + 1 < count, w0, w0 & 0xFFFF), 0)
    return w0, tl.where(slot + 2 < count, tl.where(slot + 3 < count, w1, w1 & 0xFFFF), 0)


@triton.jit
def add_slots(planes, members, weights, count, capacity, words, lane, selector, sums, ORDER: tl.constexpr):
    """32 sums after all slots of one order; the next slots' words are in flight while these are used."""
    quad = lane & 3
    if count > 0:
        ahead = slot_words(planes, members, 0, count, capacity, words, quad, ORDER)
        v0, v1 = slot_weights(weights, 0, lane, count)
        for first in range(0, count, 16):
            a, b, c, d = ahead
            w0, w1 = v0, v1
            following = tl.minimum(first + 16, (count - 1) // 16 * 16)
            ahead = slot_words(planes, members, following, count, capacity, words, quad, ORDER)
            v0, v1 = slot_weights(weights, following, lane, count)
            sums = add_bits(chosen_halves(a, b, selector), chosen_halves(c, d, selector), w0, w1, sums)
    return sums


@triton.jit
def per_quad(x, MAXIMUM: tl.constexpr):
    """The largest (or the sum) over warps and rows of one number per thread, back on every thread."""
    tile = tl.reshape(x, [2, 8, 4])
    if MAXIMUM:
        total = tl.max(tl.max(tile, 1), 0)
    else:
        total = tl.sum(tl.sum(tile, 1), 0)
    return tl.reshape(tl.broadcast_to(total[None, None, :], [2, 8, 4]), [64])


@triton.jit(do_not_specialize=["heads", "words", "capacity", "slots", "tiles"])
def logits_by_lanes(
    planes, members, weights, counts, sums_of_weights, lengths, logits, largests, totals, heads, words, capacity,
    slots, tiles, scale_log2, W: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [256, 8] of one tile of one row, their largest and their sum of powers per head."""
    follow(DEPENDENT)
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    thread = tl.arange(0, 64)
    lane, half = thread & 31, thread >> 5
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads)
    if tile * 256 >= length:
        at = (row * tiles + tile) * 8 + quad * 2
        tl.store(largests + at, quad * 0.0 - 1e30, mask=thread < 4)
        tl.store(largests + at + 1, quad * 0.0 - 1e30, mask=thread < 4)
        tl.store(totals + at, quad * 0.0, mask=thread < 4)
        tl.store(totals + at + 1, quad * 0.0, mask=thread < 4)
        return
    selector = 0x5410 + half * 0x2222
    own = planes + row * (W * D) * words + tile * 8 + group
    zero = thread.to(tl.float32) * 0.0
    sums = zero_sums(zero, 32)
    for order in tl.static_range(4):
        count, first = tl.load(counts + row * 8 + order), tl.load(counts + row * 8 + 4 + order)
        sums = add_slots(own, members + row * 7 * slots + first, weights + (row * slots + first) * 8, count, slots,
                         words, lane, selector, sums, 2 * order + 1)  # fmt: skip
    even, odd = zero, zero
    for part in tl.static_range(PARTS):
        at = sums_of_weights + (row * PARTS + part) * 8 + quad * 2
        even += tl.load(at)
        odd += tl.load(at + 1)
    token = tile * 256 + half * 128 + group
    found = ()
    top_even, top_odd = zero - 1e30, zero - 1e30
    for i in tl.static_range(32):
        taken = (even if i % 2 == 0 else odd) if BIT[i] != 15 else zero
        value = sums[i] * (scale_log2 * LAST[i]) - taken * scale_log2
        value = tl.minimum(tl.maximum(value, -FARTHEST), FARTHEST)
        value = tl.where(token + 8 * BIT[i] < length, value.to(tl.float16).to(tl.float32), -1e30)  # as it is stored
        if i % 2 == 0:
            top_even = tl.maximum(top_even, value)
        else:
            top_odd = tl.maximum(top_odd, value)
        found = found + (value,)  # noqa: RUF005
    top_even, top_odd = per_quad(top_even, True), per_quad(top_odd, True)
    sum_even, sum_odd = zero, zero
    out = (logits + (row * capacity + token) * 8 + quad * 2).to(tl.pointer_type(tl.int32))
    for i in tl.static_range(0, 32, 2):
        sum_even += tl.exp2(found[i] - top_even)
        sum_odd += tl.exp2(found[i + 1] - top_odd)
        tl.store(out + 32 * BIT[i], pack_half(found[i], found[i + 1]), mask=token + 8 * BIT[i] < capacity)
    sum_even, sum_odd = per_quad(sum_even, False), per_quad(sum_odd, False)
    at = (row * tiles + tile) * 8 + quad * 2
    tl.store(largests + at, top_even, mask=thread < 4)
    tl.store(largests + at + 1, top_odd, mask=thread < 4)
    tl.store(totals + at, sum_even, mask=thread < 4)
    tl.store(totals + at + 1, sum_odd, mask=thread < 4)


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
