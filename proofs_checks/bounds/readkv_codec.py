"""Bounds of ReadKV's rotation, importances and affine rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma, rounded, times
from proofs_checks.numbers import Precision
from refimpl.checks import FloatArray

Bounds = dict[str, FloatArray]


def rotation_operations(x: FloatArray) -> FloatArray:
    """Roundings on the longest path from a channel to a rotated one, per row [..., 1].

    A sum in any order rounds once per nonzero term; a butterfly scaled by 1/sqrt(2) in every round adds one product per
    round and the constant's own rounding; one scale at the end adds its product and its constant.
    """
    rounds = 2 * np.log2(x.shape[-1])
    operations: FloatArray = np.count_nonzero(x, axis=-1, keepdims=True) + rounds + 3.0
    return operations


def rotate_error(x: FloatArray, u: float) -> FloatArray:
    """Error of every entry of U x before it is stored, [..., 1]: gamma of the operations times |x|_1 / sqrt(d)."""
    size = np.sum(np.abs(x), axis=-1, keepdims=True) / np.sqrt(x.shape[-1])
    error: FloatArray = times(gamma(rotation_operations(x), u), size)
    return error


def rotate_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`readkv_rotate`: the sum of d signed terms, and the rounding to the output dtype."""
    error = np.broadcast_to(rotate_error(inputs["x"], precision.roundoff), reference["rotated"].shape)
    return {"rotated": rounded(error, reference["rotated"], precision)}


def key_importance_bound(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision
) -> Bounds:
    """`readkv_key_importance`: nonnegative terms, so the error is relative: a product, a square and G sums.

    Squaring both factors first makes three roundings of a term; each square may underflow.
    """
    G = inputs["rotated_queries"].shape[1]
    importance = reference["importance"]
    return {"importance": gamma(G + 4, precision.roundoff) * importance + (G + 1) * precision.tiny}


def value_importance_bound(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision
) -> Bounds:
    """`readkv_value_importance`: a square, G sums and the head's factor; squares below the smallest normal are lost."""
    G = inputs["weights"].shape[1]
    factor = np.asarray(inputs.get("value_head_weight", np.ones(len(inputs["weights"]))))[:, None]
    lost = (G + 1) * precision.tiny * np.maximum(factor, 1.0)
    return {"importance": gamma(G + 4, precision.roundoff) * reference["importance"] + lost}


def dequantize_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`affine_dequantize`: one product and one sum."""
    zero = np.abs(inputs["zero"])[..., None]
    magnitude = np.abs(inputs["codes"] * inputs["scale"][..., None]) + zero
    return {"x": rounded(gamma(2, precision.roundoff) * magnitude + precision.tiny, reference["x"], precision)}
