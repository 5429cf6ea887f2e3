"""What the fast reader's first kernel does with a channel per thread: rotation, depths, and whole blocks of slots.

The same depths, members, weights, counts and units as `choose.bought_steps` and `slots.store_slots` make; what they
reduce over a program, each time with barriers, goes through ballots and one tally in shared memory here (`choose_ptx.py`).
Program ``part`` of a row's eight writes every eighth block of weights and four of every 32 groups of members, a word per
thread, so that stores are whole lines; its sums are those of its own blocks' weights.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import round_to_even
from fastimpl.readkv import choose_ptx, value_ptx
from fastimpl.readkv import prepare_ptx as ptx
from fastimpl.readkv.lanes import effect, load_shared
from fastimpl.readkv.slots import LARGEST, group_counts

MEMORY, FILL, ARRIVED = tl.constexpr(ptx.MEMORY), tl.constexpr(ptx.fill_text()), tl.constexpr(ptx.ARRIVED)
TALLY_AT, CHANNELS_AT = tl.constexpr(ptx.TALLY_AT), tl.constexpr(ptx.CHANNELS_AT)
TOPS_AT = tl.constexpr(ptx.TALLY_AT + 8 * choose_ptx.WARPS)
COEFFICIENTS_AT, LARGEST_AT = tl.constexpr(ptx.COEFFICIENTS_AT), tl.constexpr(ptx.LARGEST_AT)
PAIRS_AT, QUERIES_AT, ROW = tl.constexpr(ptx.PAIRS_AT), tl.constexpr(ptx.QUERIES_AT), tl.constexpr(ptx.ROW_BYTES)
BOUGHT = tl.constexpr([choose_ptx.bought_text(levels) for levels in range(1, 9)])
BOUGHT_OPERANDS = tl.constexpr(["=&r" + ",r" * (levels + 2) for levels in range(1, 9)])
TALLY, TALLY_OPERANDS = tl.constexpr(choose_ptx.tally_text()), tl.constexpr("=&r" + ",r" * 10)
PRODUCT, PRODUCT_OPERANDS = tl.constexpr(ptx.PRODUCT), tl.constexpr("=f,=f,=f,=f,r,r,r,r,r,f,f,f,f")
STORE_WORD, STORE_TWO = tl.constexpr(ptx.STORE_WORD), tl.constexpr(ptx.STORE_TWO)
STORE_FLOAT = tl.constexpr(ptx.STORE_FLOAT)
LOAD_WORD = tl.constexpr(value_ptx.LOAD_WORD)
LOAD_TWO, LOAD_FLOAT, SQUARE = tl.constexpr(ptx.LOAD_TWO), tl.constexpr(ptx.LOAD_FLOAT), tl.constexpr(ptx.SQUARE)
STORE_ENTRY = tl.constexpr(value_ptx.STORE_ENTRY)
TWO = tl.constexpr([tl.int32] * 2)
FOUR_SUMS = tl.constexpr([tl.float32] * 4)
PICK = tl.constexpr("prmt.b32 $0, $1, $2, $3;")
BESIDE = tl.constexpr([f"shfl.sync.bfly.b32 $0, $1, {step}, 0x1f, 0xffffffff;" for step in (1, 4, 8)])


@triton.jit
def load_float(at):
    """Float32 of shared memory."""
    return tl.inline_asm_elementwise(LOAD_FLOAT, "=f,r", [at], dtype=tl.float32, is_pure=False, pack=1)


@triton.jit
def square(x):
    """x^2, rounded."""
    return tl.inline_asm_elementwise(SQUARE, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def store_pairs(raw, sign, memory, thread):
    """Queries of eight heads times signs, two heads to a word."""
    flip = (sign.to(tl.int32, bitcast=True) >> 16) & 0x8000
    for i in tl.static_range(4):
        low = (raw[2 * i].to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) ^ flip
        high = (raw[2 * i + 1].to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) ^ flip
        effect(STORE_WORD, "=r,r,r", (memory + PAIRS_AT + i * ROW + thread * 4, low | (high << 16)))


@triton.jit
def rotate_pairs(memory, thread, inverse_root, D: tl.constexpr):
    """Rotated queries of 8 heads into shared memory: 16 channels at a time by +-H_16 of 16 channels each.

    The Hadamard matrix has 16 x 16 blocks of one matrix and its negative; lane 4 g + q makes its entries.
    """
    group, quad, warp = (thread & 31) >> 2, thread & 3, thread >> 5
    selector = tl.where((group & 1) == 0, 0x5410, 0x7632)
    own = memory + PAIRS_AT + (group >> 1) * ROW + quad * 8
    rows = ()
    for k in tl.static_range(D // 8):
        words = tl.inline_asm_elementwise(LOAD_TWO, "=r,=r,r", [own + 32 * k], dtype=TWO, is_pure=False, pack=1)
        rows = rows + (tl.inline_asm_elementwise(PICK, "=r,r,r,r", [words[0], words[1], selector], dtype=tl.int32,
                                                 is_pure=True, pack=1),)  # fmt: skip
    odd = ((quad & 1) & (group >> 1)) ^ ((quad >> 1) & (group >> 2))  # of the bits that 2 q and g share
    ones = 0x3F803F80 ^ ((odd & 1) << 15) ^ (((odd ^ group) & 1) << 31)
    zero, none = thread.to(tl.float32) * 0.0, thread * 0
    for i in tl.static_range(D // 64):
        block = warp * (D // 64) + i
        for half in tl.static_range(2):
            sums = (zero, zero, zero, zero)
            for k in tl.static_range(D // 16):
                turn = ((block & k) ^ ((block & k) >> 1) ^ ((block & k) >> 2)) & 1
                first = ones ^ (turn * -0x7FFF8000)  # both signs
                second = first ^ (-0x7FFF8000 if half else 0)
                sums = tl.inline_asm_elementwise(
                    PRODUCT, PRODUCT_OPERANDS, (rows[2 * k], rows[2 * k + 1], none, first, second) + sums,
                    dtype=FOUR_SUMS, is_pure=True, pack=1,
                )  # fmt: skip
            at = memory + QUERIES_AT + group * ROW + block * 64 + half * 32 + quad * 8
            effect(STORE_TWO, "=r,r,f,f", (at, sums[0] * inverse_root, sums[1] * inverse_root))


@triton.jit
def rank_of(depth, inside, memory, warp):
    """A channel's rank by falling depth, and the eight counts of groups (`slots.py`)."""
    a0, b0, a1, b1 = load_shared(memory + TALLY_AT)
    a2, b2, a3, b3 = load_shared(memory + TALLY_AT + 16)
    low = tl.where(warp > 0, a0, 0) + tl.where(warp > 1, a1, 0) + tl.where(warp > 2, a2, 0)
    high = tl.where(warp > 0, b0, 0) + tl.where(warp > 1, b1, 0) + tl.where(warp > 2, b2, 0)
    total = (a0 + a1 + a2 + a3, b0 + b1 + b2 + b3)
    count, before, reached = total[0] * 0, depth * 0, ()
    for i in tl.static_range(8):
        earlier = ((high if i < 4 else low) >> (8 * ((7 - i) % 4))) & 255
        before = tl.where(depth == 8 - i, count + earlier, before)
        count += (total[1 if i < 4 else 0] >> (8 * ((7 - i) % 4))) & 255
        reached = reached + (count,)
    return before + inside, group_counts(reached)


@triton.jit
def place_of_group(group, counts):
    """The rank of a group's first channel, and the binary logarithm of a quad's channels in it."""
    fours, eights, sixteens = counts[0], counts[1], counts[2]
    past8, past16, past32 = group - fours, group - fours - eights, group - fours - eights - sixteens
    first = tl.where(past8 < 0, 4 * group, 4 * fours + 8 * past8)
    first = tl.where(past16 < 0, first, 4 * fours + 8 * eights + 16 * past16)
    first = tl.where(past32 < 0, first, 4 * fours + 8 * eights + 16 * sixteens + 32 * past32)
    return first, (past8 >= 0).to(tl.int32) + (past16 >= 0).to(tl.int32) + (past32 >= 0).to(tl.int32)


@triton.jit
def channel_of(memory, first, shift, quad, slot):
    """Channel and depth (from bit 8 on) of a slot of a group, and which of the channel's own slots it is."""
    rank = first + (quad << shift) + (slot >> (3 - shift))
    at = memory + CHANNELS_AT + 4 * tl.minimum(rank, 128)
    return effect(LOAD_WORD, "=r,r", (at,)), slot & ((8 >> shift) - 1)


@triton.jit
def store_members(members, memory, counts, part, thread, words, D: tl.constexpr, PARTS: tl.constexpr):
    """Rows of planes of four of every 32 groups; the PARTS groups after the last have none."""
    lane, groups = thread & 31, counts[0] + counts[1] + counts[2] + counts[3]
    for start in range(part * 4, groups + PARTS, 4 * PARTS):
        group = start + (thread >> 5)
        first, shift = place_of_group(group, counts)
        entry, plane = channel_of(memory, first, shift, lane >> 3, lane & 7)
        member = tl.where(plane < (entry >> 8), (plane * D + (entry & 255)) * words, -1)
        tl.store(members + group * 32 + lane, member, mask=group < groups + PARTS)


@triton.jit
def group_of_block(block, counts):
    """The group that a block belongs to, and which of the group's blocks it is."""
    at8, at7, at6, at5 = counts[4], counts[5], counts[6], counts[7]
    to7, to6 = 16 * at8, 16 * at8 + 8 * (at7 - at8)
    to5, to4 = to6 + 4 * (at6 - at7), to6 + 4 * (at6 - at7) + 2 * (at5 - at6)
    shift, begin, group = 4, 0, 0
    if block >= to4:
        shift, begin, group = 0, to4, at5
    elif block >= to5:
        shift, begin, group = 1, to5, at6
    elif block >= to6:
        shift, begin, group = 2, to6, at7
    elif block >= to7:
        shift, begin, group = 3, to7, at8
    inside = block - begin
    return group + (inside >> shift), inside & ((1 << shift) - 1)


@triton.jit
def block_count(counts):
    """Blocks of a row."""
    return counts[0] + counts[1] + counts[2] + counts[3] + counts[7] + 2 * counts[6] + 4 * counts[5] + 8 * counts[4]


@triton.jit
def store_blocks(weights, memory, counts, inverse, part, thread, PARTS: tl.constexpr):
    """Every PARTS-th block of weights, a word per thread: four slots' high or low bytes. Their sums, by head."""
    quad, low, half = (thread >> 2) & 3, (thread >> 1) & 1, thread & 1
    queries = memory + QUERIES_AT + (thread >> 4) * ROW
    total = thread * 0
    for block in range(part, block_count(counts), PARTS):
        group, k = group_of_block(block, counts)
        first, shift = place_of_group(group, counts)
        word = thread * 0
        for i in tl.static_range(4):
            entry, slot = channel_of(memory, first, shift, quad, half * 4 + i)
            factor = load_float(memory + COEFFICIENTS_AT + (entry >> 8) * 512 + k * 32 + slot * 4)
            query = load_float(queries + (entry & 255) * 4)
            value = round_to_even(query * factor * inverse).to(tl.int32)
            total += value
            high = (value + 128) >> 8
            word |= (tl.where(low == 0, high, value) & 255) << (8 * i)  # the low byte of value - 256 high
        tl.store((weights + block * 512).to(tl.pointer_type(tl.int32)) + thread, word)
    for i in tl.static_range(3):
        total += tl.inline_asm_elementwise(BESIDE[i], "=r,r", [total], dtype=tl.int32, is_pure=True, pack=1)
    return total


@triton.jit
def store_slots_by_lanes(
    queries, depth, largest_of, members, weights, counts, sums, units, memory, thread, words, row, part,
    D: tl.constexpr, PARTS: tl.constexpr, GROUPS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    """A part of one row's slots: eight heads' queries times scales and the depth of a channel per thread."""
    tops = ()
    for head in tl.static_range(8):
        tops = tops + ((tl.abs(queries[head]) * largest_of).to(tl.int32, bitcast=True),)
    inside = effect(TALLY, TALLY_OPERANDS, (depth,) + tops + (memory + TALLY_AT,))
    rank, found = rank_of(depth, inside, memory, thread >> 5)
    effect(STORE_ENTRY, "=r,r,r,r", (memory + CHANNELS_AT + 4 * rank, thread | (depth << 8), depth))
    t0, t1, t2, t3 = load_shared(memory + TOPS_AT + (thread >> 4) * 16)
    top = tl.maximum(tl.maximum(t0, t1), tl.maximum(t2, t3)).to(tl.float32, bitcast=True)
    unit = tl.maximum(top, 1e-30) / LARGEST
    tl.debug_barrier()
    store_members(members + row * (GROUPS * 32), memory, found, part, thread, words, D, PARTS)
    total = store_blocks(weights + row * (BLOCKS * 512), memory, found, 1.0 / unit, part, thread, PARTS)
    own = row * 8 + (thread >> 4)
    tl.store(sums + own * PARTS + part, total, mask=(thread & 15) == 0)
    if part == 0:
        tl.store(units + own, unit, mask=(thread & 15) == 0)
        count = thread * 0
        for i in tl.static_range(8):
            count = tl.where(thread == i, found[i], count)
        tl.store(counts + row * 8 + thread, count, mask=thread < 8)
