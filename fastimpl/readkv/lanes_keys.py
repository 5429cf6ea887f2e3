"""The fast reader's first pass: key logits of 256 tokens per program, every depth 0..8 exactly, up to 8 query heads.

Mirrors the key decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.key_logits_kernel` is the plain twin.

    logits_by_lanes   grid (tiles, rows), 2 warps   rows of planes copied ahead into shared memory, 8 groups of 32
        groups (`slots.py`) --xor of planes--> 8 words --masks, integer products (`keys_ptx.py`)--> sums
        sums --unit--> logits [256, 8] float16, in base 2; their log-mass [8] per tile

A warp takes two of the four bytes of every word and keeps 64 sums. Bytes: one sector of 32 per plane of a channel, each
once; 16 per token written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import keys_ptx as ptx
from fastimpl.readkv.lanes import FOUR, LOAD_FOUR, half_of, log_of_two, pack_half, power_of_two

BLOCK, BLOCK_OPERANDS = tl.constexpr(ptx.block_text()), tl.constexpr(ptx.block_constraints())
READ, READ_OPERANDS = tl.constexpr(ptx.read_text(8)), tl.constexpr(",".join(["=&r"] * 8 + ["r"]))
EIGHT, SUMS = tl.constexpr([tl.int32] * 8), tl.constexpr([tl.int32] * ptx.SUMS)
STAGES = tl.constexpr(8)
RING = tl.constexpr("{.shared .align 128 .b8 key_ring[8320]; mov.u32 $0, key_ring;}")
COPY = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16, $3; cp.async.commit_group; mov.b32 $0, 0;")
WAIT = tl.constexpr("cp.async.wait_group 6; bar.sync 0; mov.b32 $0, 0;")
"""All but the last 6 groups copied have arrived, in both warps' copies."""

CLAMP = tl.constexpr(
    "{.reg .b32 m; mov.b32 m, 0x7B537B53; min.f16x2 $0, $1, m; mov.b32 m, 0xFB53FB53; max.f16x2 $0, $0, m;}"
)
"""Logits are kept within 60000, a float16."""

HIGHER = tl.constexpr("max.f16x2 $0, $1, $2;")
ACROSS = tl.constexpr([f"shfl.sync.bfly.b32 $0, $1, {step}, 0x1f, 0xffffffff;" for step in (4, 8, 16)])
KEEP = tl.constexpr("st.shared.b32 [$1], $2; mov.b32 $0, 0;")
SYNC = tl.constexpr("bar.sync 0; mov.b32 $0, 0;")
FETCH = tl.constexpr("ld.shared.b32 $0, [$1];")


@triton.jit
def effect(text: tl.constexpr, operands: tl.constexpr, arguments):
    """A word out of a text that is run where it stands."""
    return tl.inline_asm_elementwise(text, operands, arguments, dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def word_of(text: tl.constexpr, operands: tl.constexpr, arguments):
    """A word out of a text without effects."""
    return tl.inline_asm_elementwise(text, operands, arguments, dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def load_four(at):
    """Four words of 16 bytes."""
    return tl.inline_asm_elementwise(LOAD_FOUR, "=r,=r,=r,=r,l", [at.to(tl.int64)], dtype=FOUR, is_pure=False, pack=1)


@triton.jit
def copy_group(member, planes, target, stage):
    """Start the copy of a group into the ring: half a sector of a thread's row; 0 where there is none."""
    effect(COPY, "=r,r,l,r", (target + stage, (planes + member).to(tl.int64), tl.where(member < 0, 0, 16)))


@triton.jit
def next_words(members, member, planes, target, at, stage):
    """A lane's eight words of the group at ``stage`` of the ring, and the row that its thread copies in the next turn."""
    effect(WAIT, "=r,r", (at,))
    found = tl.inline_asm_elementwise(READ, READ_OPERANDS, [at + stage], dtype=EIGHT, is_pure=False, pack=1)
    copy_group(member, planes, target, (stage - 1024) & (STAGES * 1024 - 1))
    return found, tl.load(members)


@triton.jit
def add_block(words, selector, weights, sums):
    """The sums after one block of slots."""
    return tl.inline_asm_elementwise(BLOCK, BLOCK_OPERANDS, words + (selector,) + weights + sums, dtype=SUMS,
                                     is_pure=True, pack=1)  # fmt: skip


@triton.jit
def odd_subsets(a, b, c, d):
    """Words of the eight slots of a channel's first block."""
    return (a, b, c, a ^ b ^ c, d, a ^ b ^ d, a ^ c ^ d, b ^ c ^ d)


@triton.jit
def turned(words, other):
    """Eight words, each turned over where ``other`` is set."""
    return (words[0] ^ other, words[1] ^ other, words[2] ^ other, words[3] ^ other, words[4] ^ other, words[5] ^ other,
            words[6] ^ other, words[7] ^ other)  # fmt: skip


@triton.jit
def sums_of_groups(members, first_rows, counts, planes, weights, target, at, selector, sums):
    """64 sums of every lane after all groups of a row; ``first_rows``: those of the first seven."""
    fours, eights, sixteens = tl.load(counts), tl.load(counts + 1), tl.load(counts + 2)
    groups = fours + eights + sixteens + tl.load(counts + 3)
    at8, at7, at6, at5 = tl.load(counts + 4), tl.load(counts + 5), tl.load(counts + 6), tl.load(counts + 7)
    for i in tl.static_range(STAGES - 1):
        copy_group(first_rows[i], planes, target, i * 1024)
    next_row, block, stage = (STAGES - 1) * 32, 0, 0
    member = tl.load(members + next_row)
    for group in range(fours):
        weight = load_four(weights + block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        slots = odd_subsets(p[0], p[1], p[2], p[3])
        sums = add_block(slots, selector, weight, sums)
        if group < at5:
            blocks = 2 << ((group < at6).to(tl.int32) + (group < at7).to(tl.int32) + (group < at8).to(tl.int32))
            for k in range(1, blocks):
                weight = load_four(weights + block)
                block += 512
                plane = tl.where(k % 2 == 1, p[4], tl.where(k % 4 == 2, p[5], tl.where(k % 8 == 4, p[6], p[7])))
                slots = turned(slots, plane ^ p[0])
                sums = add_block(slots, selector, weight, sums)
    for _ in range(fours, fours + eights):
        weight = load_four(weights + block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        slots = (p[0], p[1], p[2], p[0] ^ p[1] ^ p[2], p[4], p[5], p[6], p[4] ^ p[5] ^ p[6])
        sums = add_block(slots, selector, weight, sums)
    for _ in range(fours + eights, groups):
        weight = load_four(weights + block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        sums = add_block(p, selector, weight, sums)
    return sums


@triton.jit
def sum_of_bit(sums, place: tl.constexpr, BIT: tl.constexpr):
    """2^BIT times the sum of weights over one bit, as float32."""
    high, low = sums[4 * BIT + place], sums[32 + 4 * BIT + place]
    if BIT == 7:  # of the whole byte, less the other seven
        for b in tl.static_range(7):
            high -= sums[4 * b + place]
            low -= sums[32 + 4 * b + place]
    return high.to(tl.float32) * 256.0 + low.to(tl.float32)


@triton.jit
def packed_logits(sums, even, odd, even_rest, odd_rest):
    """16 words of two heads' float16 logits: of bit b and row half r at 2 b + r."""
    found = ()
    for i in tl.static_range(16):
        first = sum_of_bit(sums, 2 * (i % 2), i // 2) * (even * 0.5 ** (i // 2)) - even_rest
        second = sum_of_bit(sums, 2 * (i % 2) + 1, i // 2) * (odd * 0.5 ** (i // 2)) - odd_rest
        found = found + (word_of(CLAMP, "=&r,r", (pack_half(first, second),)),)
    return found


@triton.jit
def inside(found, room):
    """The same words, -inf for tokens from ``room`` on, counted from the lane's first."""
    kept = ()
    for i in tl.static_range(16):
        kept = kept + (tl.where(8 * (i // 2) + 64 * (i % 2) < room, found[i], -0x3FF0400),)  # -inf twice
    return kept


@triton.jit
def across(x, STEP: tl.constexpr):
    """A word of the lane that differs in one bit of its number: 4, 8 or 16 for STEP 0, 1, 2."""
    return tl.inline_asm_elementwise(ACROSS[STEP], "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def log_mass(found):
    """Base-2 log-masses of a warp's tokens, of two heads, on every lane of a quad."""
    top = found[0]
    for i in tl.static_range(1, 16):
        top = word_of(HIGHER, "=r,r,r", (top, found[i]))
    for i in tl.static_range(3):
        top = word_of(HIGHER, "=r,r,r", (top, across(top, i)))
    even, odd = tl.maximum(half_of(top, 0), -60001.0), tl.maximum(half_of(top, 1), -60001.0)  # no token: finite
    first, second = even * 0.0, odd * 0.0
    for i in tl.static_range(16):
        first += power_of_two(half_of(found[i], 0) - even)
        second += power_of_two(half_of(found[i], 1) - odd)
    for i in tl.static_range(3):
        first += across(first.to(tl.int32, bitcast=True), i).to(tl.float32, bitcast=True)
        second += across(second.to(tl.int32, bitcast=True), i).to(tl.float32, bitcast=True)
    return even + log_of_two(first), odd + log_of_two(second)


@triton.jit
def store_mass(found, at, masses, thread):
    """The log-mass of both warps' tokens, one thread per head; 34 words of shared memory at ``at``."""
    even, odd = log_mass(found)
    lane, own = thread & 31, at + (thread >> 5) * 64
    own = own + tl.where(lane < 4, lane * 8, 32)  # words that nobody reads, for lanes of other groups
    effect(KEEP, "=r,r,f", (own, even))
    effect(KEEP, "=r,r,f", (own + 4, odd))
    effect(SYNC, "=r,r", (thread,))
    first = effect(FETCH, "=r,r", (at + (thread & 7) * 4,)).to(tl.float32, bitcast=True)
    second = effect(FETCH, "=r,r", (at + 64 + (thread & 7) * 4,)).to(tl.float32, bitcast=True)
    top = tl.maximum(first, second)
    mass = top + log_of_two(power_of_two(first - top) + power_of_two(second - top))
    tl.store(masses + thread, mass, mask=thread < 8)


@triton.jit(do_not_specialize=["heads", "words", "capacity", "tiles", "groups_capacity", "blocks_capacity"])
def logits_by_lanes(
    planes, members, weights, counts, sums_of_weights, units, lengths, logits, masses, heads, words, capacity, tiles,
    groups_capacity, blocks_capacity, scale_log2, W: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [256, 8] of one tile of one row, and their log-mass per head."""
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    thread = tl.arange(0, 64)
    lane, warp = thread & 31, thread >> 5
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads)
    ring = effect(RING, "=r,r", (thread,))
    follow(DEPENDENT)
    place, half = thread >> 1, thread & 1  # a thread copies half a sector of a row
    members += row * groups_capacity * 32 + place
    first_rows = ()
    for i in tl.static_range(STAGES - 1):
        first_rows = first_rows + (tl.load(members + i * 32),)
    masses += (row * tiles + tile) * 8
    if tile * 256 >= length:
        tl.store(masses + thread, thread * 0.0 - 1e30, mask=thread < 8)
        return
    sums = ()
    for _ in tl.static_range(64):
        sums = sums + (thread * 0,)
    target = ring + (place & 7) * 128 + (place >> 3) * 32 + half * 16
    sums = sums_of_groups(members, first_rows, counts + row * 8,
                          planes + row * (W * D) * words + tile * 8 + half * 4, weights + row * blocks_capacity * 512 + lane * 16,
                          target, ring + quad * 32 + group * 4, tl.where(warp == 0, 0x5140, 0x7362), sums)  # fmt: skip
    own = sums_of_weights + (row * 8 + quad * 2) * PARTS
    even, odd = thread * 0, thread * 0
    for part in tl.static_range(0, PARTS, 4):
        first, second = load_four(own + part), load_four(own + PARTS + part)
        even += first[0] + first[1] + first[2] + first[3]
        odd += second[0] + second[1] + second[2] + second[3]
    even_unit = tl.load(units + row * 8 + quad * 2) * scale_log2
    odd_unit = tl.load(units + row * 8 + quad * 2 + 1) * scale_log2
    found = packed_logits(sums, 2.0 * even_unit, 2.0 * odd_unit, even.to(tl.float32) * even_unit,
                          odd.to(tl.float32) * odd_unit)  # fmt: skip
    token = tile * 256 + warp * 128 + group
    if tile * 256 + 256 > length:
        found = inside(found, length - token)
    out = (logits + (row * capacity + token) * 8 + quad * 2).to(tl.pointer_type(tl.int32))
    for i in tl.static_range(16):
        tl.store(out + 4 * (8 * (i // 2) + 64 * (i % 2)), found[i])
    store_mass(found, ring + 8192, masses, thread)
