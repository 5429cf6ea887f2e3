"""Wrong reading of codes: scales, offsets, nibbles."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.locks.quantize import (
    locks_dequantize_summary,
    locks_pack_basis,
    locks_unpack_basis,
)

D = "locks_dequantize_summary"


@mutant("dequantize-scales-swizzled", D, "D", "coefficient scales are read in another order than written")
def swizzled(**codes: Any) -> Any:
    """D10."""
    return locks_dequantize_summary(**{**codes, "coefficient_scale": codes["coefficient_scale"][..., ::-1].copy()})


@mutant("dequantize-nibble-minus-7", D, "D", "codes are taken as offset by 7")
def offset_codes(**codes: Any) -> Any:
    """Unsigned storage."""
    return locks_dequantize_summary(**{**codes, "basis_codes": (codes["basis_codes"] & 15) - 7})


@mutant("dequantize-half-scales", D, "D", "scales pass through float16")
def half_scales(**codes: Any) -> Any:
    """The legacy format."""
    half = codes["basis_scale"].astype(np.float16).astype(np.float64)
    return locks_dequantize_summary(**{**codes, "basis_scale": half})


@mutant("dequantize-page-0-scale", D, "D", "every page uses page 0's centroid scale")
def page_0_scale(**codes: Any) -> Any:
    """An offset lost."""
    scale = np.broadcast_to(codes["centroid_scale"][:, :1], codes["centroid_scale"].shape)
    return locks_dequantize_summary(**{**codes, "centroid_scale": scale})


@mutant("pack-along-rank", "locks_pack_basis", "D", "nibbles are packed along the rank, not along the channels")
def along_rank(*, basis_codes: Any) -> Any:
    """The dead format."""
    heads, pages, d, r = basis_codes.shape
    if r % 2:
        return locks_pack_basis(basis_codes=basis_codes)
    nibbles = basis_codes & 15
    packed = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8)
    return packed.reshape(heads, pages, r, d // 2)


@mutant("pack-sign-magnitude", "locks_pack_basis", "D", "nibbles hold sign and magnitude")
def sign_magnitude(*, basis_codes: Any) -> Any:
    """Right for codes of 0 and above."""
    signed = np.where(basis_codes < 0, 8 | (-basis_codes & 7), basis_codes & 7)
    return locks_pack_basis(basis_codes=((signed ^ 8) - 8).astype(np.int8))


@mutant("pack-high-nibble-lost", "locks_pack_basis", "D", "odd channels are shifted out of a byte")
def high_lost(*, basis_codes: Any) -> Any:
    """A missing cast."""
    return locks_pack_basis(basis_codes=basis_codes) & np.uint8(0x0F)


@mutant("unpack-minus-7", "locks_unpack_basis", "D", "a nibble n is decoded as n - 7")
def minus_7(*, basis_bytes: Any) -> Any:
    """D1."""
    codes = locks_unpack_basis(basis_bytes=basis_bytes)
    return ((codes & 15) - 7).astype(np.int8)


@mutant("unpack-unsigned", "locks_unpack_basis", "D", "nibbles are decoded as 0..15")
def unsigned(*, basis_bytes: Any) -> Any:
    """No sign."""
    return locks_unpack_basis(basis_bytes=basis_bytes) & np.int8(15)


@mutant("unpack-row-major", "locks_unpack_basis", "D", "bytes are read channel by channel, not column by column")
def row_major(*, basis_bytes: Any) -> Any:
    """The wrong axis order."""
    codes = locks_unpack_basis(basis_bytes=basis_bytes)
    heads, pages, d, r = codes.shape
    return np.swapaxes(codes, -1, -2).reshape(heads, pages, d, r)
