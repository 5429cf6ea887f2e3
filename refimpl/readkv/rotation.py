"""Rotation: the fixed Hadamard-sign transform that mixes channels before scalar quantisation (Sec. 3.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, real, whole
from refimpl.readkv.arrays import real_array


def hadamard_matrix(d: int) -> FloatArray:
    """The d x d Hadamard matrix of +-1 in Sylvester (natural) order; d a power of two.

    >>> hadamard_matrix(4).astype(int).tolist()
    [[1, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]
    """
    _check_width(d, "d")
    matrix = np.ones((1, 1))
    while len(matrix) < d:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def rotation_matrix(signs: Any) -> FloatArray:
    """The orthogonal matrix U = H diag(signs) / sqrt(d) of the transform, signs [d] of +-1 -> [d, d].

    >>> rotation_matrix([1, -1]).round(4).tolist()
    [[0.7071, -0.7071], [0.7071, 0.7071]]
    """
    signs = check_signs("signs", signs)
    matrix: FloatArray = hadamard_matrix(len(signs)) * signs / math.sqrt(len(signs))
    return matrix


def fast_hadamard(x: FloatArray) -> FloatArray:
    """H x over the last axis by log2(d) rounds of sums and differences, unscaled: [..., d] -> [..., d].

    >>> fast_hadamard(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [10.0, -2.0, -4.0, 0.0]
    """
    d = x.shape[-1]
    _check_width(d)
    half = 1
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        x = x.reshape(*x.shape[:-3], d)
        half *= 2
    return x


def readkv_rotate(*, x: Any, signs: Any) -> FloatArray:
    """Apply U = H diag(signs) / sqrt(d): signs first, then the Hadamard transform, scaled once at the end.

    Args:
        x: [..., d], d a power of two.
        signs: [d], each +1 or -1.

    Returns:
        rotated [..., d]; lengths and inner products are kept.

    Raises:
        ArgumentError: d not a power of two, a sign that is not +-1, a shape or a non-finite value.

    Source: ReadKV Sec. 3.1; AMB-16.

    >>> readkv_rotate(x=[3.0, 1.0, 1.0, 1.0], signs=[1, 1, -1, -1]).tolist()
    [1.0, 1.0, 3.0, 1.0]
    """
    x, signs = _check_pair(x, signs)
    rotated: FloatArray = fast_hadamard(x * signs) / math.sqrt(len(signs))
    return rotated


def unrotate(*, x: Any, signs: Any) -> FloatArray:
    """Apply the transpose U^T, which undoes `readkv_rotate`: [..., d] -> [..., d]. Errors as there.

    >>> unrotate(x=[1.0, 1.0, 3.0, 1.0], signs=[1, 1, -1, -1]).tolist()
    [3.0, 1.0, 1.0, 1.0]
    """
    x, signs = _check_pair(x, signs)
    restored: FloatArray = fast_hadamard(x) * signs / math.sqrt(len(signs))
    return restored


def check_signs(name: str, signs: Any, d: int | None = None) -> FloatArray:
    """Signs [d] as float64; ArgumentError unless every entry is +1 or -1 and d is a power of two.

    >>> check_signs("key_signs", [1, -1]).tolist()
    [1.0, -1.0]
    """
    array = real(name, signs, "d", Sizes() if d is None else Sizes({"d": d}))
    _check_width(len(array), name)
    if (np.abs(array) != 1.0).any():
        bad = int(np.argmax(np.abs(array) != 1.0))
        raise ArgumentError(f"{name}: expected +1 or -1, got {array[bad]} at [{bad}]")
    return array


def _check_pair(x: Any, signs: Any) -> tuple[FloatArray, FloatArray]:
    x = real_array("x", x)
    if x.ndim == 0:
        raise ArgumentError("x: expected at least one axis (the channels), got a single number")
    return x, check_signs("signs", signs, x.shape[-1])


def _check_width(d: int, name: str = "x") -> None:
    if whole(name, d) < 1 or d & (d - 1):
        raise ArgumentError(f"{name}: expected a power of two of channels for the Hadamard transform, got d={d}")
