"""The cache that readers are served from: planes as 32-bit words, and the encoder that writes them.

Mirrors `refimpl.readkv.reader.encode_cache` and `refimpl.readkv.planes.append_*_planes`, in another layout:

    key planes   [rows, W, d, tiles * 8]       a tile is 256 tokens; token 256 i + 8 k + g is bit k of word 8 i + g:
                                               one sector of 32 bytes holds a tile of one channel's plane
    value planes [rows, ceil(W/2), T, d/16]    a word holds 16 channels, plane 2p in its low half, 2p + 1 in its high
                                               half: one sector holds a token's pair of planes at d = 128

    encode    grid (tiles, rows) for keys, (tokens / TOKENS, rows) for values: x -> rotate -> (x - mean) / scale -> leaf
                                  -> words
    append    grid (rows)                   one token: one bit of every key word, one word per 16 value channels

A row is one KV head of one sequence; rows hold ``capacity`` tokens, lengths lie on the device. Bytes: every key or
value read once, one byte per scalar written (W = 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

from fastimpl.device import INTERPRETED, padded
from fastimpl.readkv.codec import leaf_of
from fastimpl.readkv.rotation import rotated_rows
from fastimpl.readkv.tree import tables

TILE = 256
"""Tokens of a sector of key planes."""


@dataclass(frozen=True)
class PlaneCache:
    """Planes and public state of ``rows`` = N * H KV heads.

    ``key_planes`` and ``value_planes`` int32 as the module draws them; means and scales [H, d]; signs [d]; float32.
    ``lengths`` [N] int32 on the device, ``capacity`` tokens per row, ``longest`` an upper bound of the lengths.
    """

    key_planes: torch.Tensor
    value_planes: torch.Tensor
    key_mean: torch.Tensor
    key_scale: torch.Tensor
    value_mean: torch.Tensor
    value_scale: torch.Tensor
    key_signs: torch.Tensor
    value_signs: torch.Tensor
    lengths: torch.Tensor
    stored_depth: int
    longest: int

    @property
    def heads(self) -> int:
        """H."""
        return self.key_scale.shape[0]

    @property
    def channels(self) -> int:
        """The head size d."""
        return self.key_scale.shape[1]

    @property
    def rows(self) -> int:
        """N * H."""
        return self.key_planes.shape[0]

    @property
    def capacity(self) -> int:
        """Tokens that a row has room for."""
        return self.value_planes.shape[2]

    @property
    def retained_bytes(self) -> int:
        """Bytes of all planes, whether filled or not."""
        return 4 * (self.key_planes.numel() + self.value_planes.numel())


def empty_cache(N: int, capacity: int, state: dict[str, torch.Tensor], stored_depth: int = 8) -> PlaneCache:
    """A cache of N empty sequences with room for ``capacity`` tokens each; ``state``: means, scales and signs."""
    H, d = state["key_scale"].shape
    device, tiles = state["key_scale"].device, -(-max(capacity, 1) // TILE)
    keys = torch.zeros((N * H, stored_depth, d, tiles * 8), dtype=torch.int32, device=device)
    values = torch.zeros((N * H, -(-stored_depth // 2), tiles * TILE, -(-d // 16)), dtype=torch.int32, device=device)
    lengths = torch.zeros(N, dtype=torch.int32, device=device)
    return PlaneCache(keys, values, **state, lengths=lengths, stored_depth=stored_depth, longest=tiles * TILE)


@triton.jit
def plane_bits(code, plane):
    """Bit ``plane`` of leaf codes, first bit first."""
    return (code >> (7 - plane)) & 1


@triton.jit
def store_value_words(
    code, planes, row, token, capacity, W: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr
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
        at = ((row * ((W + 1) // 2) + pair) * capacity + token)[:, None] * WORDS + word_at[None, :]
        tl.store(planes + at, word, mask=(token < capacity)[:, None] & (word_at < WORDS)[None, :])


@triton.jit
def leaves_of(
    x, means, scales, signs, buckets, token, length, channel, head, stride_t, inverse_root, CODES: tl.constexpr,
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
        value = rotated_rows((value.to(tl.float32) * sign).to(value.dtype), D, D_PAD) * inverse_root
        mean = tl.load(means + head * D + channel, mask=channel < D, other=0.0)[None, :]
        scale = tl.load(scales + head * D + channel, mask=channel < D, other=1.0)[None, :]
        z = tl.div_rn(value - mean, tl.broadcast_to(scale, value.shape))
        code = tl.where(live, leaf_of(z, buckets), 0)
    return code


@triton.jit
def encode_values_kernel(
    x, planes, means, scales, signs, lengths, buckets, stride_n, stride_h, stride_t, heads, inverse_root, capacity,
    CODES: tl.constexpr, W: tl.constexpr, TOKENS: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Value planes of TOKENS tokens of one row."""
    row, token, channel = (
        tl.program_id(1).to(tl.int64),
        tl.program_id(0) * TOKENS + tl.arange(0, TOKENS),
        tl.arange(0, D_PAD),
    )
    n, head = row // heads, row % heads
    code = leaves_of(x + n * stride_n + head * stride_h, means, scales, signs, buckets, token, tl.load(lengths + n),
                     channel, head, stride_t, inverse_root, CODES, D, D_PAD)  # fmt: skip
    store_value_words(code, planes, row, token, capacity, W, TOKENS, D, D_PAD)


@triton.jit
def encode_keys_kernel(
    x, planes, means, scales, signs, lengths, buckets, stride_n, stride_h, stride_t, heads, inverse_root, words,
    CODES: tl.constexpr, W: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Key planes of one tile of one row: word g has every eighth token from g on."""
    row, tile, channel = tl.program_id(1).to(tl.int64), tl.program_id(0), tl.arange(0, D_PAD)
    n, head = row // heads, row % heads
    length = tl.load(lengths + n)
    k, g = tl.arange(0, 32), tl.arange(0, 8)
    found = ()
    for _ in tl.static_range(W):
        found = found + (tl.zeros([8, D_PAD], tl.int32),)
    for word in range(8):
        code = leaves_of(x + n * stride_n + head * stride_h, means, scales, signs, buckets, tile * 256 + k * 8 + word,
                         length, channel, head, stride_t, inverse_root, CODES, D, D_PAD)  # fmt: skip
        more = ()
        for plane in tl.static_range(W):
            bits = tl.sum(plane_bits(code, plane) << k[:, None], 0)
            more = more + (tl.where((g == word)[:, None], bits[None, :], found[plane]),)
        found = more
    for plane in tl.static_range(W):
        at = ((row * W + plane) * D + channel)[None, :] * words + (tile * 8 + g)[:, None]
        tl.store(planes + at, found[plane], mask=(channel < D)[None, :])


@triton.jit
def append_kernel(
    keys, values, key_planes, value_planes, key_mean, key_scale, value_mean, value_scale, key_signs, value_signs,
    lengths, buckets, heads, inverse_root, capacity, words, W: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """One token of one row, keys and values [rows, D], at the row's length; nothing where the row is full."""
    row, channel = tl.program_id(0).to(tl.int64), tl.arange(0, D_PAD)
    head, token = row % heads, tl.load(lengths + row // heads)
    live = (channel < D) & (channel * 0 + token < capacity)
    code = leaf_of_row(keys, key_signs, key_mean, key_scale, buckets, row, head, inverse_root, D, D_PAD)
    word_at, k = token // 256 * 8 + token % 8, token % 256 // 8
    for plane in tl.static_range(W):
        at = key_planes + ((row * W + plane) * D + channel) * words + word_at
        word = tl.load(at, mask=live, other=0)
        tl.store(at, (word & ~(1 << k)) | (plane_bits(code, plane) << k), mask=live)
    code = leaf_of_row(values, value_signs, value_mean, value_scale, buckets, row, head, inverse_root, D, D_PAD)
    store_value_words(code[None, :], value_planes, row, token + tl.arange(0, 1), capacity, W, 1, D, D_PAD)


@triton.jit
def leaf_of_row(x, signs, means, scales, buckets, row, head, inverse_root, D: tl.constexpr, D_PAD: tl.constexpr):
    """Leaf codes [D_PAD] of one row x [D]; 0 beyond D."""
    channel = tl.arange(0, D_PAD)
    live = channel < D
    value = tl.load(x + row * D + channel, mask=live, other=0.0)
    sign = tl.load(signs + channel, mask=live, other=0.0)
    rows = tl.where((tl.arange(0, 16) == 0)[:, None], (value.to(tl.float32) * sign)[None, :], 0.0)
    rotated = tl.sum(rotated_rows(rows.to(value.dtype), D, D_PAD), 0) * inverse_root
    mean = tl.load(means + head * D + channel, mask=live, other=0.0)
    scale = tl.load(scales + head * D + channel, mask=live, other=1.0)
    return tl.where(live, leaf_of(tl.div_rn(rotated - mean, scale), buckets), 0)


def encode(cache: PlaneCache, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write the planes of keys and values [N, H, T, d] (or of their uint8 codes), tokens up to the cache's lengths."""
    _, H, T, d = keys.shape
    if keys.numel() == 0:
        return
    shape = {"CODES": keys.dtype == torch.uint8, "W": cache.stored_depth, "D": d, "D_PAD": padded(d)}
    buckets, root, tokens = tables(keys.device).buckets, 1.0 / math.sqrt(d), TILE if INTERPRETED.value else 64
    encode_keys_kernel[(-(-T // TILE), cache.rows)](
        keys, cache.key_planes, cache.key_mean, cache.key_scale, cache.key_signs, cache.lengths, buckets,
        *keys.stride()[:3], H, root, cache.key_planes.shape[3], num_warps=4, **shape,
    )  # fmt: skip
    encode_values_kernel[(-(-T // tokens), cache.rows)](
        values, cache.value_planes, cache.value_mean, cache.value_scale, cache.value_signs, cache.lengths, buckets,
        *values.stride()[:3], H, root, cache.capacity, TOKENS=tokens, num_warps=8, **shape,
    )  # fmt: skip


def append(cache: PlaneCache, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write one token, keys and values [N, H, d], to every sequence and make its length one more."""
    d = cache.channels
    append_kernel[(cache.rows,)](
        keys.contiguous(), values.contiguous(), cache.key_planes, cache.value_planes, cache.key_mean, cache.key_scale,
        cache.value_mean, cache.value_scale, cache.key_signs, cache.value_signs, cache.lengths,
        tables(keys.device).buckets, cache.heads, 1.0 / math.sqrt(d), cache.capacity, cache.key_planes.shape[3],
        W=cache.stored_depth, D=d, D_PAD=padded(d), num_warps=4,
    )  # fmt: skip
    cache.lengths.add_(1).clamp_(max=cache.capacity)
