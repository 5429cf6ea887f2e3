"""Asymmetric uniform quantisation of rows, as KIVI and TurboQuant's values use it (ReadKV App. F.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, whole
from refimpl.readkv.arrays import integer_array, real_array


def affine_quantize(*, x: Any, bits: int) -> dict[str, Any]:
    """Map every row (last axis) from its own [min, max] onto the integers 0..2^bits - 1.

    Args:
        x: [..., n], finite. n may be 0.
        bits: 1..8.

    Returns:
        ``codes`` [..., n] uint8 = round((x - zero) / scale), halves to even; ``scale`` [...] =
        (max - min) / (2^bits - 1); ``zero`` [...] = min. A constant row has scale 0 and codes 0.

    Raises:
        ArgumentError: bits outside 1..8, no axis, or a non-finite value.

    Source: ReadKV App. F.2 (KIVI; TurboQuant's values).

    >>> q = affine_quantize(x=[[-1.0, 0.0, 2.0], [5.0, 5.0, 5.0]], bits=2)
    >>> q["codes"].tolist(), q["scale"].tolist(), q["zero"].tolist()
    ([[0, 1, 3], [0, 0, 0]], [1.0, 0.0], [-1.0, 5.0])
    """
    x = real_array("x", x)
    if x.ndim == 0:
        raise ArgumentError("x: expected at least one axis (the row), got a single number")
    levels = 2 ** whole("bits", bits, low=1, high=8) - 1
    zero = x.min(axis=-1) if x.shape[-1] else np.zeros(x.shape[:-1])
    largest = x.max(axis=-1) if x.shape[-1] else zero
    scale = (largest - zero) / levels  # [...]
    steps = np.zeros_like(x)
    np.divide(x - zero[..., None], scale[..., None], out=steps, where=scale[..., None] > 0)
    codes = np.clip(np.rint(steps), 0, levels).astype(np.uint8)
    return {"codes": codes, "scale": scale, "zero": zero}


def affine_dequantize(*, codes: Any, scale: Any, zero: Any) -> FloatArray:
    """The numbers that affine codes stand for, code * scale + zero per row: [..., n], [...], [...] -> [..., n].

    Raises ArgumentError for a shape, a code outside 0..255, or a non-finite scale or zero.

    Source: ReadKV App. F.2.

    >>> affine_dequantize(codes=[[0, 1, 3]], scale=[1.0], zero=[-1.0]).tolist()
    [[-1.0, 0.0, 2.0]]
    """
    codes = integer_array("codes", codes, 0, 255)
    scale, zero = real_array("scale", scale), real_array("zero", zero)
    if codes.ndim == 0:
        raise ArgumentError("codes: expected at least one axis (the row), got a single number")
    for name, array in (("scale", scale), ("zero", zero)):
        if array.shape != codes.shape[:-1]:
            raise ArgumentError(f"{name}: expected shape {list(codes.shape[:-1])}, got {list(array.shape)}")
    return codes * scale[..., None] + zero[..., None]
