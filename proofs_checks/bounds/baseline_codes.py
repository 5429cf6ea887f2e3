"""Bounds of KIVI, TurboQuant, QJL and Lloyd-2: what rounding may do to a rotated coordinate, a norm or an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma, rounded, times
from proofs_checks.bounds.readkv_codec import rotate_error
from proofs_checks.numbers import Precision
from refimpl.checks import FloatArray
from refimpl.readkv.codebooks import lloyd_max_codebook

Bounds = dict[str, FloatArray]
Inputs = Mapping[str, Any]

GUARD = 1e-8
"""Largest number that a port may add to a norm, before it divides by it and in what it stores (AMB-49)."""

PRINTED = 5e-5
"""Half a unit of the fourth decimal, to which tables of levels are printed."""


def norm_bound(x: FloatArray, u: float, tiny: float) -> FloatArray:
    """Error of a row's Euclidean norm, [..., d] -> [...]: d squares and sums, the root, and a guard."""
    norm = np.linalg.norm(x, axis=-1)
    bound: FloatArray = gamma(x.shape[-1] + 3, u) * norm + math.sqrt(tiny * max(x.shape[-1], 1)) + GUARD
    return bound


def coordinate_bound(x: FloatArray, rotation: FloatArray, u: float) -> FloatArray:
    """Error of rotation @ (x / |x|) of rows x [N, d], [N, d]: the product's d terms, the norm and the division.

    The rotation's own entries count one rounding more: a fast transform has them exact where the given ones are not.
    """
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    safe = np.where(norm > 0, norm, 1.0)
    size = np.abs(x / safe) @ np.abs(rotation).T
    error: FloatArray = times(gamma(2 * x.shape[-1] + 6, u) + GUARD / safe, size)
    return error


def decode_bound(inputs: Inputs, reference: Inputs, precision: Precision) -> Bounds:
    """`turboquant_decode`: d products and sums of a coordinate, the norm's factor, and the levels' own norm."""
    d, u = inputs["rotation"].shape[0], precision.roundoff
    level = np.abs(inputs["levels"][inputs["codes"]])
    operations = d + 4
    if inputs["norm_correction"]:
        length = np.linalg.norm(level, axis=-1, keepdims=True)
        level, operations = level / np.where(length > 0, length, 1.0), 2 * d + 8
    size = np.abs(inputs["norm"])[:, None] * (level @ np.abs(inputs["rotation"]))
    return {"x": rounded(times(gamma(operations, u), size) + precision.tiny, reference["x"], precision)}


def projected_bound(x: FloatArray, projection: FloatArray, u: float) -> FloatArray:
    """Error of x [N, d] @ projection [m, d]^T, [N, m]."""
    error: FloatArray = times(gamma(x.shape[-1] + 1, u), np.abs(x) @ np.abs(projection).T)
    return error


def estimate_bound(inputs: Inputs, reference: Inputs, precision: Precision) -> Bounds:
    """`qjl_estimate`: a product of d terms, a sum of m of them with signs, the norm and the factor."""
    m, d = inputs["projection"].shape
    size = np.abs(inputs["queries"]) @ np.abs(inputs["projection"]).T @ np.ones((m, 1))  # [M, 1]
    size = math.sqrt(math.pi / 2) / max(m, 1) * size * np.abs(inputs["norm"])
    return {"estimates": times(gamma(m + d + 5, precision.roundoff), size) + precision.tiny}


def kivi_dequantize_bound(inputs: Inputs, reference: Inputs, precision: Precision) -> Bounds:
    """`kivi_dequantize`: one product and one sum."""
    u, bounds = precision.roundoff, {}
    for name, one, axis in (("keys", "key", 1), ("values", "value", 2)):
        codes, parts = inputs[f"{one}_codes"], []
        for part in ("scale", "zero"):
            given = np.abs(inputs[f"{one}_{part}"])
            parts.append(np.repeat(given, codes.shape[axis] // max(given.shape[axis], 1), axis=axis))
        size = codes * parts[0] + parts[1]
        bounds[name] = rounded(gamma(2, u) * size + precision.tiny, reference[name], precision)
    return bounds


def standardised_bound(inputs: Inputs, rotated: FloatArray, u: float) -> FloatArray:
    """Error of (U x - mean) / scale of x [H, T, d]: the rotation's, and a difference and a division."""
    scale, mean = inputs["scale"][:, None], np.abs(inputs["mean"])[:, None]
    error: FloatArray = (rotate_error(inputs["x"], u) + gamma(3, u) * (np.abs(rotated) + mean)) / scale
    return error


def lloyd2_decode_bound(inputs: Inputs, reference: Inputs, precision: Precision) -> Bounds:
    """`lloyd2_decode`: a printed level and its two operations, the norm of the restored channels, the rotation back."""
    u, d = precision.roundoff, inputs["codes"].shape[-1]
    levels = lloyd_max_codebook(bits=2, law="normal", d=1)["levels"][inputs["codes"]]
    scale, mean = inputs["scale"][:, None], inputs["mean"][:, None]
    restored = mean + scale * levels
    error = scale * PRINTED + gamma(3, u) * (np.abs(mean) + scale * np.abs(levels))
    if inputs.get("norm_correction", True):
        length = np.linalg.norm(restored, axis=-1, keepdims=True)
        safe = np.where(length > 0, length, 1.0)
        factor = inputs["norm"][..., None] / safe
        off = np.linalg.norm(error, axis=-1, keepdims=True) / safe  # of the length, relatively
        restored, error = factor * restored, factor * (error + np.abs(restored) * (off / (1 - off) + gamma(d + 6, u)))
    inner = np.sum(error, axis=-1, keepdims=True) / math.sqrt(d) + rotate_error(restored, u)
    inner = np.broadcast_to(inner, restored.shape)
    return {"x": rounded(inner + precision.tiny, reference["x"], precision)}
