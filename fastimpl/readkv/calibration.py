"""Means and scales of rotated channels from samples. Mirrors `refimpl.readkv.calibration.calibrate_samples`.

    moments_kernel   grid (splits, heads)   samples [n, d] --rotate--> per split: count, mean, sum of squared deviations
    (host)           splits merged pairwise exactly as one pass would: deviations from the joint mean, divisor n

A split centres its own samples before squaring, so a large mean does not cancel. Bytes: every sample read once.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, ArgumentError, Sizes
from fastimpl.device import INTERPRETED, padded
from fastimpl.readkv.rotation import check_signs, rotated_rows

SAMPLES = 256 if INTERPRETED.value else 64


@triton.jit
def moments_kernel(
    samples, signs, means, squares, stride_h, stride_n, count, splits, inverse_root, SAMPLES: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Mean and sum of squared deviations [d] of one split of one head's samples."""
    split, head, channel = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.arange(0, D_PAD)
    sample = split * SAMPLES + tl.arange(0, SAMPLES)
    live = (sample < count)[:, None] & (channel < D)[None, :]
    at = samples + head * stride_h + sample.to(tl.int64)[:, None] * stride_n + channel[None, :]
    value = tl.load(at, mask=live, other=0.0)
    sign = tl.load(signs + channel, mask=channel < D, other=0.0)[None, :]
    rotated = rotated_rows((value.to(tl.float32) * sign).to(value.dtype), D, D_PAD) * inverse_root
    own = tl.minimum(count - split * SAMPLES, SAMPLES).to(tl.float32)
    mean = tl.sum(tl.where(live, rotated, 0.0), 0) / own
    away = tl.where(live, rotated - mean[None, :], 0.0)
    out = (head * splits + split) * D + channel
    tl.store(means + out, mean, mask=channel < D)
    tl.store(squares + out, tl.sum(away * away, 0), mask=channel < D)


def calibrate(samples: Any, signs: Any, floor: float | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and scale (divisor n) [H, d] of the rotated channels of samples [H, n, d] under signs [d], float32.

    A channel without spread raises ArgumentError, or has scale ``floor`` (AMB-23); also for a dtype, shape or n = 0.
    """
    sizes = Sizes()
    samples = sizes.bind("samples", samples, "H n d", FLOATS)
    signs = check_signs(sizes, "signs", signs)
    H, n, d = samples.shape
    if n == 0:
        raise ArgumentError("samples: expected at least one sample, got n=0")
    if floor is not None and not (math.isfinite(floor) and floor > 0):
        raise ArgumentError(f"floor: expected a positive number, got {floor!r}")
    splits = -(-n // SAMPLES)
    means = torch.empty((H, splits, d), dtype=torch.float32, device=samples.device)
    squares = torch.empty_like(means)
    if H:
        moments_kernel[(splits, H)](
            samples, signs, means, squares, samples.stride(0), samples.stride(1), n, splits, 1.0 / math.sqrt(d),
            SAMPLES=SAMPLES, D=d, D_PAD=padded(d), num_warps=8,
        )  # fmt: skip
    counts = torch.full((splits, 1), float(SAMPLES), dtype=torch.float64, device=samples.device)
    counts[-1] = n - (splits - 1) * SAMPLES
    mean = (means.double() * counts).sum(1) / n  # [H, d]
    total = squares.double().sum(1) + ((means.double() - mean[:, None]) ** 2 * counts).sum(1)
    scale = (total / n).sqrt().to(torch.float32)
    if floor is not None:
        scale = scale.clamp(min=floor)
    elif bool((scale <= 0).any()):
        index = (scale <= 0).nonzero()[0].tolist()
        raise ArgumentError(f"samples: expected channels with spread, got a dead channel at {index}; pass a floor")
    return mean.to(torch.float32), scale
