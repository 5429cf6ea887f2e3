"""Bounds of ReadKV's readers: importances that an honest port may rank by, weights and output on its own depths.

Everything is taken at the depths that the port itself returned, so no discrete choice enters. With half-precision
inputs a port may hold rotated queries, reconstructed keys and values, weights and the mixed value in the input dtype to
use tensor cores: each such cast is one rounding at that dtype.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proofs_checks.bounds.common import OPERATIONS_PER_TOKEN, argument_bound, gamma, mean_bound, rounded, times
from proofs_checks.bounds.readkv_codec import rotate_error
from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray


def rotated_query_error(queries: FloatArray, rotated: FloatArray, precision: Precision) -> FloatArray:
    """Error of rotated queries [H, G, d]."""
    error: FloatArray = rotate_error(queries, precision.roundoff) + precision.weight_roundoff * np.abs(rotated)
    return error


def key_importance_range(
    rotated: FloatArray, error: FloatArray, key_scale: FloatArray, precision: Precision
) -> tuple[FloatArray, FloatArray]:
    """Low and high ends [H, d] of the key importances of a port whose rotated queries [H, G, d] err by ``error``."""
    G = rotated.shape[1]
    size, spread = np.abs(rotated) * key_scale[:, None], error * key_scale[:, None]
    factor = gamma(G + 4, precision.roundoff)
    low = np.sum(np.maximum(size - spread, 0.0) ** 2, axis=1) * (1 - factor)
    high = np.sum((size + spread) ** 2, axis=1) * (1 + factor)
    return low, high


def value_importance_range(
    weights: FloatArray, logits: FloatArray, precision: Precision
) -> tuple[FloatArray, FloatArray]:
    """Low and high ends [H, T] of the value importances of a port that returned ``weights`` [H, G, T].

    It may have squared other roundings of the same weights (another maximum, another normaliser); squares below the
    smallest normal may be lost.
    """
    H, G, T = weights.shape
    if T == 0:
        return np.zeros((H, 0)), np.zeros((H, 0))
    u = precision.roundoff
    relative = 2 * argument_bound(logits, u) + gamma(OPERATIONS_PER_TOKEN * T + G + 40, u)
    squares = weights**2
    low = np.sum(squares * np.maximum(1 - relative, 0.0), axis=1) - (G + 1) * precision.tiny
    return np.maximum(low, 0.0), np.sum(squares * (1 + relative), axis=1)


def reader_logit_error(
    rotated: FloatArray,
    query_error: FloatArray,
    keys: FloatArray,
    magnitude: FloatArray,
    scale: float,
    precision: Precision,
) -> FloatArray:
    """Error [H, G, T] of scale q'.K, K = mean + scale * centroid with magnitude |mean| + |scale * centroid| [H, T, d].

    d products in any order, the means' part summed apart or not, two roundings of a reconstructed key, the scale's own.
    """
    d = rotated.shape[-1]
    wide = np.einsum("hgd,htd->hgt", np.abs(rotated), magnitude, optimize=True)
    moved = np.einsum("hgd,htd->hgt", query_error, magnitude, optimize=True)
    cast = precision.weight_roundoff * np.einsum("hgd,htd->hgt", np.abs(rotated), np.abs(keys), optimize=True)
    error: FloatArray = abs(scale) * (times(gamma(d + 8, precision.roundoff), wide) + moved + cast)
    return error


def weight_bound(logits: FloatArray, logit_error: FloatArray, precision: Precision) -> FloatArray:
    """Error of softmax weights [H, G, T]: e^D / sum w e^-D - 1 of a weight, and gamma of its sum and division."""
    T, u = logits.shape[-1], precision.roundoff
    if T == 0:
        return np.zeros(logits.shape)
    weights = np.exp(logits - log_sum_exp(logits)[..., None])
    error = logit_error + argument_bound(logits, u)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        total = np.sum(weights * np.exp(-error), axis=-1, keepdims=True)
        relative = np.exp(error) / total - 1 + gamma(OPERATIONS_PER_TOKEN * T + 20, u) * np.exp(error) / total
        bound = np.where(weights == 0, 0.0, weights * relative) + precision.tiny
    return np.where(np.isnan(bound), np.inf, bound)


def reader_output_bound(
    logits: FloatArray,
    logit_error: FloatArray,
    values: FloatArray,
    magnitude: FloatArray,
    mixed: FloatArray,
    output: FloatArray,
    precision: Precision,
) -> FloatArray:
    """Error [H, G, d] of U^T (sum_t w_t V_t), V = mean + scale * centroid with magnitude [H, T, d], mixed [H, G, d].

    Every mixed channel errs by its mean's bound and two roundings of the values; the inverse rotation adds these up
    over sqrt(d) and rounds its own sum.
    """
    inside = replace(precision, output="float64")
    H, _, d = mixed.shape
    error = np.stack([mean_bound(logits[h], logit_error[h], values[h], inside) for h in range(H)])
    if logits.shape[-1]:
        weights = np.exp(logits - log_sum_exp(logits)[..., None])
        error += np.einsum("hgt,htd->hgd", weights, 2 * gamma(3, precision.roundoff) * magnitude, optimize=True)
        error += precision.weight_roundoff * (
            np.einsum("hgt,htd->hgd", weights, np.abs(values), optimize=True) + np.abs(mixed)
        )
    total = np.sum(error, axis=-1, keepdims=True) / np.sqrt(d) + rotate_error(np.abs(mixed) + error, precision.roundoff)
    return rounded(np.broadcast_to(total, output.shape), output, precision)
