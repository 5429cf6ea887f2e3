"""Device functions of the build: a page's centred keys, and its summary once the eigenvectors are known."""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import round_to_even
from fastimpl.locks.record import coefficient_at, store_scale, token_scale_at


@triton.jit
def quantised(x, largest, level):
    """Codes (float32 integers) of ``x`` and the float32 scale largest / level; a zero line has scale 0 and codes 0."""
    scale = tl.div_rn(largest, largest * 0.0 + level)
    ratio = tl.div_rn(x, tl.broadcast_to(tl.where(scale > 0, scale, 1.0), x.shape))
    return tl.minimum(tl.maximum(round_to_even(ratio), -level), level), scale


@triton.jit
def byte(code):
    """float32 integers of -128..127 as bytes, two's complement."""
    return (code.to(tl.int32) & 255).to(tl.uint8)


@triton.jit
def centred(
    keys, block, head, here, stride_kb, stride_ks, stride_kh, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr,
):  # fmt: skip
    """Of pages [M]: centroid [M, D], deviations [M, B, D] in a unit, a power of two, that unit, ||page||^2 in it."""
    slot, channel = tl.arange(0, B_PAD), tl.arange(0, D_PAD)
    live = (here[:, None] & (slot < B)[None, :])[:, :, None] & (channel < D)[None, None, :]
    at = (block * stride_kb + head * stride_kh)[:, None] + (slot * stride_ks)[None, :]
    key = tl.load(keys + at[:, :, None] + channel[None, None, :], mask=live, other=0.0).to(tl.float32)
    centroid = tl.sum(key, 1) / B
    peak = tl.max(tl.max(tl.abs(key), 2), 1)
    exponent = (tl.maximum(peak, 1e-30).to(tl.int32, bitcast=True) >> 23) & 255
    inverse = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    deviation = tl.where(live, key - centroid[:, None, :], 0.0) * inverse[:, None, None]
    key = key * inverse[:, None, None]
    return centroid, deviation, (exponent << 23).to(tl.float32, bitcast=True), tl.sum(tl.sum(key * key, 2), 1)


@triton.jit
def mode_of(deviation, left, norm, DROP: tl.constexpr):
    """Basis column [M, D] and singular value [M] of the token weights ``left`` [M, B]; 0 for a mode without energy."""
    image = tl.sum(deviation * left[:, :, None], 1)
    square = tl.sum(image * image, 1)
    kept = square > DROP * norm
    sigma = tl.where(kept, tl.sqrt(square), 0.0)
    return tl.where(kept[:, None], image / tl.where(kept, sigma, 1.0)[:, None], 0.0), sigma


@triton.jit
def store_column(record, here, code, k, D: tl.constexpr, D_PAD: tl.constexpr, INT8: tl.constexpr):
    """Write basis column ``k`` of records [M]: codes [M, D_PAD] as bytes, or two channels to a byte."""
    if INT8:
        channel = tl.arange(0, D_PAD)
        tl.store(record[:, None] + k * D + channel[None, :], byte(code), mask=here[:, None] & (channel < D)[None, :])
    else:
        even, odd = tl.split(tl.reshape(code.to(tl.int32), [code.shape[0], D_PAD // 2, 2]))
        pair = tl.arange(0, D_PAD // 2)
        tl.store(record[:, None] + k * ((D + 1) // 2) + pair[None, :], ((even & 15) | ((odd & 15) << 4)).to(tl.uint8),
                 mask=here[:, None] & (pair < (D + 1) // 2)[None, :])  # fmt: skip


@triton.jit
def store_packed(
    record, here, centroid, coefficient, M: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, B_PAD: tl.constexpr,
    R_PAD: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr,
    COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr,
    MODES: tl.constexpr, QUAD_COUNT: tl.constexpr,
):  # fmt: skip
    """Quantise and write centroid [M, D] and coefficients [M, B, R] of records [M]."""
    slot, channel, mode, quad = tl.arange(0, B_PAD), tl.arange(0, D_PAD), tl.arange(0, R_PAD), tl.arange(0, QUAD_COUNT)
    code, scale = quantised(centroid, tl.max(tl.abs(centroid), 1)[:, None], 127.0)
    tl.store(record[:, None] + CENTROID + channel[None, :], byte(code), mask=here[:, None] & (channel < D)[None, :])
    spot = QUADS + quad * QUAD_BYTES + (12 if HALF_SCALES else 24)
    store_scale(record[:, None] + spot[None, :], tl.broadcast_to(scale, [M, QUAD_COUNT]),
                here[:, None] & (quad < (BYTES - QUADS) // QUAD_BYTES)[None, :], False)  # fmt: skip
    code, scale = quantised(coefficient, tl.max(tl.abs(coefficient), 2)[:, :, None], 127.0)
    spot = COEFFICIENTS + coefficient_at(slot[:, None], mode[None, :], TOKENS, MODES)
    tl.store(record[:, None, None] + spot[None], byte(code),
             mask=here[:, None, None] & (slot < TOKENS)[None, :, None] & (mode < MODES)[None, None, :])  # fmt: skip
    spot = QUADS + token_scale_at(slot, QUAD_BYTES, TOKENS, HALF_SCALES)
    store_scale(record[:, None] + spot[None, :], tl.sum(scale, 2), here[:, None] & (slot < TOKENS)[None, :],
                HALF_SCALES)  # fmt: skip
