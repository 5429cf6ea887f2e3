"""Between the fast reader's passes: importances of value tokens and their bins, a token's eight logits in one load.

Mirrors `refimpl.readkv.importance.readkv_value_importance` inside the reader; `weigh.weigh_kernel` is the plain twin.

    weigh_by_lanes   grid (blocks, rows)   logits [256 B per 16 tokens] -> weights -> importance -> bins in shared memory,
                                           added to the pool's once

An item belongs to one thread: a value that Triton keeps in several threads would be counted several times.
Bytes: 16 per token read, 4 per item written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.bar import row_items
from fastimpl.readkv.lanes import FOUR, LOAD_FOUR
from fastimpl.readkv.threshold import BINS, bin_of, item_cost
from fastimpl.readkv.weigh import log_mass_of_tiles

OWN_BINS = tl.constexpr("{.shared .align 16 .b8 importance_bins[16384]; mov.u32 $0, importance_bins;}")
CLEAR_BIN = tl.constexpr("{.reg .b32 z; mov.b32 z, 0; st.shared.b32 [$1], z; mov.b32 $0, z;}")
ADD_TO_BIN = tl.constexpr("red.shared.add.u32 [$1], $2; mov.b32 $0, 0;")
READ_BIN = tl.constexpr("ld.shared.b32 $0, [$1];")


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
        each = each + (tl.sum(tl.where(group == g, lse, 0.0), 0),)
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
