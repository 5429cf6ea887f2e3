"""Quantise, dequantise, pack and unpack summaries as tensors of their own; mirrors `refimpl.locks.quantize`.

    grid (lines)                    one program: one line that shares a scale, [n] values with a stride
      largest |x| -> scale = largest / level -> codes = round(x / scale), half to even

The decode path does not run these: `summary.build_kernel` writes records in the same pass that builds them.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, Sizes
from fastimpl.device import INTERPRETED, padded
from fastimpl.locks.page import quantised
from fastimpl.locks.summary import LEVELS

FLOAT = (torch.float32,)
LINES = 256 if INTERPRETED.value else 4


@triton.jit
def quantize_kernel(
    x, codes, scales, lines, inner, stride_line, level, N: tl.constexpr, N_PAD: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    """Lines of ``N`` values ``inner`` elements apart, contiguous storage [outer, N, inner]."""
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    item = tl.arange(0, N_PAD)
    at = (line // inner).to(tl.int64)[:, None] * (N * inner) + (line % inner)[:, None] + (item * inner)[None, :]
    live = (line < lines)[:, None] & (item < N)[None, :]
    value = tl.load(x + at, mask=live, other=0.0)
    code, scale = quantised(value, tl.max(tl.abs(value), 1)[:, None], level)
    tl.store(codes + at, code.to(tl.int8), mask=live)
    tl.store(scales + line, tl.sum(scale, 1), mask=line < lines)


@triton.jit
def dequantize_kernel(codes, scales, x, count, inner, N: tl.constexpr, BLOCK: tl.constexpr):
    """Codes times their line's scale, storage as in `quantize_kernel`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    line = at // (N * inner) * inner + at % inner
    value = tl.load(codes + at, mask=at < count, other=0).to(tl.float32)
    tl.store(x + at, value * tl.load(scales + line, mask=at < count, other=0.0), mask=at < count)


@triton.jit
def pack_kernel(codes, packed, count, D: tl.constexpr, RANK: tl.constexpr, BLOCK: tl.constexpr):
    """Codes [.., d, r] to bytes [.., r, d/2]: channel 2j low, 2j + 1 high."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    pair, mode, page = at % (D // 2), at // (D // 2) % RANK, at // (D // 2 * RANK)
    source = codes + page * (D * RANK) + pair * (2 * RANK) + mode
    even = tl.load(source, mask=at < count, other=0).to(tl.int32)
    odd = tl.load(source + RANK, mask=at < count, other=0).to(tl.int32)
    tl.store(packed + at, ((even & 15) | ((odd & 15) << 4)).to(tl.uint8), mask=at < count)


@triton.jit
def unpack_kernel(packed, codes, count, D: tl.constexpr, RANK: tl.constexpr, BLOCK: tl.constexpr):
    """The inverse: nibbles 8..15 are -8..-1."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    pair, mode, page = at % (D // 2), at // (D // 2) % RANK, at // (D // 2 * RANK)
    byte = tl.load(packed + at, mask=at < count, other=0).to(tl.int32)
    target = codes + page * (D * RANK) + pair * (2 * RANK) + mode
    tl.store(target, (((byte & 15) ^ 8) - 8).to(tl.int8), mask=at < count)
    tl.store(target + RANK, (((byte >> 4) ^ 8) - 8).to(tl.int8), mask=at < count)


BLOCK = 1 << 16 if INTERPRETED.value else 1024


def quantize_lines(x: torch.Tensor, axis: int, bits: int) -> tuple[torch.Tensor, torch.Tensor]:
    """int8 codes of float32 ``x`` and the scales of its lines along ``axis``."""
    x = x.contiguous()
    axis %= x.ndim
    shape = (*x.shape[:axis], *x.shape[axis + 1 :])
    codes = torch.empty(x.shape, dtype=torch.int8, device=x.device)
    scales = torch.empty(shape, dtype=torch.float32, device=x.device)
    n, inner, lines = x.shape[axis], x[(0,) * axis].numel() // x.shape[axis] if x.numel() else 1, scales.numel()
    if lines and n:
        quantize_kernel[(-(-lines // LINES),)](
            x, codes, scales, lines, inner, 0, LEVELS[bits], N=n, N_PAD=padded(n, 2), LINES=LINES
        )
    return codes, scales


def locks_quantize_summary(*, centroid: Any, basis: Any, coefficients: Any, basis_bits: int) -> dict[str, torch.Tensor]:
    """int8 codes and float32 scales of a summary [H,P,d], [H,P,d,r], [H,P,B,r]: basis per column (2, 4 or 8 bits),
    coefficients per token, centroid per page (Locks Sec. 4, App. D; AMB-07 to AMB-09). Raises ArgumentError.
    """
    sizes = Sizes()
    centroid = sizes.bind("centroid", centroid, "H P d", FLOAT)
    basis = sizes.bind("basis", basis, "H P d r", FLOAT)
    coefficients = sizes.bind("coefficients", coefficients, "H P B r", FLOAT)
    if basis_bits not in LEVELS or isinstance(basis_bits, bool):
        raise ArgumentError(f"basis_bits: expected one of 2, 4, 8, got {basis_bits!r}")
    parts = {"centroid": (centroid, -1, 8), "basis": (basis, -2, basis_bits), "coefficient": (coefficients, -1, 8)}
    result = {}
    for name, part in parts.items():
        result[f"{name}_codes"], result[f"{name}_scale"] = quantize_lines(*part)
    return result


def dequantize_lines(codes: torch.Tensor, scales: torch.Tensor, axis: int) -> torch.Tensor:
    """The inverse: codes times their line's scale, float32."""
    codes, scales = codes.contiguous(), scales.contiguous()
    axis %= codes.ndim
    x = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    if codes.numel():
        inner = codes[(0,) * axis].numel() // codes.shape[axis]
        dequantize_kernel[(-(-codes.numel() // BLOCK),)](
            codes, scales, x, codes.numel(), inner, N=codes.shape[axis], BLOCK=BLOCK
        )
    return x


def locks_dequantize_summary(
    *, centroid_codes: Any, centroid_scale: Any, basis_codes: Any, basis_scale: Any, coefficient_codes: Any,
    coefficient_scale: Any,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Float32 summary out of the results of `locks_quantize_summary`: code times scale. Raises ArgumentError."""
    sizes, int8 = Sizes(), (torch.int8,)
    centroid = sizes.bind("centroid_codes", centroid_codes, "H P d", int8)
    basis = sizes.bind("basis_codes", basis_codes, "H P d r", int8)
    coefficients = sizes.bind("coefficient_codes", coefficient_codes, "H P B r", int8)
    return {
        "centroid": dequantize_lines(centroid, sizes.bind("centroid_scale", centroid_scale, "H P", FLOAT), -1),
        "basis": dequantize_lines(basis, sizes.bind("basis_scale", basis_scale, "H P r", FLOAT), -2),
        "coefficients": dequantize_lines(
            coefficients, sizes.bind("coefficient_scale", coefficient_scale, "H P B", FLOAT), -1
        ),
    }


def locks_pack_basis(*, basis_codes: Any) -> torch.Tensor:
    """int4 codes [H,P,d,r] -> bytes [H,P,r,d/2], low nibble = even channel (AMB-13). Raises ArgumentError for odd d."""
    sizes = Sizes()
    codes = sizes.bind("basis_codes", basis_codes, "H P d r", (torch.int8,)).contiguous()
    H, P, d, r = codes.shape
    if d % 2:
        raise ArgumentError(f"basis_codes: expected an even number of channels, got d={d}")
    packed = torch.empty((H, P, r, d // 2), dtype=torch.uint8, device=codes.device)
    if packed.numel():
        pack_kernel[(-(-packed.numel() // BLOCK),)](codes, packed, packed.numel(), D=d, RANK=r, BLOCK=BLOCK)
    return packed


def locks_unpack_basis(*, basis_bytes: Any) -> torch.Tensor:
    """Bytes [H,P,r,d/2] -> int8 codes [H,P,d,r], two's complement. Raises ArgumentError."""
    sizes = Sizes()
    packed = sizes.bind("basis_bytes", basis_bytes, "H P r half", (torch.uint8,)).contiguous()
    H, P, r, half = packed.shape
    codes = torch.empty((H, P, 2 * half, r), dtype=torch.int8, device=packed.device)
    if packed.numel():
        unpack_kernel[(-(-packed.numel() // BLOCK),)](packed, codes, packed.numel(), D=2 * half, RANK=r, BLOCK=BLOCK)
    return codes
