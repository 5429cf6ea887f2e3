"""Reading prefixes, plainly: centroids of prefixes from planes, float32 products. Every depth 0..8, any G and d.

Mirrors the decoders of `refimpl.readkv.reader.read_two_stages`; `lanes_keys.py` and `lanes_values.py` do the same on NVIDIA's matrix
units.

    key_logits_kernel   grid (tiles, rows)    planes below each channel's depth -> centroids [d, TOKENS] --dot q--> logits
    value_mix_kernel    grid (splits, rows)   planes below each token's depth -> centroids [TOKENS, d] --dot weights--> mix

The means of keys add the same to every logit and are left out; the means of values are added by `merge.py`. A plane at
or beyond a depth is never loaded. Bytes: depth / 8 bytes per scalar, 4 per logit and query head.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import dot, follow
from fastimpl.readkv.bar import BAR, CUT, REST
from fastimpl.readkv.threshold import steps_at

MASKED = tl.constexpr(-1e30)
"""The logit of a token that is not there."""


@triton.jit
def key_logits_kernel(
    planes, queries, scales, depths, centroids, lengths, logits, largests, totals, heads, words, capacity, scale_log2,
    tiles, W: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr, GP: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr, TOKENS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [TOKENS, GP] of one tile of one row, their largest and their sum of powers per head."""
    follow(DEPENDENT)
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    token, channel, group = tile * TOKENS + tl.arange(0, TOKENS), tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    length = tl.load(lengths + row // heads)
    live = channel < D
    depth = tl.load(depths + row * D + channel, mask=live, other=0)
    word_at, k = token // 256 * 8 + token % 8, token % 256 // 8
    prefix = tl.zeros([D_PAD, TOKENS], tl.int32)
    for plane in tl.static_range(W):
        read = live & (plane < depth)
        word = tl.load(planes + ((row * W + plane) * D + channel)[:, None] * words + word_at[None, :],
                       mask=read[:, None] & (token < length)[None, :], other=0)  # fmt: skip
        prefix = tl.where(read[:, None], prefix * 2 + ((word >> k[None, :]) & 1), prefix)
    z = tl.load(centroids + ((1 << depth) - 1)[:, None] + prefix)
    scale = tl.load(scales + row % heads * D + channel, mask=live, other=0.0)
    query = tl.load(queries + (row * G + group)[:, None] * D + channel[None, :],
                    mask=(group < G)[:, None] & live[None, :], other=0.0)  # fmt: skip
    logit = dot(query * scale[None, :], z) * scale_log2
    logit = tl.where((token < length)[None, :], logit, MASKED)
    largest = tl.max(logit, 1)
    total = tl.sum(tl.where((token < length)[None, :], tl.exp2(logit - largest[:, None]), 0.0), 1)
    at = (row * capacity + token)[None, :] * GP + group[:, None]
    tl.store(logits + at, logit, mask=(group < GP)[:, None] & (token < capacity)[None, :])
    at = (row * tiles + tile) * GP + group
    tl.store(largests + at, largest, mask=group < GP)
    tl.store(totals + at, total, mask=group < GP)


@triton.jit
def value_mix_kernel(
    planes, logits, lses, importance, gains, state, centroids, lengths, depths, mixes, heads, capacity, items_capacity,
    rows_per_pool, minimum, splits, W: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr, GP: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr, TOKENS: tl.constexpr, LEVELS: tl.constexpr, W_PAD: tl.constexpr,
    PAIRED: tl.constexpr, STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of one run of tokens, and sum of weight times centroid [G, d] over it."""
    follow(DEPENDENT)
    split, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    channel, group = tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    length = tl.load(lengths + row // heads)
    own = state + row // rows_per_pool * STATE
    bar, cut, rest = (
        tl.load(own + BAR).to(tl.int32),
        tl.load(own + CUT).to(tl.int32),
        tl.load(own + REST).to(tl.int32),
    )
    items = length
    if PAIRED:
        items = (length + 1) // 2
    lse = tl.load(lses + row * GP + group, mask=group < GP, other=0.0)
    mix = tl.zeros([G_PAD, D_PAD], tl.float32)
    WORDS: tl.constexpr = (D + 15) // 16
    for first in range(split * TOKENS, length, splits * TOKENS):
        token = first + tl.arange(0, TOKENS)
        inside = token < length
        item = token
        if PAIRED:
            item = token // 2
        value = tl.load(importance + row * items_capacity + item, mask=inside, other=0.0)
        number = (row % rows_per_pool).to(tl.int32) * items + item
        depth = tl.where(inside, minimum + steps_at(value, gains, bar, cut, rest, number, minimum, LEVELS, W_PAD), 0)
        tl.store(depths + row * capacity + token, depth.to(tl.int8), mask=inside)
        prefix = tl.zeros([TOKENS, D_PAD], tl.int32)
        for plane in tl.static_range(W):
            read = plane < depth
            at = ((row * ((W + 1) // 2) + plane // 2) * capacity + token)[:, None] * WORDS + (channel // 16)[None, :]
            word = tl.load(planes + at, mask=read[:, None] & (channel < D)[None, :], other=0)
            bit = (word >> (channel % 16 + plane % 2 * 16)[None, :]) & 1
            prefix = tl.where(read[:, None], prefix * 2 + bit, prefix)
        z = tl.load(centroids + ((1 << depth) - 1)[:, None] + prefix)
        logit = tl.load(logits + (row * capacity + token)[None, :] * GP + group[:, None],
                        mask=(group < GP)[:, None] & inside[None, :], other=MASKED)  # fmt: skip
        mix += dot(tl.exp2(logit - lse[:, None]), z)
    at = ((row * splits + split) * GP + group)[:, None] * D + channel[None, :]
    tl.store(mixes + at, mix, mask=(group < GP)[:, None] & (channel < D)[None, :])
