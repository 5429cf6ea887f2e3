"""What every bound is made of: gamma_n, the counted dot product, and a softmax whose logits are a little off.

Notation: u is the error of one operation, gamma_n = n u / (1 - n u) that of n operations in any order (Higham,
*Accuracy and Stability of Numerical Algorithms*, Lemma 3.1 and Sec. 4.2). The bounds hold to all orders.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

EXP_ROUNDOFFS = 6
"""Roundoffs of one exponential: 2.53 u measured for the fast device expf, one for the product that uses it, spare."""

ARGUMENT_ROUNDOFFS = 3
"""Roundings of an exponential's argument: the subtraction of the maximum, the product with log2(e) on both sides."""

OPERATIONS_PER_TOKEN = 5
"""Of a softmax sum taken token by token: the add, and an online rescale (exp, its argument, product, add)."""


def gamma(n: Any, u: float) -> Any:
    """gamma_n = n u / (1 - n u), elementwise; infinite where n u >= 1, where nothing can be promised.

    >>> gamma(2, 0.25), gamma(4, 0.25)
    (1.0, inf)
    """
    nu = np.asarray(n, dtype=np.float64) * u
    with np.errstate(divide="ignore"):
        result = np.where(nu < 1, nu / np.maximum(1 - nu, 0), np.inf)
    return float(result) if result.ndim == 0 else result


def times(factor: Any, magnitude: Any) -> Any:
    """factor * magnitude with inf * 0 = 0: an operation count says nothing about a sum of zeros."""
    with np.errstate(invalid="ignore"):
        return np.where(np.asarray(magnitude) == 0, 0.0, np.asarray(factor) * magnitude)


def logit_bound(queries: FloatArray, keys: FloatArray, scale: float, u: float) -> FloatArray:
    """Error of scale * q.k in any order: gamma_{n+3} |scale| sum |q||k|, n the number of nonzero products.

    queries [..., G, d], keys [..., T, d] -> [..., G, T]. Products with an exact zero round nothing, so they do not
    count; three more operations are the scale's own rounding, its product, and a split of the sum.
    """
    keys_last = np.swapaxes(np.abs(keys), -1, -2)  # [..., d, T]
    magnitude = np.abs(queries) @ keys_last
    products = (queries != 0).astype(np.float64) @ (keys_last != 0)
    return times(gamma(products + 3, u), abs(scale) * magnitude)


def argument_bound(logits: FloatArray, u: float) -> FloatArray:
    """Relative error of exp(z - max z), [..., T]: roundings of its argument, of size |z| + |max z|, and its own."""
    largest = np.max(logits, axis=-1, keepdims=True, initial=-np.inf)  # no pages, no maximum
    finite = np.where(np.isneginf(logits), 0.0, logits)
    return u * (
        ARGUMENT_ROUNDOFFS * (np.abs(finite) + np.abs(np.where(np.isneginf(largest), 0.0, largest))) + EXP_ROUNDOFFS
    )


def normaliser_bound(logits: FloatArray, u: float) -> FloatArray:
    """Relative error that all weights exp(z - lse) share, [..., T] -> [..., 1]; 0 where the sum is empty.

    Many kernels normalise by the log-sum-exp instead of dividing by the sum (every combine of split results that keeps
    only lse does). The stored lse is rounded at its own size, so the weights of log-masses near 60000 sum to
    1 + 60000 u: no change of their proportions shows that. Roundings as those of an exponential's argument: the log
    with its two conversions of base, adding the maximum, and the final exponential.
    """
    lse = log_sum_exp(logits)[..., None]
    largest = np.max(logits, axis=-1, keepdims=True, initial=-np.inf)
    size = np.abs(lse) + np.abs(largest) + np.log(max(logits.shape[-1], 1))
    return u * np.where(np.isneginf(lse), 0.0, ARGUMENT_ROUNDOFFS * size + EXP_ROUNDOFFS)


def lse_bound(logits: FloatArray, logit_error: FloatArray, u: float) -> FloatArray:
    """Error of log sum exp over the last axis, [..., T] -> [...]; 0 where the sum is empty.

    With weights w and |dz_i| <= D_i: log sum w_i e^{D_i} above and -log sum w_i e^{-D_i} below; then gamma of the
    sum's operations, and roundings of the logarithm and of adding the maximum back. D is added inside the exponential:
    w e^D would be 0 times infinity for a token of no weight and a large D.
    """
    T = logits.shape[-1]
    lse = log_sum_exp(logits)
    if T == 0:
        return np.zeros(lse.shape)
    shift = np.where(np.isneginf(lse), 0.0, lse)
    error = logit_error + argument_bound(logits, u)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        above = np.log(np.sum(np.exp(logits - shift[..., None] + error), axis=-1))
        below = -np.log(np.sum(np.exp(logits - shift[..., None] - error), axis=-1))
    largest = np.max(logits, axis=-1)
    magnitude = np.abs(shift) + np.abs(np.where(np.isneginf(largest), 0.0, largest)) + np.log(T)
    bound = np.maximum(above, below) + gamma(OPERATIONS_PER_TOKEN * T + 40, u) + u * (4 * magnitude + 4)
    return np.where(np.isneginf(lse), 0.0, np.where(np.isnan(bound), np.inf, bound))


def mean_bound(
    logits: FloatArray, logit_error: FloatArray, values: FloatArray, precision: Precision, weight_cast: bool = True
) -> FloatArray:
    """Error of o = sum_i w_i v_i, w the softmax of logits [G, T] known to ``logit_error``; values [T, c] -> [G, c].

    (a) perturbed weights: |do| <= sum w (e^D - 1)|v - o| / sum w e^-D; (b) gamma of the two sums and the division;
    (c) a factor on all weights, see `normaliser_bound`; (d) where inputs are half precision, weights cast to it;
    (e) flush to zero; (f) rounding to the output dtype.
    """
    T = logits.shape[-1]
    if T == 0:
        return np.zeros((logits.shape[0], values.shape[-1]))
    u = precision.roundoff
    lse = log_sum_exp(logits)[:, None]
    weights = np.exp(logits - lse)  # [G, T]
    error = logit_error + argument_bound(logits, u)
    output = weights @ values  # [G, c]
    spread = np.abs(values)
    with np.errstate(over="ignore", invalid="ignore"):
        low = np.sum(weights * np.exp(-error), axis=-1, keepdims=True)  # [G, 1]
        wobble = weights * np.expm1(error)
        moved = np.stack([w @ np.abs(values - o) for w, o in zip(wobble, output, strict=True)])
        magnitude = (weights * np.exp(error)) @ spread
        inner = (moved + times(gamma(OPERATIONS_PER_TOKEN * T + 40, u), magnitude)) / low
        common = normaliser_bound(logits, u)  # [G, 1]
        inner = inner * np.exp(common) + times(np.expm1(common), np.abs(output))
    inner = np.where(np.isnan(inner), np.inf, inner)
    if weight_cast:
        inner += precision.weight_roundoff * (weights @ spread + np.abs(output))
    share_of_largest = np.exp(np.max(logits, axis=-1, keepdims=True) - lse)  # a weight of 1 before normalising
    floor = (precision.tiny + (precision.weight_floor if weight_cast else 0.0)) * share_of_largest
    inner += 2 * floor * np.sum(spread, axis=0)
    return rounded(inner, output, precision)


def rounded(inner: FloatArray, value: FloatArray, precision: Precision) -> FloatArray:
    """The bound after one rounding of a value to the output dtype, underflow included."""
    u = precision.output_roundoff
    return inner * (1 + u) + u * np.abs(value) + precision.output_tiny
