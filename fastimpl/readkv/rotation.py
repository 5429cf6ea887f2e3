"""The Hadamard-sign transform of rows: U x = H (signs * x) / sqrt(d), and its transpose.

Mirrors `refimpl.readkv.rotation.readkv_rotate` and `unrotate`.

    grid (rows / ROWS)   x [ROWS, d] * signs --dot--> H [d, d] of +-1 --> * 1/sqrt(d), once

H is made on the way: its entry (i, j) is the parity of i & j. Its products are exact, so a half-precision input goes
through the tensor cores without loss, and float32 in three bfloat16 parts. Bytes: every element read once and written once.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, ArgumentError, Sizes
from fastimpl.device import INTERPRETED, dot, narrowed, padded

ROWS = 128 if INTERPRETED.value else 32


@functools.cache
def hadamard_matrix(d: int, device: torch.device) -> torch.Tensor:
    """The unscaled Hadamard matrix [d, d] in natural order, bfloat16.

    >>> hadamard_matrix(2, torch.device("cpu")).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    matrix = torch.ones(1, 1)
    while len(matrix) < d:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix.to(torch.bfloat16).to(device)


@triton.jit
def odd_bits(i, j):
    """Whether i & j, both below 2^16, has an odd number of bits, in bit 0 (others are anything)."""
    bits = i & j
    bits = bits ^ (bits >> 8)
    bits = bits ^ (bits >> 4)
    return 0x6996 >> (bits & 15)  # the parities of 0 to 15


@triton.jit
def hadamard_sign(i, j):
    """+1 or -1: the entry of the Hadamard matrix in natural order at row i, column j, both below 2^16."""
    return 1 - 2 * (odd_bits(i, j) & 1)


@triton.jit
def upper_half(x):
    """Float32 ``x`` with the lower 16 bits cut off: exact in bfloat16, and so is what a third cut leaves."""
    return (x.to(tl.int32, bitcast=True) & -65536).to(tl.float32, bitcast=True)


@triton.jit
def rotated_rows(x, D: tl.constexpr, D_PAD: tl.constexpr):
    """H x of rows [ROWS, D_PAD] that are 0 beyond D, unscaled, float32."""
    i = tl.arange(0, D_PAD)
    one = 0x3F800000 | (odd_bits(i[:, None], i[None, :]) << 31)  # +-1.0: the sign is all that differs
    live = (i < D)[:, None] & (i < D)[None, :]
    matrix = tl.where(live, one, 0).to(tl.float32, bitcast=True)
    if x.dtype == tl.float32:
        high = upper_half(x)
        middle = upper_half(x - high)
        half = matrix.to(tl.bfloat16)
        low = dot((x - high - middle).to(tl.bfloat16), half) + dot(middle.to(tl.bfloat16), half)
        return low + dot(high.to(tl.bfloat16), half)
    return dot(x, matrix.to(x.dtype))


@triton.jit
def rotate_kernel(
    x, signs, out, rows, scale, D: tl.constexpr, D_PAD: tl.constexpr, ROWS: tl.constexpr, INVERSE: tl.constexpr
):
    """Rows of U x, or of U^T x where INVERSE: there the signs come last."""
    row, channel = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, D_PAD)
    live = (row < rows)[:, None] & (channel < D)[None, :]
    at = row.to(tl.int64)[:, None] * D + channel[None, :]
    value = tl.load(x + at, mask=live, other=0.0)
    sign = tl.load(signs + channel, mask=channel < D, other=0.0)[None, :]
    if not INVERSE:
        value = (value.to(tl.float32) * sign).to(value.dtype)
    result = rotated_rows(value, D, D_PAD) * scale
    if INVERSE:
        result = result * sign
    tl.store(out + at, narrowed(result, out.dtype.element_ty), mask=live)


def check_signs(sizes: Sizes, name: str, signs: Any) -> torch.Tensor:
    """Signs [d] in float32, each +1 or -1; d a power of two. Raises ArgumentError."""
    signs = sizes.bind(name, signs, "d", (torch.float32,)).contiguous()
    d = sizes["d"]
    if d < 1 or d & (d - 1):
        raise ArgumentError(f"{name}: expected a power of two of channels for the Hadamard transform, got d={d}")
    if bool((signs.abs() != 1.0).any()):
        raise ArgumentError(f"{name}: expected +1 or -1, got {float(signs[signs.abs() != 1.0][0])}")
    return signs


def rotate(x: torch.Tensor, signs: torch.Tensor, out: torch.Tensor, inverse: bool = False) -> torch.Tensor:
    """Launch: rows of contiguous x [..., d] into ``out`` of the same shape."""
    d = x.shape[-1]
    rows = x.numel() // d
    if rows:
        rotate_kernel[(-(-rows // ROWS),)](
            x, signs, out, rows, 1.0 / math.sqrt(d), D=d, D_PAD=padded(d), ROWS=ROWS, INVERSE=inverse
        )
    return out


def readkv_rotate(*, x: Any, signs: Any) -> torch.Tensor:
    """Rotated rows [..., d] of x [..., d], in x's dtype (ReadKV Sec. 3.1).

    Raises ArgumentError for a dtype, a shape, a d that is no power of two, or a sign that is not +-1.
    """
    sizes = Sizes()
    axes = " ".join([f"n{i}" for i in range(getattr(x, "ndim", 1) - 1)] + ["d"])
    x = sizes.bind("x", x, axes, FLOATS).contiguous()
    return rotate(x, check_signs(sizes, "signs", signs), torch.empty_like(x))
