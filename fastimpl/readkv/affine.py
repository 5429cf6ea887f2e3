"""Affine rows: codes 0..2^bits - 1 over each row's own range. Mirrors `refimpl.readkv.affine`.

    grid (rows / ROWS)   x [ROWS, n] -> minimum, maximum -> scale = (max - min) / (2^bits - 1) -> codes [ROWS, n]

Bytes: every element read once in its dtype, one byte written; two float32 per row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, ArgumentError, Sizes, whole
from fastimpl.device import INTERPRETED, padded, round_to_even

ROWS = 64 if INTERPRETED.value else 8
SINGLE = (torch.float32,)


@triton.jit
def affine_quantize_kernel(
    x, codes, scales, zeros, rows, levels, N: tl.constexpr, N_PAD: tl.constexpr, ROWS: tl.constexpr
):
    """Codes, scale and minimum of ``ROWS`` rows of N values."""
    row, item = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, N_PAD)
    live = (row < rows)[:, None] & (item < N)[None, :]
    at = row.to(tl.int64)[:, None] * N + item[None, :]
    value = tl.load(x + at, mask=live, other=0.0).to(tl.float32)
    least = tl.min(tl.where(live, value, float("inf")), 1)
    most = tl.max(tl.where(live, value, float("-inf")), 1)
    scale = tl.div_rn(most - least, tl.zeros([ROWS], tl.float32) + levels)
    safe = tl.where(scale > 0.0, scale, 1.0)[:, None]
    code = round_to_even(tl.div_rn(value - least[:, None], tl.broadcast_to(safe, [ROWS, N_PAD])))
    code = tl.minimum(tl.maximum(code, 0.0), levels)
    tl.store(codes + at, code.to(tl.int32).to(tl.uint8), mask=live)
    tl.store(scales + row, scale, mask=row < rows)
    tl.store(zeros + row, least, mask=row < rows)


@triton.jit
def affine_dequantize_kernel(codes, scales, zeros, x, rows, N: tl.constexpr, N_PAD: tl.constexpr, ROWS: tl.constexpr):
    """code * scale + zero of ``ROWS`` rows."""
    row, item = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, N_PAD)
    live = (row < rows)[:, None] & (item < N)[None, :]
    at = row.to(tl.int64)[:, None] * N + item[None, :]
    code = tl.load(codes + at, mask=live, other=0).to(tl.float32)
    scale = tl.load(scales + row, mask=row < rows, other=0.0)
    zero = tl.load(zeros + row, mask=row < rows, other=0.0)
    tl.store(x + at, code * scale[:, None] + zero[:, None], mask=live)


def affine_quantize(*, x: Any, bits: int) -> dict[str, torch.Tensor]:
    """Codes uint8 [..., n], scale and zero [...] of rows x [..., n] (ReadKV F.2); a constant row has codes 0, scale 0.

    Raises ArgumentError for a dtype, no axis, or bits outside 1..8.
    """
    x = _any_shape("x", x, FLOATS)
    levels = float(2 ** whole("bits", bits, 1, 8) - 1)
    codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
    scale = torch.zeros(x.shape[:-1], dtype=torch.float32, device=x.device)
    zero = torch.zeros_like(scale)
    if x.numel():
        n, rows = x.shape[-1], scale.numel()
        affine_quantize_kernel[(-(-rows // ROWS),)](
            x.contiguous(), codes, scale, zero, rows, levels, N=n, N_PAD=padded(n), ROWS=ROWS
        )
    return {"codes": codes, "scale": scale, "zero": zero}


def affine_dequantize(*, codes: Any, scale: Any, zero: Any) -> torch.Tensor:
    """code * scale + zero per row: codes uint8 [..., n], scale and zero [...] -> float32 [..., n] (ReadKV F.2)."""
    codes = _any_shape("codes", codes, (torch.uint8,))
    axes = " ".join(f"n{i}" for i in range(codes.ndim - 1))
    sizes = Sizes({f"n{i}": size for i, size in enumerate(codes.shape[:-1])})
    sizes.device = codes.device
    scale, zero = sizes.bind("scale", scale, axes, SINGLE), sizes.bind("zero", zero, axes, SINGLE)
    x = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    if codes.numel():
        n, rows = codes.shape[-1], scale.numel()
        affine_dequantize_kernel[(-(-rows // ROWS),)](
            codes.contiguous(), scale.contiguous(), zero.contiguous(), x, rows, N=n, N_PAD=padded(n), ROWS=ROWS
        )
    return x


def _any_shape(name: str, value: Any, dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
    """A tensor of at least one axis. Raises ArgumentError."""
    if isinstance(value, torch.Tensor) and value.ndim == 0:
        raise ArgumentError(f"{name}: expected at least one axis, got a single number")
    axes = " ".join(f"axis{i}" for i in range(value.ndim)) if isinstance(value, torch.Tensor) else ""
    return Sizes().bind(name, value, axes, dtypes)
