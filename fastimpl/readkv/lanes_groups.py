"""A group of 16 value tokens of one list, by one warp: its loads, its weights, its bits or codes, its products.

Lane 4 g + q has tokens 4q .. 4q + 3 of the group: their weights of head g, and their bits of channels 16g .. 16g + 15
(see `lanes_ptx.py`). PAIRED: tokens 4q and 4q + 1 are neighbours, and so are 4q + 2 and 4q + 3.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import lanes_ptx, value_ptx
from fastimpl.readkv.lanes import SUMS, add_bits_and_ones, high_halves, low_halves, times_half
from fastimpl.readkv.lanes_lists import TOKEN_BITS

CODES, CODES_OPERANDS = tl.constexpr(lanes_ptx.codes_text()), tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 8))
PAIR_CODES, PAIR_CODES_OPERANDS = (
    tl.constexpr(lanes_ptx.pair_codes_text()),
    tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 4)),
)
PAIR_TABLE = tl.constexpr(lanes_ptx.pair_table_text())
PAIR_TABLE_OPERANDS = tl.constexpr(lanes_ptx.pair_table_constraints())
EIGHT = tl.constexpr([tl.int32] * 8)
TABLE, TABLE_OPERANDS = tl.constexpr(lanes_ptx.table_text()), tl.constexpr(lanes_ptx.table_constraints())
WEIGHTS = tl.constexpr(value_ptx.weights_text())
ONE, TWO = tl.constexpr([tl.int32]), tl.constexpr([tl.int32] * 2)
WORDS_OF = tl.constexpr([[value_ptx.words_text(count, stride) for count in (1, 2)] for stride in (16, 32)])
WORDS_IF = tl.constexpr([[value_ptx.words_if_text(count, stride) for count in (1, 2)] for stride in (16, 32)])
LOGITS = tl.constexpr([value_ptx.words_text(count, 16, "u16") for count in (1, 2)])
TOKEN_MASK = tl.constexpr((1 << value_ptx.TOKEN_BITS) - 1)


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

    ``source``: addresses of token 0's logit and of its word in each pair of planes. DEPTH 5 stands for 5 and more: only
    those read a fourth pair of planes that are deep enough.
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
    return tl.inline_asm_elementwise(
        CODES, CODES_OPERANDS, first, dtype=EIGHT, is_pure=True, pack=1
    ) + tl.inline_asm_elementwise(CODES, CODES_OPERANDS, second, dtype=EIGHT, is_pure=True, pack=1)


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
    return tl.inline_asm_elementwise(
        PAIR_CODES, PAIR_CODES_OPERANDS, first, dtype=EIGHT, is_pure=True, pack=1
    ) + tl.inline_asm_elementwise(PAIR_CODES, PAIR_CODES_OPERANDS, second, dtype=EIGHT, is_pure=True, pack=1)


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
