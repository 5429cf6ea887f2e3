"""The encoder's kernels: keys and values to bit planes, and one token more. `cache.py` draws the planes' layout.

Mirrors `refimpl.readkv.reader.encode_cache`.

    encode_keys_kernel     grid (tiles, rows)             x --rotate--> v --(v * factor + offset)--> u = (z + 4) / 8
    encode_values_kernel   grid (tokens / TOKENS, rows)     --step, cell--> code (`tree.cells`) --> words
    append_kernel          grid (rows, 2)                 one token: one bit of every key word, one word per 16 channels

factor = 1 / (8 sqrt(d) scale), offset = 1/2 - mean / (8 scale), each rounded to float32; z is cut to steps of 2^-20 from
-4 on, and a split counts from the first step at or above it, so a z that is such a step gets its code exactly.
With PTX (`encode_lanes.py`: bfloat16 or float16, d = 128), grids are smaller and programs go on to the next tile.
Bytes: every key or value read once, one byte per scalar written (W = 8).
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import tree
from fastimpl.readkv.encode_lanes import (
    append_key_by_lanes,
    append_value_by_lanes,
    encode_keys_by_lanes,
    encode_values_by_lanes,
)
from fastimpl.readkv.rotation import rotated_rows

CELLS, STEPS = tl.constexpr(tree.CELLS), tl.constexpr(tree.STEPS)


@triton.jit
def plane_bits(code, plane):
    """Bit ``plane`` of leaf codes, first bit first."""
    return (code >> (7 - plane)) & 1


@triton.jit
def store_value_words(
    code, planes, token, capacity, W: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr
):
    """Words of codes [TOKENS, D_PAD], all pairs of planes; bits of channels beyond D are 0."""
    WORDS: tl.constexpr = (D + 15) // 16
    WORDS_PAD: tl.constexpr = D_PAD // 16
    bits = tl.reshape(code, [TOKENS, WORDS_PAD, 16])
    i, word_at = tl.arange(0, 16), tl.arange(0, WORDS_PAD)
    for pair in tl.static_range((W + 1) // 2):
        word = tl.sum(plane_bits(bits, 2 * pair) << i[None, None, :], 2)
        if 2 * pair + 1 < W:
            word = word | (tl.sum(plane_bits(bits, 2 * pair + 1) << i[None, None, :], 2) << 16)
        at = (pair * capacity + token).to(tl.int64)[:, None] * WORDS + word_at[None, :]
        tl.store(planes + at, word, mask=(token < capacity)[:, None] & (word_at < WORDS)[None, :])


@triton.jit
def factor_and_offset(means, scales, channel, inverse_root, D: tl.constexpr):
    """What takes a channel's unscaled rotated number to (z + 4) / 8; pointers are those of the head."""
    mean = tl.load(means + channel, mask=channel < D, other=0.0)
    scale = tl.load(scales + channel, mask=channel < D, other=1.0)
    return tl.div_rn(channel * 0.0 + inverse_root, scale) * 0.125, 0.5 - tl.div_rn(mean, scale) * 0.125


@triton.jit
def leaf_of(value, factor, offset, cells):
    """Leaf numbers of unscaled rotated numbers: z in steps of 2^-20, rounded down; a number that is none counts as -4."""
    u = tl.fma(value, tl.broadcast_to(factor, value.shape), tl.broadcast_to(offset, value.shape))
    u = tl.where(u > 0.0, tl.minimum(u, 1.0), 0.0)
    step = (u * STEPS).to(tl.int32)  # exact: a power of two
    word = tl.load(cells + (step.to(tl.int64) * CELLS // STEPS))
    return ((4 * step + word) >> 16) & 255


@triton.jit
def leaves_of(
    x, means, scales, signs, cells, token, length, channel, stride_t, inverse_root, CODES: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Leaf codes [tokens, D_PAD] of tokens of one row, 0 where there is none. CODES: x are leaf codes already."""
    live = (token < length)[:, None] & (channel < D)[None, :]
    at = x + token.to(tl.int64)[:, None] * stride_t + channel[None, :]
    if CODES:
        code = tl.load(at, mask=live, other=0).to(tl.int32)
    else:
        value = tl.load(at, mask=live, other=0.0)
        sign = tl.load(signs + channel, mask=channel < D, other=0.0)[None, :]
        value = rotated_rows((value.to(tl.float32) * sign).to(value.dtype), D, D_PAD)
        factor, offset = factor_and_offset(means, scales, channel, inverse_root, D)
        code = tl.where(live, leaf_of(value, factor[None, :], offset[None, :], cells), 0)
    return code


@triton.jit
def encode_values_kernel(
    x, planes, means, scales, signs, lengths, cells, stride_n, stride_h, stride_t, heads, inverse_root, capacity,
    tokens, CODES: tl.constexpr, PTX: tl.constexpr, W: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr,
):  # fmt: skip
    """Value planes of one row: of TOKENS tokens, or, with PTX, of every run of 128 tokens that falls to the program."""
    row = tl.program_id(1).to(tl.int64)
    n, head = row // heads, row % heads
    own, means, scales = x + n * stride_n + head * stride_h, means + head * D, scales + head * D
    length = tl.minimum(tl.load(lengths + n), tokens)
    planes += row * ((W + 1) // 2) * capacity * ((D + 15) // 16)
    if PTX:
        encode_values_by_lanes(own, planes, means, scales, signs, length,
                               cells, stride_t, inverse_root, capacity, tokens, W, D)  # fmt: skip
    else:
        token, channel = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS), tl.arange(0, D_PAD)
        code = leaves_of(own, means, scales, signs, cells, token, length, channel, stride_t, inverse_root, CODES, D,
                         D_PAD)  # fmt: skip
        store_value_words(code, planes, token, capacity, W, TOKENS, D, D_PAD)


@triton.jit
def encode_keys_kernel(
    x, planes, means, scales, signs, lengths, cells, stride_n, stride_h, stride_t, heads, inverse_root, words, tokens,
    CODES: tl.constexpr, PTX: tl.constexpr, W: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Key planes of one row: of one tile, or, with PTX, of every tile that falls to the program."""
    row = tl.program_id(1).to(tl.int64)
    n, head = row // heads, row % heads
    own, means, scales = x + n * stride_n + head * stride_h, means + head * D, scales + head * D
    length = tl.minimum(tl.load(lengths + n), tokens)
    planes += row * (W * D) * words
    if PTX:
        encode_keys_by_lanes(own, planes, means, scales, signs, length, cells, stride_t,
                             inverse_root, words, (tokens + 255) // 256, W, D)  # fmt: skip
    else:
        store_key_words(own, planes, means, scales, signs, cells, length, stride_t, inverse_root, words, CODES, W,
                        D, D_PAD)  # fmt: skip


@triton.jit
def store_key_words(
    x, planes, means, scales, signs, cells, length, stride_t, inverse_root, words, CODES: tl.constexpr,
    W: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Words of one tile: word g has every eighth token from g on."""
    tile, channel = tl.program_id(0), tl.arange(0, D_PAD)
    k, g = tl.arange(0, 32), tl.arange(0, 8)
    found = ()
    for _ in tl.static_range(W):
        found = found + (tl.zeros([8, D_PAD], tl.int32),)
    for word in range(8):
        code = leaves_of(x, means, scales, signs, cells, tile * 256 + k * 8 + word, length, channel, stride_t,
                         inverse_root, CODES, D, D_PAD)  # fmt: skip
        more = ()
        for plane in tl.static_range(W):
            bits = tl.sum(plane_bits(code, plane) << k[:, None], 0)
            more = more + (tl.where((g == word)[:, None], bits[None, :], found[plane]),)
        found = more
    for plane in tl.static_range(W):
        at = (plane * D + channel).to(tl.int64)[None, :] * words + (tile * 8 + g)[:, None]
        tl.store(planes + at, found[plane], mask=(channel < D)[None, :])


@triton.jit
def append_kernel(
    keys, values, key_planes, value_planes, key_mean, key_scale, value_mean, value_scale, key_signs, value_signs,
    lengths, cells, heads, inverse_root, capacity, words, PTX: tl.constexpr, W: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr,
):  # fmt: skip
    """One token of one row, keys and values [rows, D], at the row's length; nothing where the row is full.

    Programs 0 of a row write its values; program 1, or with PTX programs 1 and 2, its keys.
    """
    row, own = tl.program_id(0).to(tl.int64), tl.program_id(1)
    head, token = row % heads * D, tl.load(lengths + row // heads)
    key_planes += row * (W * D) * words
    value_planes += row * ((W + 1) // 2) * capacity * ((D + 15) // 16)
    keys, values, key_mean, value_mean = keys + row * D, values + row * D, key_mean + head, value_mean + head
    key_scale, value_scale = key_scale + head, value_scale + head
    if PTX:
        if own == 0:
            append_value_by_lanes(values, value_planes, value_mean, value_scale, value_signs, token, cells,
                                  inverse_root, capacity, W, D)  # fmt: skip
        elif own == 1:
            append_key_by_lanes(keys, key_planes, key_mean, key_scale, key_signs, token, cells, inverse_root, capacity,
                                words, 0, W, D)  # fmt: skip
        else:
            append_key_by_lanes(keys, key_planes, key_mean, key_scale, key_signs, token, cells, inverse_root, capacity,
                                words, 1, W, D)  # fmt: skip
    elif own == 0:
        code = leaf_of_row(values, value_signs, value_mean, value_scale, cells, inverse_root, D, D_PAD)
        store_value_words(code[None, :], value_planes, token + tl.arange(0, 1), capacity, W, 1, D, D_PAD)
    else:
        channel = tl.arange(0, D_PAD)
        live = (channel < D) & (channel * 0 + token < capacity)
        code = leaf_of_row(keys, key_signs, key_mean, key_scale, cells, inverse_root, D, D_PAD)
        word_at, k = token // 256 * 8 + token % 8, token % 256 // 8
        for plane in tl.static_range(W):
            at = key_planes + (plane * D + channel).to(tl.int64) * words + word_at
            word = tl.load(at, mask=live, other=0)
            tl.store(at, (word & ~(1 << k)) | (plane_bits(code, plane) << k), mask=live)


@triton.jit
def lengthen_kernel(lengths, count, capacity, BLOCK: tl.constexpr):
    """Every length one more, ``capacity`` at most."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    length = tl.load(lengths + at, mask=at < count, other=0)
    tl.store(lengths + at, tl.minimum(length + 1, capacity), mask=at < count)


@triton.jit
def leaf_of_row(x, signs, means, scales, cells, inverse_root, D: tl.constexpr, D_PAD: tl.constexpr):
    """Leaf codes [D_PAD] of one row x [D]; 0 beyond D."""
    channel = tl.arange(0, D_PAD)
    live = channel < D
    value = tl.load(x + channel, mask=live, other=0.0)
    sign = tl.load(signs + channel, mask=live, other=0.0)
    rows = tl.where((tl.arange(0, 16) == 0)[:, None], (value.to(tl.float32) * sign)[None, :], 0.0)
    rotated = tl.sum(rotated_rows(rows.to(value.dtype), D, D_PAD), 0)
    factor, offset = factor_and_offset(means, scales, channel, inverse_root, D)
    return tl.where(live, leaf_of(rotated, factor, offset, cells), 0)
