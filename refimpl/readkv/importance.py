"""Importance: how much one more prefix bit of a key channel or a value token matters to the query (Eqs. (2), (3))."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, real
from refimpl.readkv.calibration import check_scales


def readkv_key_importance(*, rotated_queries: Any, key_scale: Any) -> FloatArray:
    """Weight of every transformed key channel: the squared coefficient of its error, summed over the query group.

    Args:
        rotated_queries: [H, G, d], U_K q.
        key_scale: [H, d], calibrated and positive.

    Returns:
        importance [H, d] = sum_g (q'_{h,g,c} sigma_{h,c})^2.

    Raises:
        ArgumentError: a shape, a non-finite value, or a dead channel.

    Source: ReadKV Eq. (2).

    >>> readkv_key_importance(rotated_queries=[[[1.0, 2.0], [3.0, 0.0]]], key_scale=[[1.0, 0.5]]).tolist()
    [[10.0, 1.0]]
    """
    sizes = Sizes()
    queries = real("rotated_queries", rotated_queries, "H G d", sizes)
    scale = check_scales("key_scale", key_scale, "H d", sizes)
    importance: FloatArray = np.sum((queries * scale[:, None]) ** 2, axis=1)
    return importance


def readkv_value_importance(*, weights: Any, value_head_weight: Any = None) -> FloatArray:
    """Weight of every value token: the squared attention probabilities, summed over the query group.

    Args:
        weights: [H, G, T], reconstructed attention probabilities.
        value_head_weight: [H], the paper's s_g >= 0; None is 1, `physical_head_weight` is the paper's other choice.

    Returns:
        importance [H, T] = s_h sum_g alpha_{h,g,j}^2.

    Raises:
        ArgumentError: a shape, a non-finite value, or a negative s_g.

    Source: ReadKV Eq. (3), App. D.2; AMB-24.

    >>> readkv_value_importance(weights=[[[0.5, 0.5], [1.0, 0.0]]], value_head_weight=[2.0]).tolist()
    [[2.5, 0.5]]
    """
    sizes = Sizes()
    weights = real("weights", weights, "H G T", sizes)
    importance: FloatArray = np.sum(weights**2, axis=1)  # [H, T]
    if value_head_weight is None:
        return importance
    factor = real("value_head_weight", value_head_weight, "H", sizes)
    if (factor < 0).any():
        raise ArgumentError(f"value_head_weight: expected nonnegative factors, got {factor.min()}")
    return factor[:, None] * importance


def physical_head_weight(*, value_scale: Any) -> FloatArray:
    """s_h = sum_c (sigma^V_{h,c})^2, which measures value error in physical units: value_scale [H, d] -> [H].

    Source: ReadKV App. D.2, App. F.7.

    >>> physical_head_weight(value_scale=[[1.0, 2.0]]).tolist()
    [5.0]
    """
    scale = check_scales("value_scale", value_scale, "H d", Sizes())
    weight: FloatArray = np.sum(scale**2, axis=1)
    return weight
