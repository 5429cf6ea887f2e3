"""Bounds of the Locks scoring stages: dequantised summaries, page scores, group shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import argument_bound, gamma, logit_bound, lse_bound, times
from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp, scale_of
from refimpl.checks import FloatArray
from refimpl.locks.combine import head_shares

Bounds = dict[str, FloatArray]


def dequantize_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`locks_dequantize_summary`: one product, rounded once."""
    return {name: gamma(1, precision.roundoff) * np.abs(value) + precision.tiny for name, value in reference.items()}


def summary_logits(inputs: Mapping[str, Any], u: float) -> tuple[FloatArray, FloatArray]:
    """Reconstructed logits and their error, both [H, G, P, B].

    scale (q.mu + sum_k c_k (v_k.q)) in any order, key reconstructed first or query projected first: the products of
    the long sum are d + d r, no path through it is longer than d + r + 6 operations.
    """
    queries, centroid = inputs["queries"], inputs["centroid"]
    basis, coefficients = inputs["basis"], inputs["coefficients"]
    scale = scale_of(inputs.get("softmax_scale"), queries.shape[-1])

    def pieces(q: FloatArray, mu: FloatArray, v: FloatArray, c: FloatArray) -> FloatArray:
        centre = np.einsum("hgd,hpd->hgp", q, mu, optimize=True)
        projected = np.einsum("hgd,hpdr->hgpr", q, v, optimize=True)
        total: FloatArray = centre[..., None] + np.einsum("hgpr,hpbr->hgpb", projected, c, optimize=True)
        return total

    logits = scale * pieces(queries, centroid, basis, coefficients)
    magnitude = abs(scale) * pieces(np.abs(queries), np.abs(centroid), np.abs(basis), np.abs(coefficients))
    operations = queries.shape[-1] + basis.shape[-1] + 6
    return logits, times(gamma(operations, u), magnitude)


def score_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`locks_score_pages`: the error of a log-sum-exp of reconstructed logits."""
    logits, error = summary_logits(inputs, precision.roundoff)
    return {"scores": lse_bound(logits, error, precision.roundoff)}


def exact_score_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`exact_page_scores`: the same over logits read from the keys."""
    scale = scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1])
    queries, pages = inputs["queries"][:, None], inputs["key_pages"]  # [H, 1, G, d], [H, P, B, d]
    logits = np.moveaxis(scale * (queries @ np.swapaxes(pages, -1, -2)), 1, 2)  # [H, G, P, B]
    error = np.moveaxis(logit_bound(queries, pages, scale, precision.roundoff), 1, 2)
    return {"scores": lse_bound(logits, error, precision.roundoff)}


def shares_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`locks_page_shares`: relative error e^{D_j} / sum m_i e^{-D_i} - 1 of a share, and gamma of its sums.

    The floor is the smallest normal of the dtype: below it a share may be flushed.
    """
    scores, u = inputs["scores"], precision.roundoff
    groups = scores.shape[1]
    error = np.zeros(scores.shape)
    if inputs.get("combine", "share_average") == "group_mass":
        error = lse_bound(np.moveaxis(scores, 1, -1), np.zeros(scores.shape).swapaxes(1, 2), u)[:, None]
        scores = log_sum_exp(np.moveaxis(scores, 1, -1))[:, None]  # [H, 1, P]
    shares = head_shares(scores)  # [H, G, P]
    lse = log_sum_exp(scores)
    error = error + np.where(np.isneginf(scores), 0.0, argument_bound(scores, u))
    error = error + u * np.abs(np.where(np.isneginf(lse), 0.0, lse))[..., None]
    total = np.sum(shares * np.exp(-error), axis=-1, keepdims=True)
    relative = np.exp(error) / np.where(total > 0, total, 1.0) - 1
    relative = relative + gamma(5 * scores.shape[-1] + groups + 20, u) * np.exp(error)
    bound = shares * relative + precision.tiny
    bound = bound.max(axis=1) if inputs.get("combine") == "group_max" else bound.mean(axis=1)
    return {"shares": np.where(np.isfinite(bound), bound, np.inf)}
