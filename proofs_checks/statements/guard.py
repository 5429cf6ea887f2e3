"""Derived float64 guards: how far rounding alone can move the two sides of a statement (Higham's gamma_n)."""

from __future__ import annotations

import numpy as np

from refimpl.checks import FloatArray

UNIT = 2.0**-53  # unit roundoff u of float64
ULP_EXP = 4.0  # NumPy's exp and log are within 4 ulp: a relative error of at most 4 * 2u; measured below 1 ulp


def gamma(count: int) -> float:
    """Higham's gamma_n = n u / (1 - n u): the relative error of n roundings in any order.

    >>> gamma(1) > UNIT and gamma(1000) < 1001 * UNIT
    True
    """
    return count * UNIT / (1 - count * UNIT)


def dot_guard(a: FloatArray, b: FloatArray) -> FloatArray:
    """Error of sum_c a_c b_c over the last axis, any order of summation: gamma_d |a|.|b|.

    >>> 4 * gamma(4) < float(dot_guard(np.ones((1, 4)), np.ones((1, 4)))[0]) < 4.001 * gamma(4)
    True
    """
    width = int(np.broadcast_shapes(a.shape, b.shape)[-1])
    inflated = gamma(width) * (1 + 2 * gamma(width))  # the sum below is itself rounded
    return inflated * np.sum(np.abs(a) * np.abs(b), axis=-1)


def log_sum_exp_guard(logits: FloatArray) -> FloatArray:
    """Error of a shifted log-sum-exp over the last axis (n terms), given the logits exactly.

    Each exponent is x - m rounded (u |x - m|), its exp carries 8u, the sum gamma_{n-1}, the log 8u relative and the
    final addition u of the result: u [sum p (|x - m| + 8) + n - 1 + 8 log n + |lse|], and |x - m| <= range.
    """
    finite = np.where(np.isneginf(logits), 0.0, logits)
    count = logits.shape[-1]
    weighted = np.exp(logits - np.max(logits, axis=-1, keepdims=True)) * np.abs(
        finite - np.max(logits, axis=-1, keepdims=True)
    )
    spread = np.sum(weighted, axis=-1)  # the largest weight is 1, so this bounds sum p |x - m|
    size = np.max(np.abs(finite), axis=-1) + np.log(count)
    bound: FloatArray = 1.01 * UNIT * (spread + 2 * ULP_EXP * (1 + np.log(count)) + count + size)
    return bound


def softmax_relative(logits: FloatArray) -> FloatArray:
    """Relative error of every softmax weight over the last axis, given the logits exactly.

    exp(x - m): u |x - m| from the shifted exponent and 8u from exp; the normaliser the same on average, gamma_{n-1}
    from its sum; one division. Bounded by u (2 range + 16 + n + 1). Weights below the normal range may lose more in
    relative terms, but no more than n times the smallest normal number in absolute terms.
    """
    count = logits.shape[-1]
    spread = np.max(logits, axis=-1) - np.min(logits, axis=-1)
    bound: FloatArray = 1.01 * UNIT * (2 * np.minimum(spread, 745.0) + 4 * ULP_EXP + count + 1)
    return bound


def average_guard(logits: FloatArray, values: FloatArray) -> FloatArray:
    """Error of the norm of a softmax average of value rows: logits [..., n], values [..., n, d] -> [...].

    The weights' relative error, n products and sums, and sqrt(d) for the norm, times the largest value norm.
    """
    count = logits.shape[-1]
    largest = np.max(np.linalg.norm(values, axis=-1), axis=-1)
    tiny = count * np.finfo(np.float64).tiny
    bound: FloatArray = (softmax_relative(logits) + gamma(count + 2) + tiny) * largest * 1.01
    return bound
