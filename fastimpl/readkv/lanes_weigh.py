"""Between the fast reader's passes: importances of value tokens and their bins, a token's eight logits in one load.

Mirrors `refimpl.readkv.importance.readkv_value_importance` inside the reader; `weigh.weigh_kernel` is the plain twin.

    weigh_by_lanes   grid (blocks, rows)   log-masses of tiles -> of the row; logits [256 B per 16 tokens] -> squared
                                           weights -> importance -> bins in shared memory, added to the pool's once;
                                           a pool's last program then finds the bracket of its bar (`threshold.py`)

An item belongs to one thread: a value that Triton keeps in several threads would be counted several times.
Bytes: 16 per token read, 4 per item written.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow
from fastimpl.readkv.bar import row_items
from fastimpl.readkv.lanes import half_of, load_four, power_of_two
from fastimpl.readkv.threshold import BINS, arrive, bin_of, bracket_of, item_cost

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
def log_mass_of_row(masses, row, tiles, STEP: tl.constexpr):
    """Base-2 log-masses [8] of a row out of its tiles'."""
    group, lane = tl.arange(0, 8), tl.arange(0, STEP)
    top, total = tl.full([STEP, 8], -1e30, tl.float32), tl.zeros([STEP, 8], tl.float32)
    for first in range(0, tiles, STEP):
        tile = first + lane
        mass = tl.load(masses + (row * tiles + tile)[:, None] * 8 + group[None, :], mask=(tile < tiles)[:, None],
                       other=-1e30)  # fmt: skip
        higher = tl.maximum(top, mass)
        total = total * tl.exp2(top - higher) + tl.exp2(mass - higher)
        top = higher
    most = tl.max(top, 0)
    return most + tl.log2(tl.maximum(tl.sum(total * tl.exp2(top - most[None, :]), 0), 1e-30))


@triton.jit
def eight_logits(logits, token):
    """The eight float16 logits of tokens [N], in four words."""
    return load_four(logits + token.to(tl.int64) * 8)


@triton.jit
def item_logits(logits, item, items_capacity, PAIRED: tl.constexpr):
    """The logits of an item's tokens; beyond the row's room, of its last."""
    item = tl.minimum(item, items_capacity - 1)
    if PAIRED:
        found = eight_logits(logits, item * 2) + eight_logits(logits, item * 2 + 1)
    else:
        found = eight_logits(logits, item)
    return found


@triton.jit
def squares_of(words, doubled, G: tl.constexpr, WORDS: tl.constexpr):
    """Sums of squared weights of tokens' logits, four words each, under twice the log-masses."""
    total = words[0].to(tl.float32) * 0.0
    for i in tl.static_range(WORDS):
        for half in tl.static_range(2):
            if i % 4 * 2 + half < G:
                total += power_of_two(half_of(words[i], half) * 2.0 - doubled[i % 4 * 2 + half])
    return total


@triton.jit
def weigh_by_lanes(
    logits, masses, lses, importance, bins, suffixes, lefts, gains, state, lengths, heads, capacity, items_capacity,
    tiles, rows_per_pool, cost, minimum, programs, G: tl.constexpr, ITEMS: tl.constexpr, STEPS: tl.constexpr,
    STEP: tl.constexpr, PAIRED: tl.constexpr, THREADS: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Importances of STEPS * ITEMS items of one row, added to its pool's bins through bins in shared memory."""
    own = cleared_bins(THREADS)
    follow(DEPENDENT)
    row, group = tl.program_id(1).to(tl.int64), tl.arange(0, 8)
    logits += row * capacity * 8
    room = capacity // 2 if PAIRED else capacity
    first = tl.program_id(0) * (STEPS * ITEMS) + tl.arange(0, ITEMS)
    words = item_logits(logits, first, room, PAIRED)
    lse = log_mass_of_row(masses, row, tiles, STEP)
    if tl.program_id(0) == 0:
        tl.store(lses + row * 8 + group, lse)
    doubled = ()
    for g in tl.static_range(8):
        doubled = doubled + (2.0 * tl.sum(tl.where(group == g, lse, 0.0), 0),)
    items, one, last = row_items(lengths, row, heads, 0, cost, cost, True, PAIRED)
    for step in tl.static_range(STEPS):
        item = first + step * ITEMS
        following = words
        if step + 1 < STEPS:
            following = item_logits(logits, item + ITEMS, room, PAIRED)
        value = squares_of(words, doubled, G, 8 if PAIRED else 4)
        tl.store(importance + row * items_capacity + item, value, mask=item < items)
        tl.inline_asm_elementwise(ADD_TO_BIN, "=r,r,r",
                                  [own + 4 * bin_of(value), item_cost(item, items, one, last)], dtype=tl.int32,
                                  is_pure=False, pack=1)  # fmt: skip
        words = following
    tl.debug_barrier()
    j = tl.arange(0, BINS)
    amount = shared_word(READ_BIN, own + 4 * j)
    pool = row // rows_per_pool
    tl.atomic_add(bins + pool * BINS + j, amount, mask=amount > 0, sem="relaxed")
    if arrive(state + pool * STATE, programs):
        bracket_of(bins, suffixes, lefts, gains, state, pool, minimum, LEVELS, W_PAD, STATE)
