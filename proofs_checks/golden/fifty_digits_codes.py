"""Integer codes, their scales and their packing in exact arithmetic, in plain loops.

Arguments are float64 and integer arrays, read without rounding. A code that may be rounded either way is given by its
two ends.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf

LEVEL = {2: 1, 4: 7, 8: 127}
"""The largest code of a number of bits."""


def half_even(x: Any) -> Any:
    """The nearest integer, halves to even."""
    low = int(mp.floor(x))
    rest = x - low
    return low + (rest > 0.5 or (rest == 0.5 and low % 2 != 0))


def quantize_line(line: Any, level: Any) -> Any:
    """Codes and scale of one line of mpf."""
    scale = max(abs(x) for x in line) / level
    return [half_even(x / scale) if scale else 0 for x in line], scale


def locks_dequantize_summary(
    centroid_codes: Any,
    centroid_scale: Any,
    basis_codes: Any,
    basis_scale: Any,
    coefficient_codes: Any,
    coefficient_scale: Any,
) -> Any:
    """Rational products; every array element by element."""

    def product(codes: Any, scale: Any) -> Any:
        exact = [Fraction(int(c)) * Fraction(float(s)) for c, s in zip(codes.ravel(), scale.ravel(), strict=True)]
        return np.array([mpf(x.numerator) / x.denominator for x in exact], dtype=object).reshape(codes.shape).tolist()

    d, r = basis_codes.shape[2:]
    return {
        "centroid": product(centroid_codes, np.repeat(centroid_scale, d)),
        "basis": product(basis_codes, np.tile(basis_scale[:, :, None], (1, 1, d, 1))),
        "coefficients": product(coefficient_codes, np.repeat(coefficient_scale, r)),
    }


def rows_of(array: Any, axis: int) -> Any:
    """Every line of an array along ``axis`` with its index: pairs of an index with a slice, and the line in Fractions.

    >>> [(index, [int(x) for x in line]) for index, line in rows_of(np.arange(4).reshape(2, 2), -1)]
    [((0, slice(None, None, None)), [0, 1]), ((1, slice(None, None, None)), [2, 3])]
    """
    axis %= array.ndim
    others = [range(n) if i != axis else [slice(None)] for i, n in enumerate(array.shape)]
    for index in product(*others):
        yield index, [Fraction(float(x)) for x in array[index]]


def nearest_codes(steps: Fraction, slack: Fraction) -> tuple[int, int]:
    """The least and the largest integer within 1/2 and ``slack`` of a number of steps.

    >>> nearest_codes(Fraction(5, 2), Fraction(0)), nearest_codes(Fraction(9, 4), Fraction(0))
    ((2, 3), (2, 2))
    """
    reach = Fraction(1, 2) + slack
    return -((reach - steps) // 1), (steps + reach) // 1


def locks_pack_basis(basis_codes: Any) -> Any:
    """`locks_pack_basis`: byte i of a column is the nibble of channel 2i, then that of channel 2i + 1 above it."""
    H, P, d, r = basis_codes.shape
    packed = np.zeros((H, P, r, d // 2), dtype=np.int64)
    for h, p, k, i in np.ndindex(packed.shape):
        packed[h, p, k, i] = int(basis_codes[h, p, 2 * i, k]) % 16 + 16 * (int(basis_codes[h, p, 2 * i + 1, k]) % 16)
    return {"basis_bytes": packed.tolist()}


def locks_unpack_basis(basis_bytes: Any) -> Any:
    """`locks_unpack_basis`."""
    H, P, r, half = basis_bytes.shape
    codes = np.zeros((H, P, 2 * half, r), dtype=np.int64)
    for h, p, k, i in np.ndindex(basis_bytes.shape):
        for odd, nibble in enumerate((int(basis_bytes[h, p, k, i]) % 16, int(basis_bytes[h, p, k, i]) // 16)):
            codes[h, p, 2 * i + odd, k] = nibble - 16 if nibble > 7 else nibble
    return {"basis_codes": codes.tolist()}


def readkv_pack_key_planes(codes: Any) -> Any:
    """`readkv_pack_key_planes`: plane j is bit 7 - j of every code; token t is bit t % 8 of byte t // 8."""
    T, d = codes.shape
    planes = np.zeros((8, d, -(-T // 8)), dtype=np.int64)
    for t, c, j in np.ndindex(T, d, 8):
        planes[j, c, t // 8] += (int(codes[t, c]) // 2 ** (7 - j) % 2) * 2 ** (t % 8)
    return {"planes": planes.tolist()}


def readkv_unpack_key_planes(planes: Any, tokens: Any) -> Any:
    """`readkv_unpack_key_planes`; bits beyond the last token are ignored."""
    d = planes.shape[1]
    codes = np.zeros((tokens, d), dtype=np.int64)
    for t, c, j in np.ndindex(tokens, d, 8):
        codes[t, c] += (int(planes[j, c, t // 8]) // 2 ** (t % 8) % 2) * 2 ** (7 - j)
    return {"codes": codes.tolist()}


def readkv_pack_value_planes(codes: Any) -> Any:
    """`readkv_pack_value_planes`: the same with tokens and channels exchanged."""
    return readkv_pack_key_planes(np.asarray(codes).T)


def readkv_unpack_value_planes(planes: Any, channels: Any) -> Any:
    """`readkv_unpack_value_planes`."""
    found = np.array(readkv_unpack_key_planes(planes, channels)["codes"], dtype=np.int64)
    return {"codes": found.reshape(channels, planes.shape[1]).T.tolist()}


def affine_quantize(x: Any, bits: Any) -> Any:
    """`affine_quantize`: codes (halves to even), scale and zero of every row; a constant row has codes and scale 0."""
    levels = 2**bits - 1
    codes, scale, zero = np.zeros(x.shape, dtype=np.int64), [], []
    for index, row in rows_of(x, -1):
        least = min(row, default=Fraction(0))
        step = (max(row, default=Fraction(0)) - least) / levels
        codes[index] = [round((v - least) / step) if step else 0 for v in row]
        scale.append(step)
        zero.append(least)
    shape = x.shape[:-1]
    return {"codes": codes.tolist(), "scale": _shaped(scale, shape), "zero": _shaped(zero, shape)}


def affine_dequantize(codes: Any, scale: Any, zero: Any) -> Any:
    """`affine_dequantize`."""
    values = [
        code * Fraction(float(scale[index[:-1]])) + Fraction(float(zero[index[:-1]]))
        for index, row in rows_of(codes, -1)
        for code in row
    ]
    return {"x": _shaped(values, codes.shape)}


def _shaped(values: list[Any], shape: tuple[int, ...]) -> Any:
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array.reshape(shape)
