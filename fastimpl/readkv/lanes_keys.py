"""The fast reader's first pass: key logits of 256 tokens per program, every depth 0..8 exactly, up to 8 query heads.

Mirrors the key decoder of `refimpl.readkv.reader.read_two_stages`; `prefix.key_logits_kernel` is the plain twin.

    logits_by_lanes   grid (runs of tiles, rows), 2 warps   rows of planes copied ahead into shared memory, 8 groups of 32
        groups (`slots.py`) --xor of planes--> 8 words --masks, integer products (`keys_ptx.py`)--> sums
        sums --unit--> logits [256, 8] float16, in base 2; their log-mass [8] per tile

A warp takes two of the four bytes of every word and keeps 64 sums. The first 16 blocks of weights are copied into shared
memory at once: a load per group would wait for the L2 cache each time. Planes that are read in any case are asked for
before the kernel before has ended; where a program has several tiles, the first groups of the next are on their way
while logits are made. Bytes: one sector of 32 per plane of a channel, each once; 16 per token written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv import keys_ptx as ptx
from fastimpl.readkv.lanes import FOUR, effect
from fastimpl.readkv.lanes_logits import inside, offsets_of, packed_logits, store_mass

BLOCK, BLOCK_OPERANDS = tl.constexpr(ptx.block_text()), tl.constexpr(ptx.block_constraints())
READ, READ_OPERANDS = tl.constexpr(ptx.read_text(8)), tl.constexpr(",".join(["=&r"] * 8 + ["r"]))
EIGHT, SUMS = tl.constexpr([tl.int32] * 8), tl.constexpr([tl.int32] * ptx.SUMS)
STAGES, MASSES_AT, KEPT_AT, KEPT_BYTES = tl.constexpr(8), tl.constexpr(8192), tl.constexpr(8320), tl.constexpr(16 * 512)
RING = tl.constexpr("{.shared .align 128 .b8 key_ring[16512]; mov.u32 $0, key_ring;}")
"""Eight stages, the warps' log-masses, and the first blocks of weights."""

COPY = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16, $3; cp.async.commit_group; mov.b32 $0, 0;")
KEEP_WEIGHTS = tl.constexpr("cp.async.cg.shared.global [$1], [$2], 16; mov.b32 $0, 0;")
WEIGHTS, WEIGHTS_OPERANDS = tl.constexpr(ptx.weights_text()), tl.constexpr("=&r,=&r,=&r,=&r,r,l,r")
WAIT = tl.constexpr("cp.async.wait_group 6; bar.sync 0; mov.b32 $0, 0;")
"""All but the last 6 groups copied have arrived, in both warps' copies."""

DRAIN = tl.constexpr("cp.async.wait_group 0; bar.sync 0; mov.b32 $0, 0;")
"""The ring is free: all copies have arrived, and both warps have read what they need."""

ASK = tl.constexpr("prefetch.global.L2 [$1]; mov.b32 $0, 0;")


@triton.jit
def copy_group(member, planes, target, stage):
    """Start the copy of a group into the ring: half a sector of a thread's row; 0 where there is none."""
    effect(COPY, "=r,r,l,r", (target + stage, (planes + member).to(tl.int64), tl.where(member < 0, 0, 16)))


@triton.jit
def keep_weights(weights, kept, thread):
    """Start the copy of a row's first blocks of weights; the next `copy_group` closes the batch."""
    for first in tl.static_range(0, KEPT_BYTES, 1024):
        at = first + thread * 16
        effect(KEEP_WEIGHTS, "=r,r,l", (kept + at, (weights + at).to(tl.int64)))


@triton.jit
def block_weights(weights, kept, block):
    """A lane's weights of the block that lies ``block`` bytes after the first."""
    return tl.inline_asm_elementwise(
        WEIGHTS, WEIGHTS_OPERANDS, [kept + block, (weights + block).to(tl.int64), (block < KEPT_BYTES).to(tl.int32)],
        dtype=FOUR, is_pure=False, pack=1,
    )  # fmt: skip


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
def sums_of_groups(members, counts, planes, weights, kept, target, at, selector, sums):
    """64 sums of every lane after all groups of a row, of which the first seven are on their way."""
    fours, eights, sixteens = tl.load(counts), tl.load(counts + 1), tl.load(counts + 2)
    groups = fours + eights + sixteens + tl.load(counts + 3)
    at8, at7, at6, at5 = tl.load(counts + 4), tl.load(counts + 5), tl.load(counts + 6), tl.load(counts + 7)
    next_row, block, stage = (STAGES - 1) * 32, 0, 0
    member = tl.load(members + next_row)
    effect(WAIT, "=r,r", (at,))  # the weights came with the first tile's first group
    for group in range(fours):
        weight = block_weights(weights, kept, block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        slots = odd_subsets(p[0], p[1], p[2], p[3])
        sums = add_block(slots, selector, weight, sums)
        if group < at5:
            blocks = 2 << ((group < at6).to(tl.int32) + (group < at7).to(tl.int32) + (group < at8).to(tl.int32))
            for k in range(1, blocks):
                weight = block_weights(weights, kept, block)
                block += 512
                plane = tl.where(k % 2 == 1, p[4], tl.where(k % 4 == 2, p[5], tl.where(k % 8 == 4, p[6], p[7])))
                slots = turned(slots, plane ^ p[0])
                sums = add_block(slots, selector, weight, sums)
    for _ in range(fours, fours + eights):
        weight = block_weights(weights, kept, block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        slots = (p[0], p[1], p[2], p[0] ^ p[1] ^ p[2], p[4], p[5], p[6], p[4] ^ p[5] ^ p[6])
        sums = add_block(slots, selector, weight, sums)
    for _ in range(fours + eights, groups):
        weight = block_weights(weights, kept, block)
        next_row += 32
        p, member = next_words(members + next_row, member, planes, target, at, stage)
        stage = (stage + 1024) & (STAGES * 1024 - 1)
        block += 512
        sums = add_block(p, selector, weight, sums)
    return sums


@triton.jit
def ask_ahead(planes, thread, words, D: tl.constexpr, AHEAD: tl.constexpr):
    """Bring the first AHEAD planes of every channel's tile to the L2 cache: they are read whatever the depths are."""
    for first in tl.static_range(0, AHEAD * D, 64):
        effect(ASK, "=r,l", ((planes + (first + thread) * words).to(tl.int64),))


@triton.jit
def first_members(members):
    """The rows that a thread copies of a row's first groups."""
    rows = ()
    for i in tl.static_range(STAGES - 1):
        rows = rows + (tl.load(members + i * 32),)
    return rows


@triton.jit
def copy_first_groups(rows, planes, target):
    """Start the copies of a tile's first groups."""
    for i in tl.static_range(STAGES - 1):
        copy_group(rows[i], planes, target, i * 1024)


@triton.jit
def store_logits(found, logits, masses, token, room, ring, thread):
    """A tile's logits, from a lane's ``token`` on, -inf from ``room`` on, and their log-mass."""
    if room < 256:
        found = inside(found, room - token)
    out = (logits + token * 8).to(tl.pointer_type(tl.int32))
    for i in tl.static_range(16):
        tl.store(out + 4 * (8 * (i // 2) + 64 * (i % 2)), found[i])
    store_mass(found, ring + MASSES_AT, masses, thread)


@triton.jit(do_not_specialize=["heads", "words", "capacity", "tiles", "groups_capacity", "blocks_capacity", "steps"])
def logits_by_lanes(
    planes, members, weights, counts, sums_of_weights, units, lengths, logits, masses, heads, words, capacity, tiles,
    groups_capacity, blocks_capacity, steps, scale_log2, W: tl.constexpr, D: tl.constexpr, PARTS: tl.constexpr,
    AHEAD: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [256, 8] of ``steps`` tiles of one row, and their log-masses per head."""
    first, row = tl.program_id(0) * steps, tl.program_id(1).to(tl.int64)
    thread = tl.arange(0, 64)
    lane, warp = thread & 31, thread >> 5
    group, quad = lane >> 2, lane & 3
    length = tl.load(lengths + row // heads).to(tl.int32)
    ring = effect(RING, "=r,r", (thread,))
    planes += row * (W * D) * words + first * 8
    ask_ahead(planes, thread, words, D, AHEAD)
    follow(DEPENDENT)
    place, half = thread >> 1, thread & 1  # a thread copies half a sector of a row
    members += row * groups_capacity * 32 + place
    rows = first_members(members)
    masses, logits = masses + row * tiles * 8, logits + row * capacity * 8 + quad * 2
    last = tl.minimum(first + steps, tiles)
    end = tl.minimum(last, (length + 255) // 256)
    target = ring + (place & 7) * 128 + (place >> 3) * 32 + half * 16
    planes, weights, kept = planes + half * 4, weights + row * blocks_capacity * 512, ring + KEPT_AT
    if first < end:
        keep_weights(weights, kept, thread)
        copy_first_groups(rows, planes, target)
    even, odd, even_rest, odd_rest = offsets_of(sums_of_weights, units, row, quad, scale_log2, PARTS)
    for tile in range(first, end):
        sums = ()
        for _ in tl.static_range(64):
            sums = sums + (thread * 0,)
        sums = sums_of_groups(members, counts + row * 8, planes, weights + lane * 16, kept + lane * 16, target,
                              ring + quad * 32 + group * 4, tl.where(warp == 0, 0x5140, 0x7362), sums)  # fmt: skip
        effect(DRAIN, "=r,r", (ring,))
        planes += 8
        if tile + 1 < end:
            copy_first_groups(first_members(members), planes, target)
        found = packed_logits(sums, 2.0 * even, 2.0 * odd, even_rest, odd_rest)
        store_logits(found, logits + tile.to(tl.int64) * 2048, masses + tile * 8, warp * 128 + group, length - tile * 256,
                     ring, thread)  # fmt: skip
    for tile in range(tl.maximum(first, end), last):  # past the row's end
        tl.store(masses + tile * 8 + thread, thread * 0.0 - 1e30, mask=thread < 8)
