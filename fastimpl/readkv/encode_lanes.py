"""The encoder on NVIDIA's matrix units: what a program of 8 warps does with its tokens; `encode_ptx.py` has the texts.

    keys     a tile of 256 tokens per turn: warp a takes tokens 8 a + 64 b + g (b < 4, g < 8), a quarter of the channels
             at a time; warps exchange codes through 8 KB of shared memory, so that a lane has the 32 tokens of a word
    values   128 tokens per turn, 16 per warp; a lane has 32 channels of two tokens: no exchange

    append   one token, a warp each for its values and for both halves of its keys: the same products, so the same codes;
             every group of lanes has the token, and group g writes plane g

Programs stay on their head and go through its tokens, since the table and the factors in shared memory cost a few
microseconds to make.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import encode_ptx as ptx

THREADS, COPIES = tl.constexpr(ptx.THREADS), tl.constexpr(ptx.COPIES)
SETUP = tl.constexpr([ptx.setup_text(32, False), ptx.setup_text(ptx.THREADS, True)])
SETUP_OPERANDS = tl.constexpr("=r,l,l,l,l,f,r,r,r,r")
LOAD, LOAD_OPERANDS = tl.constexpr(ptx.load_text()), tl.constexpr(",".join(["=&r"] * 16 + ["l", "r"]))
FLIP, FLIP_OPERANDS = tl.constexpr(ptx.flip_text()), tl.constexpr(",".join(["=&r"] * 16 + ["r"] * 17))
SIXTEEN, EIGHT = (tl.constexpr([tl.int32] * n) for n in (16, 8))
KINDS = ("bf16", "f16")
TEXTS = tl.constexpr([
    ptx.encode_text(pair, kind, keys, shared)
    for shared in (False, True) for keys in (False, True) for pair in range(2) for kind in KINDS
])  # fmt: skip
OPERANDS = tl.constexpr([",".join(["=&r"] * 8 + ["r", "r", kind] + ["r"] * 32) for kind in "lr"])
EXCHANGE, EXCHANGE_OPERANDS = tl.constexpr(ptx.exchange_text()), tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 11))
WORDS, WORDS_OPERANDS = tl.constexpr(ptx.values_text()), tl.constexpr(",".join(["=&r"] * 8 + ["r"] * 8))
SHARED_BASE, GLOBAL_BASE = tl.constexpr(ptx.table_base(4 * ptx.COPIES)), tl.constexpr(ptx.table_base(4))


@triton.jit
def matrix_words(lane, HALF: tl.constexpr):
    """The four words of the 16 x 16 matrix of +-1 on this lane: by output c3 and input c5; pairs are input c0."""
    one = 0x3C003C00 if HALF else 0x3F803F80
    c6, c5, c0 = (lane >> 4) & 1, (lane >> 3) & 1, (lane >> 2) & 1
    found = ()
    for word in tl.static_range(4):
        odd = (((lane >> 1) & c6) ^ (lane & (word // 2)) ^ (c5 & (word % 2))) & 1
        found = found + (one ^ (odd * -0x7FFF8000) ^ (c0 << 31),)
    return found


@triton.jit
def prepared(cells, means, scales, signs, inverse_root, thread, HALF: tl.constexpr, TABLE: tl.constexpr):
    """Fill the shared memory; its address and those of this lane's matrix, of its factors and signs, of its table."""
    lane = thread & 31
    base = tl.inline_asm_elementwise(
        SETUP[TABLE], SETUP_OPERANDS,
        (cells.to(tl.int64) + thread * 0, means.to(tl.int64), scales.to(tl.int64), signs.to(tl.int64), inverse_root)
        + matrix_words(lane, HALF),
        dtype=tl.int32, is_pure=False, pack=1,
    )  # fmt: skip
    if TABLE:
        table = base + (lane % COPIES) * 4 + SHARED_BASE
    else:
        table = cells.to(tl.int64) + GLOBAL_BASE + lane.to(tl.int64) * 0
    return base, base + lane * 16, base + (lane & 3) * 16, table


@triton.jit
def token_words(x, token, length, stride_t, lane):
    """The 16 words of one token on this lane; x points to the head's first token."""
    at = (x + token.to(tl.int64) * stride_t + (lane & 2) * 32 + (lane & 1) * 8).to(tl.int64)
    return tl.inline_asm_elementwise(LOAD, LOAD_OPERANDS, [at, (token < length).to(tl.int32)], dtype=SIXTEEN,
                                     is_pure=False, pack=1)  # fmt: skip


@triton.jit
def flipped(words, at):
    """Words of a token times the signs."""
    return tl.inline_asm_elementwise(FLIP, FLIP_OPERANDS, (at,) + words, dtype=SIXTEEN, is_pure=False, pack=1)


@triton.jit
def encode_keys_by_lanes(
    x, planes, means, scales, signs, length, cells, stride_t, inverse_root, words, tiles,
    W: tl.constexpr, D: tl.constexpr,
):  # fmt: skip
    """Planes of every tile of one row that falls to this program; pointers are those of the row's head and planes."""
    thread = tl.arange(0, THREADS)
    lane, warp = thread & 31, thread >> 5
    HALF: tl.constexpr = 1 if x.dtype.element_ty == tl.float16 else 0
    base, matrix, own, table = prepared(cells, means, scales, signs, inverse_root, thread, HALF, 1)
    # of the channel: c6 c5 from the lane, c4 c3 c0 from the warp
    channel = (lane & 3) * 32 + (warp >> 2) * 16 + ((warp >> 1) & 1) * 8 + (warp & 1)
    token = tl.program_id(0) * 256 + warp * 8 + (lane >> 2)
    low, high = two_tokens(x, token, 64, length, stride_t, lane)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        low, high = flipped(low, own), flipped(high, own)
        first = codes_of(low, high, matrix, own, table, 1, 0, HALF, 1)
        other_low, other_high = two_tokens(x, token + 128, 64, length, stride_t, lane)
        second = codes_of(low, high, matrix, own, table, 1, 1, HALF, 1)
        low, high = flipped(other_low, own), flipped(other_high, own)
        there = token * 0
        for b in tl.static_range(4):
            there = there | tl.where(token + 64 * b < length, 255 << (8 * b), 0)
        at = planes + channel.to(tl.int64) * words + tile * 8 + (lane >> 2)
        write, read = base + thread * 4, base + warp * 1024 + lane * 4
        codes = codes_of(low, high, matrix, own, table, 1, 0, HALF, 1)
        store_key_parts(first, codes, write, read, there, at, words, W, D)
        codes = codes_of(low, high, matrix, own, table, 1, 1, HALF, 1)
        token += tl.num_programs(0) * 256
        low, high = two_tokens(x, token, 64, length, stride_t, lane)
        store_key_parts(second, codes, write, read, there, at + words.to(tl.int64) * 4, words, W, D)


@triton.jit
def two_tokens(x, token, step, length, stride_t, lane):
    """The words of ``token`` and of ``token + step``."""
    return token_words(x, token, length, stride_t, lane), token_words(x, token + step, length, stride_t, lane)


@triton.jit
def codes_of(
    low, high, matrix, own, table, KEYS: tl.constexpr, PAIR: tl.constexpr, HALF: tl.constexpr, TABLE: tl.constexpr
):
    """Eight words of codes of two tokens (`encode_ptx.encode_text`)."""
    return tl.inline_asm_elementwise(TEXTS[8 * TABLE + 4 * KEYS + 2 * PAIR + HALF], OPERANDS[TABLE],
                                     (matrix, own, table) + low + high, dtype=EIGHT, is_pure=False, pack=1)  # fmt: skip


@triton.jit
def store_key_parts(codes, more, write, read, there, at, words, W: tl.constexpr, D: tl.constexpr):
    """Exchange and store the plane words of two parts."""
    for part in tl.static_range(2):
        eight = ()
        for i in tl.static_range(4):
            eight = eight + (codes[4 * part + i],)
        for i in tl.static_range(4):
            eight = eight + (more[4 * part + i],)
        bits = tl.inline_asm_elementwise(EXCHANGE, EXCHANGE_OPERANDS, (write, read, there) + eight, dtype=EIGHT,
                                         is_pure=False, pack=1)  # fmt: skip
        for plane in tl.static_range(W):
            tl.store(at + words.to(tl.int64) * (plane * D + 2 * part), bits[7 - plane])


@triton.jit
def encode_values_by_lanes(
    x, planes, means, scales, signs, length, cells, stride_t, inverse_root, capacity, tokens, W: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    """Planes of every run of 128 tokens of one row that falls to this program; pointers as for keys."""
    thread = tl.arange(0, THREADS)
    lane, warp = thread & 31, thread >> 5
    HALF: tl.constexpr = 1 if x.dtype.element_ty == tl.float16 else 0
    _, matrix, own, table = prepared(cells, means, scales, signs, inverse_root, thread, HALF, 1)
    token = tl.program_id(0) * 128 + warp * 16 + (lane >> 2)
    low, high = two_tokens(x, token, 8, length, stride_t, lane)
    for _ in range(tl.program_id(0), (tokens + 127) // 128, tl.num_programs(0)):
        low, high = flipped(low, own), flipped(high, own)
        first = codes_of(low, high, matrix, own, table, 0, 0, HALF, 1)
        next_low, next_high = two_tokens(x, token + tl.num_programs(0) * 128, 8, length, stride_t, lane)
        second = codes_of(low, high, matrix, own, table, 0, 1, HALF, 1)
        low, high = next_low, next_high
        store_words(first, second, 0, planes, token, length, capacity, lane, W, D)
        store_words(first, second, 1, planes, token + 8, length, capacity, lane, W, D)
        token += tl.num_programs(0) * 128


@triton.jit
def store_words(
    first, second, HIGH: tl.constexpr, planes, token, length, capacity, lane, W: tl.constexpr, D: tl.constexpr
):
    """Value words of groups 2 q and 2 q + 1 of one token, the second of two where HIGH, from codes of all parts."""
    codes = ()
    for part in tl.static_range(2):
        codes = codes + (first[4 * part + 2 * HIGH], first[4 * part + 2 * HIGH + 1])
    for part in tl.static_range(2):
        codes = codes + (second[4 * part + 2 * HIGH], second[4 * part + 2 * HIGH + 1])
    found = tl.inline_asm_elementwise(WORDS, WORDS_OPERANDS, codes, dtype=EIGHT, is_pure=False, pack=1)
    live = tl.where(token < length, -1, 0)
    for pair in tl.static_range((W + 1) // 2):
        kept = live if 2 * pair + 1 < W else live & 0xFFFF
        both = (found[2 * pair] & kept).to(tl.uint32).to(tl.int64) | ((found[2 * pair + 1] & kept).to(tl.int64) << 32)
        at = planes + (pair * capacity + token).to(tl.int64) * (D // 16) + (lane & 3) * 2
        tl.store(at.to(tl.pointer_type(tl.int64)), both, mask=token < capacity)


@triton.jit
def append_value_by_lanes(
    x, planes, means, scales, signs, token, cells, inverse_root, capacity, W: tl.constexpr, D: tl.constexpr
):
    """Value words of one vector x [D] at ``token``, nothing where that is not below ``capacity``; one warp."""
    lane = tl.arange(0, 32)
    HALF: tl.constexpr = 1 if x.dtype.element_ty == tl.float16 else 0
    _, matrix, own, table = prepared(cells, means, scales, signs, inverse_root, lane, HALF, 0)
    words = flipped(token_words(x, lane * 0, 1, 0, lane), own)
    first = codes_of(words, words, matrix, own, table, 0, 0, HALF, 0)
    second = codes_of(words, words, matrix, own, table, 0, 1, HALF, 0)
    store_words(first, second, 0, planes, tl.where(lane < 4, token, capacity), capacity, capacity, lane, W, D)


@triton.jit
def append_key_by_lanes(
    x, planes, means, scales, signs, token, cells, inverse_root, capacity, words, PAIR: tl.constexpr, W: tl.constexpr,
    D: tl.constexpr,
):  # fmt: skip
    """The bit of ``token`` in key words of one vector x [D], of channels of parts 2 PAIR and 2 PAIR + 1; one warp."""
    lane = tl.arange(0, 32)
    HALF: tl.constexpr = 1 if x.dtype.element_ty == tl.float16 else 0
    _, matrix, own, table = prepared(cells, means, scales, signs, inverse_root, lane, HALF, 0)
    own_words = flipped(token_words(x, lane * 0, 1, 0, lane), own)
    codes = codes_of(own_words, own_words, matrix, own, table, 1, PAIR, HALF, 0)
    plane, k = lane >> 2, token % 256 // 8
    live = (plane < W) & (lane * 0 + token < capacity)
    at = planes + (plane * D + (lane & 3) * 32 + 4 * PAIR).to(tl.int64) * words + (token // 256 * 8 + token % 8)
    before = ()
    for i in tl.static_range(16):  # (part, c4, c3, c0)
        channel = 2 * (i // 8) + 16 * (i // 4 % 2) + 8 * (i // 2 % 2) + i % 2
        before = before + (tl.load(at + words.to(tl.int64) * channel, mask=live, other=0),)
    for i in tl.static_range(16):
        channel = 2 * (i // 8) + 16 * (i // 4 % 2) + 8 * (i // 2 % 2) + i % 2
        bit = (codes[i // 2] >> (16 * (i % 2) + 7 - plane)) & 1
        tl.store(at + words.to(tl.int64) * channel, (before[i] & ~(1 << k)) | (bit << k), mask=live)
