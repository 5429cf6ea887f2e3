"""Quantise, dequantise and pack a page summary (Locks Sec. 4 and App. D)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, integers, real

LEVELS = {2: 1, 4: 7, 8: 127}
"""Largest code of a symmetric b-bit integer (AMB-07): int2 is ternary, int4 runs -7..7, int8 -127..127."""


def quantize_symmetric(x: FloatArray, axis: int, bits: int) -> tuple[NDArray[np.int8], FloatArray]:
    """Codes and scales of ``x`` with one scale per line along ``axis``: scale = absmax / level, half to even.

    A line of zeros has scale 0 and codes 0 (AMB-09). Returns int8 codes of x's shape and scales without that axis.

    >>> codes, scale = quantize_symmetric(np.array([0.5, 2.5, -2.5, 7.0]), axis=0, bits=4)
    >>> codes.tolist(), float(scale)
    ([0, 2, -2, 7], 1.0)
    """
    level = LEVELS[bits]
    scale = np.max(np.abs(x), axis=axis, initial=0.0, keepdims=True) / level
    ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    codes = np.clip(np.rint(ratio), -level, level).astype(np.int8)
    return codes, np.squeeze(scale, axis=axis)


def locks_quantize_summary(*, centroid: Any, basis: Any, coefficients: Any, basis_bits: int) -> dict[str, Any]:
    """Quantise a summary: basis to ``basis_bits`` per column, coefficients and centroid to int8.

    Args:
        centroid: [H, P, d]; one scale per page and KV head (AMB-08).
        basis: [H, P, d, r]; one scale per column.
        coefficients: [H, P, B, r]; one scale per token row.
        basis_bits: 2, 4 or 8.

    Returns:
        int8 ``centroid_codes`` [H, P, d], ``basis_codes`` [H, P, d, r], ``coefficient_codes`` [H, P, B, r] and float64
        ``centroid_scale`` [H, P], ``basis_scale`` [H, P, r], ``coefficient_scale`` [H, P, B]; a value is code * scale.

    Raises:
        ArgumentError: a shape, a non-finite value, or other bits.

    Source: Locks Sec. 4 (Build) and App. D; AMB-07, AMB-08, AMB-09.

    >>> q = locks_quantize_summary(centroid=[[[127.0, -3.4]]], basis=[[[[0.7], [-0.1]]]], coefficients=[[[[0.0]]]],
    ...                            basis_bits=4)
    >>> q["centroid_codes"].tolist(), q["basis_codes"].tolist(), q["coefficient_scale"].tolist()
    ([[[127, -3]]], [[[[7], [-1]]]], [[[0.0]]])
    """
    sizes = Sizes()
    centroid = real("centroid", centroid, "H P d", sizes)
    basis = real("basis", basis, "H P d r", sizes)
    coefficients = real("coefficients", coefficients, "H P B r", sizes)
    bits = choice("basis_bits", basis_bits, (2, 4, 8))
    centroid_codes, centroid_scale = quantize_symmetric(centroid, -1, 8)
    basis_codes, basis_scale = quantize_symmetric(basis, -2, bits)
    coefficient_codes, coefficient_scale = quantize_symmetric(coefficients, -1, 8)
    return {
        "centroid_codes": centroid_codes,
        "centroid_scale": centroid_scale,
        "basis_codes": basis_codes,
        "basis_scale": basis_scale,
        "coefficient_codes": coefficient_codes,
        "coefficient_scale": coefficient_scale,
    }


def locks_dequantize_summary(
    *,
    centroid_codes: Any,
    centroid_scale: Any,
    basis_codes: Any,
    basis_scale: Any,
    coefficient_codes: Any,
    coefficient_scale: Any,
) -> dict[str, FloatArray]:
    """The summary that the codes stand for: every value is its code times its scale.

    Args are the results of `locks_quantize_summary`; returns ``centroid`` [H, P, d], ``basis`` [H, P, d, r] and
    ``coefficients`` [H, P, B, r] in float64. Raises ArgumentError for a shape, a code beyond int8, a non-finite scale.

    Source: Locks Sec. 4 and App. D.

    >>> summary = locks_dequantize_summary(centroid_codes=[[[2, -1]]], centroid_scale=[[0.5]],
    ...     basis_codes=[[[[7], [0]]]], basis_scale=[[[0.25]]],
    ...     coefficient_codes=[[[[-127]]]], coefficient_scale=[[[1.0]]])
    >>> summary["centroid"].tolist(), summary["basis"].tolist(), summary["coefficients"].tolist()
    ([[[1.0, -0.5]]], [[[[1.75], [0.0]]]], [[[[-127.0]]]])
    """
    sizes = Sizes()
    parts = {
        "centroid": (integers("centroid_codes", centroid_codes, "H P d", sizes, low=-128, high=127), -1),
        "basis": (integers("basis_codes", basis_codes, "H P d r", sizes, low=-128, high=127), -2),
        "coefficients": (integers("coefficient_codes", coefficient_codes, "H P B r", sizes, low=-128, high=127), -1),
    }
    scales = {
        "centroid": real("centroid_scale", centroid_scale, "H P", sizes),
        "basis": real("basis_scale", basis_scale, "H P r", sizes),
        "coefficients": real("coefficient_scale", coefficient_scale, "H P B", sizes),
    }
    return {
        name: codes.astype(np.float64) * np.expand_dims(scales[name], axis) for name, (codes, axis) in parts.items()
    }


def locks_pack_basis(*, basis_codes: Any) -> NDArray[np.uint8]:
    """Pack int4 basis codes [H, P, d, r] into bytes [H, P, r, d/2], column after column.

    Byte j of a column holds channel 2j in its low and channel 2j+1 in its high nibble, two's complement (AMB-13).
    Raises ArgumentError for an odd d or a code outside -8..7.

    Source: Locks App. D.

    >>> locks_pack_basis(basis_codes=[[[[1], [-1]]]]).tolist()          # 0x1 below 0xF
    [[[[241]]]]
    """
    sizes = Sizes()
    codes = integers("basis_codes", basis_codes, "H P d r", sizes, low=-8, high=7)
    if sizes["d"] % 2:
        raise ArgumentError(f"basis_codes: expected an even number of channels, got d={sizes['d']}")
    nibbles = np.swapaxes(codes, -1, -2) & 15  # [H, P, r, d]
    packed: NDArray[np.uint8] = (nibbles[..., 0::2] | nibbles[..., 1::2] << 4).astype(np.uint8)
    return packed


def locks_unpack_basis(*, basis_bytes: Any) -> NDArray[np.int8]:
    """Unpack bytes [H, P, r, d/2] into int4 basis codes [H, P, d, r]; the inverse of `locks_pack_basis`.

    Raises ArgumentError for a shape or a value outside 0..255.

    Source: Locks App. D.

    >>> locks_unpack_basis(basis_bytes=[[[[0x8F]]]]).tolist()           # low nibble 0xF, high nibble 0x8
    [[[[-1], [-8]]]]
    """
    packed = integers("basis_bytes", basis_bytes, "H P r d/2", Sizes(), low=0, high=255)
    nibbles = np.stack([packed & 15, packed >> 4], axis=-1)  # [H, P, r, d/2, 2]
    codes = (nibbles ^ 8) - 8
    return np.swapaxes(codes.reshape(*packed.shape[:-1], 2 * packed.shape[-1]), -1, -2).astype(np.int8)
