"""The fast reader's first pass: key logits of 256 tokens per warp, every depth 0..8 exactly, up to 8 query heads.

Mirrors the key decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.key_logits_kernel` is the plain twin.

    logits_by_lanes   grid (tiles, rows), 1 warp    planes copied ahead into shared memory, 8 groups of 16 slots
        slots (`slots.py`) --xor of planes--> words --masks, products--> logits [256, 8] float16, in base 2

Both halves of every word go through the products, so a warp keeps 64 sums. Bytes: one sector of 32 per plane of a
channel, 16 per token written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.lanes import FOUR, LAST, add_bits, high_halves, low_halves, pack_half, zero_sums

BIT = tl.constexpr([i // 4 + 8 * (i // 2 % 2) for i in range(32)])
"""The bit of a half that sum i is about."""

RING = tl.constexpr("{.shared .align 128 .b8 key_ring[8192]; mov.u32 $0, key_ring;}")
COPY = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16, $3; mov.b32 $0, 0;")
COMMIT = tl.constexpr("cp.async.commit_group; mov.b32 $0, 0;")
SYNC = tl.constexpr("bar.warp.sync 0xffffffff; mov.b32 $0, 0;")
READ_FOUR = tl.constexpr(
    "ld.shared.b32 $0, [$4]; ld.shared.b32 $1, [$4+128]; ld.shared.b32 $2, [$4+256]; ld.shared.b32 $3, [$4+384];"
)
READ_OPERANDS = tl.constexpr("=&r,=&r,=&r,=&r,r")
STAGES = tl.constexpr([8, 4, 2, 2])
WAITS = tl.constexpr([f"cp.async.wait_group {n}; bar.warp.sync 0xffffffff; mov.b32 $0, 0;" for n in (6, 2, 0, 0)])
"""Groups of 16 slots of order 1, 3, 5, 7 that the ring holds, and how long to wait for the oldest."""

FARTHEST = tl.constexpr(60000.0)
"""Logits are kept within float16."""


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
            a, b, c, d = tl.inline_asm_elementwise(READ_FOUR, READ_OPERANDS, [at], dtype=FOUR, is_pure=False, pack=1)
            for j in tl.static_range(1, ORDER):
                e, f, g, h = tl.inline_asm_elementwise(READ_FOUR, READ_OPERANDS, [at + 512 * j], dtype=FOUR,
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
        found = found + (value,)
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
