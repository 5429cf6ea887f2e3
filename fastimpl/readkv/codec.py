"""Codes of standardised scalars, and the centroids that prefixes of codes name. Mirrors `refimpl.readkv.codec`.

    grid (elements / BLOCK)   z -> bucket of z -> (leaf, split) -> code = leaf + (z >= split)
                              code, depth -> centroid at 2^depth - 1 + (code >> (8 - depth))

The path through the tree is its leaf's number, so a path is the count of splits at or below z: the bucket tells the
leaf at its lower end, and one comparison the rest. Bytes: 4 in and 1 out, or 1 (and a depth) in and 4 out.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import INTEGERS, ArgumentError, Sizes, whole
from fastimpl.device import INTERPRETED
from fastimpl.readkv.tree import BUCKETS, STEPS_PER_UNIT, tables

BLOCK = 1 << 16 if INTERPRETED.value else 1024
LAST_BUCKET = tl.constexpr(BUCKETS - 1)
BUCKETS_PER_UNIT = tl.constexpr(float(STEPS_PER_UNIT))


@triton.jit
def leaf_of(z, buckets):
    """Leaf numbers 0..255 (int32) of float32 z; a value on a split belongs to the upper leaf (AMB-17)."""
    place = tl.floor(tl.minimum(tl.maximum(z, -4.0), 3.9999997) * BUCKETS_PER_UNIT)  # exact: a power of two
    bits = z.to(tl.int32, bitcast=True)
    place = tl.where((place == 0.0) & (bits < 0) & (bits != -0x80000000), -1.0, place)  # where subnormals became 0
    bucket = place.to(tl.int32) + (LAST_BUCKET + 1) // 2
    leaf = tl.load(buckets + bucket * 2)
    return leaf.to(tl.int32) + (z >= tl.load(buckets + bucket * 2 + 1)).to(tl.int32)


@triton.jit
def encode_kernel(z, codes, buckets, count, BLOCK: tl.constexpr):
    """Codes of BLOCK scalars."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(z + at, mask=at < count, other=0.0)
    tl.store(codes + at, leaf_of(value, buckets).to(tl.uint8), mask=at < count)


@triton.jit
def decode_kernel(codes, depths, z, centroids, count, BLOCK: tl.constexpr):
    """Centroids of BLOCK codes, each at its depth."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    code = tl.load(codes + at, mask=at < count, other=0).to(tl.int32)
    depth = tl.load(depths + at, mask=at < count, other=0).to(tl.int32)
    tl.store(z + at, tl.load(centroids + (1 << depth) - 1 + (code >> (8 - depth))), mask=at < count)


def readkv_encode(*, z: Any) -> torch.Tensor:
    """Codes uint8 [...] of standardised scalars z [...], first split in the highest bit (ReadKV Sec. 3.1, App. D)."""
    z = _any_shape("z", z, (torch.float32,)).contiguous()
    codes = torch.empty(z.shape, dtype=torch.uint8, device=z.device)
    if z.numel():
        encode_kernel[(-(-z.numel() // BLOCK),)](z, codes, tables(z.device).buckets, z.numel(), BLOCK=BLOCK)
    return codes


def readkv_decode(*, codes: Any, depth: Any) -> torch.Tensor:
    """z_hat float32 [...] of the first ``depth`` bits of codes [...]; depth a number or an array that broadcasts.

    Depth 0 gives 0. Raises ArgumentError for a dtype, a depth outside 0..8 or a shape.
    """
    codes = _any_shape("codes", codes, (torch.uint8,)).contiguous()
    if isinstance(depth, torch.Tensor):
        depth = _any_shape("depth", depth, INTEGERS)
        if depth.numel() and not (int(depth.min()) >= 0 and int(depth.max()) <= 8):
            raise ArgumentError(f"depth: expected 0..8, got {int(depth.min())}..{int(depth.max())}")
        try:
            depth = depth.to(codes.device, torch.int32).expand(codes.shape)
        except RuntimeError as error:
            shapes = f"{list(codes.shape)}, got {list(depth.shape)}"
            raise ArgumentError(f"depth: expected a shape that broadcasts to {shapes}") from error
    else:
        depth = torch.full(codes.shape, whole("depth", depth, 0, 8), dtype=torch.int32, device=codes.device)
    z = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    if codes.numel():
        decode_kernel[(-(-codes.numel() // BLOCK),)](
            codes, depth.contiguous(), z, tables(codes.device).centroids, codes.numel(), BLOCK=BLOCK
        )
    return z


def _any_shape(name: str, value: Any, dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
    axes = " ".join(f"axis{i}" for i in range(getattr(value, "ndim", 0)))
    return Sizes().bind(name, value, axes, dtypes)
