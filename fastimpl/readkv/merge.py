"""The reader's first and last steps: rotated queries with key importances, and the output out of the splits' mixes.

Mirrors `refimpl.readkv.rotation.readkv_rotate` and `unrotate`, `refimpl.readkv.importance.readkv_key_importance`.

    query_kernel    grid (rows)         queries [G, d] -> rotate -> [G, d] float32; squares times scale^2, summed -> [d]
    output_kernel   grid (rows * G)     mixes [S, d] -> sum over splits -> mean + scale * mix -> rotate back -> [d]

Bytes: S d float32 per query head.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import follow, narrowed
from fastimpl.readkv.rotation import hadamard_sign, rotated_rows


@triton.jit
def query_kernel(
    queries, signs, scales, rotated, importance, bins, state, heads, rows_per_pool, stride_n, stride_h, stride_g,
    inverse_root, G: tl.constexpr, G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, BINS: tl.constexpr,
    STATE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Rotated queries of one row, and its key channels' importances; its pool's bins and state are made 0."""
    follow(DEPENDENT)
    pool = (tl.program_id(0) // rows_per_pool).to(tl.int64)
    if tl.program_id(0) % rows_per_pool == 0:
        tl.store(bins + pool * BINS + tl.arange(0, BINS), tl.zeros([BINS], tl.int32))
        tl.store(state + pool * STATE + tl.arange(0, STATE), tl.zeros([STATE], tl.int64))
    row, group, channel = tl.program_id(0).to(tl.int64), tl.arange(0, G_PAD), tl.arange(0, D_PAD)
    live = (group < G)[:, None] & (channel < D)[None, :]
    at = queries + row // heads * stride_n + row % heads * stride_h + group[:, None] * stride_g + channel[None, :]
    query = tl.load(at, mask=live, other=0.0)
    sign = tl.load(signs + channel, mask=channel < D, other=0.0)[None, :]
    result = rotated_rows((query.to(tl.float32) * sign).to(query.dtype), D, D_PAD) * inverse_root
    tl.store(rotated + (row * G + group)[:, None] * D + channel[None, :], result, mask=live)
    scale = tl.load(scales + row % heads * D + channel, mask=channel < D, other=0.0)[None, :]
    weighted = tl.where(live, result * scale, 0.0)
    tl.store(importance + row * D + channel, tl.sum(weighted * weighted, 0), mask=channel < D)


@triton.jit
def output_kernel(
    mixes, means, scales, signs, lengths, output, heads, splits, inverse_root, G: tl.constexpr, GP: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr, STEP: tl.constexpr, LANES: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One query head's output; 0 for an empty row. Mixes are [S, GP, D], or as `lanes_values` leaves them (LANES).

    What no kernel of the chain writes is loaded before the kernel before has ended.
    """
    row, group, place = (tl.program_id(0) // G).to(tl.int64), tl.program_id(0) % G, tl.arange(0, D_PAD)
    live = place < D
    if LANES:  # 4 g + r of quarter v of head 2 q + i at ((4 i + v) * 4 + q) * D / 4: see `store_mix`
        RUN: tl.constexpr = D // 4
        channel = place % RUN // 4 * 16 + place // RUN * 4 + place % 4
        at = group % 2 * (4 * D) + group // 2 * RUN + place // RUN * D + place % RUN
    else:
        channel, at = place, group * D + place
    mean = tl.load(means + row % heads * D + channel, mask=live, other=0.0)
    scale = tl.load(scales + row % heads * D + channel, mask=live, other=0.0)
    sign = tl.load(signs + place, mask=live, other=0.0)
    length = tl.load(lengths + row // heads)
    follow(DEPENDENT)
    mix = tl.zeros([D_PAD], tl.float32)
    for first in range(0, splits, STEP):
        split = first + tl.arange(0, STEP)
        part = tl.load(mixes + ((row * splits + split) * (GP * D))[:, None] + at[None, :],
                       mask=(split < splits)[:, None] & live[None, :], other=0.0)  # fmt: skip
        mix += tl.sum(part, 0)
    value = tl.where(live, mean + scale * mix, 0.0)
    turn = hadamard_sign(channel[:, None], place[None, :]).to(tl.float32)
    result = tl.sum(value[:, None] * turn, 0) * inverse_root * sign
    result = tl.where(length > 0, result, 0.0)
    tl.store(output + (row * G + group) * D + place, narrowed(result, output.dtype.element_ty), mask=live)
