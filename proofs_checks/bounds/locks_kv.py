"""Bounds of the dialect locks-kv-0.1.4: rounded queries, scales in bf16, peak-normalised page values.

What differs from the paper is derived here; the rest is the paper's (`locks_score`, `locks_decode`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import paged_attention_bound, sparse_attention_bound
from proofs_checks.bounds.common import argument_bound, gamma, lse_bound
from proofs_checks.bounds.locks_decode import build_rounding
from proofs_checks.bounds.locks_perturbation import spectrum
from proofs_checks.bounds.locks_quantized import quantization_error
from proofs_checks.bounds.locks_rounding import Storage
from proofs_checks.bounds.locks_score import Bounds, summary_logits
from proofs_checks.numbers import FORMATS, Precision
from refimpl.attention import scale_of
from refimpl.checks import FloatArray
from refimpl.locks.dialect import LOCKS_KV_0_1_4, quantize_summary, round_queries, to_bf16
from refimpl.locks.quantize import LEVELS, locks_dequantize_summary
from refimpl.locks.score import locks_score_pages
from refimpl.locks.summary import locks_build_summary
from refimpl.paging import split_pages

SMALLEST_MODE = float(np.sqrt(LOCKS_KV_0_1_4.eigenvalue_floor or 0.0))
STORAGE = Storage(to_bf16, FORMATS["bfloat16"].unit_roundoff, LOCKS_KV_0_1_4.scale_floor, SMALLEST_MODE)
"""How the dialect keeps the scales of a summary."""

QUERY_ROUNDINGS = 4
"""Roundoffs of a rounded query: its scale (division, reciprocal), and the product of code and scale."""


class HalfPrecisionWeights(Precision):
    """A precision whose softmax weights and values are cast to float16 where inputs are half precision.

    bf16 values that float16 holds are exact; below its normal numbers a cast is off by half its smallest step, 2^-25,
    and flushes nothing.
    """

    @property
    def weight_roundoff(self) -> float:
        """The larger of the casts to the input dtype and to float16."""
        own = super().weight_roundoff
        return max(own, FORMATS["float16"].unit_roundoff) if own else 0.0

    @property
    def weight_floor(self) -> float:
        """The larger absolute error of these casts near zero."""
        own = super().weight_floor
        return max(own, self.value_error)

    @property
    def value_error(self) -> float:
        """What the cast changes of a value that float16 does not hold as a normal number."""
        float16 = FORMATS["float16"]
        return float16.smallest_normal * float16.unit_roundoff if super().weight_floor else 0.0


def half_weights(precision: Precision) -> HalfPrecisionWeights:
    """The same dtypes with float16 weights and values allowed.

    >>> half_weights(Precision("bfloat16")).value_error == 2.0**-25, half_weights(Precision()).weight_floor
    (True, 0.0)
    """
    return HalfPrecisionWeights(precision.input, precision.accumulate, precision.output)


def sparse_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`sparse_attention`: the paper's bound with float16 weights and values."""
    half = half_weights(precision)
    bounds = sparse_attention_bound(inputs, reference, half)
    return bounds | {"output": bounds["output"] + 2 * half.value_error}


def paged_sparse_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`paged_sparse_attention`: the same through block tables."""
    half = half_weights(precision)
    bounds = paged_attention_bound(inputs, reference, half)
    return bounds | {"output": bounds["output"] + 2 * half.value_error}


def query_moves(queries: FloatArray, u: float) -> tuple[FloatArray, FloatArray]:
    """How far entries of the rounded query may lie from the reference's: by another code, and by roundings.

    A code may be the neighbour where q / scale lies within 4 u |q / scale| of a half. Both [H, G, d].

    >>> flips, _ = query_moves(np.array([[[127.0, 2.5, 2.4]]]), 2.0**-23)
    >>> flips.tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    scale = np.maximum(np.abs(queries).max(axis=-1, keepdims=True, initial=0.0), LOCKS_KV_0_1_4.scale_floor)
    scale = scale / LEVELS[8]
    ratio = np.abs(queries) / scale
    near_half = np.abs(ratio - np.floor(ratio) - 0.5) <= 4 * u * ratio
    return np.where(near_half, scale, 0.0), gamma(QUERY_ROUNDINGS, u) * np.abs(round_queries(queries))


def score_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`locks_score_pages`: the bound on the rounded query, and what other codes of it may change."""
    u = precision.roundoff
    rounded = {**inputs, "queries": round_queries(inputs["queries"])}
    logits, error = summary_logits(rounded, u)
    keys = reconstructed(inputs)
    flips, roundings = query_moves(inputs["queries"], u)
    moved = _through_keys(flips + roundings, np.abs(keys))
    scale = abs(scale_of(inputs.get("softmax_scale"), keys.shape[-1]))
    more = gamma(inputs["basis"].shape[-1] + 2, u) + 1  # the moved part is summed in the same way
    return {"scores": lse_bound(logits, error + scale * more * moved, u)}


def reconstructed(summary: Mapping[str, FloatArray]) -> FloatArray:
    """The keys [H, P, B, d] that a summary stands for."""
    rows: FloatArray = summary["coefficients"] @ np.swapaxes(summary["basis"], -1, -2)
    return summary["centroid"][:, :, None] + rows


def _through_keys(moves: FloatArray, keys: FloatArray) -> FloatArray:
    """sum_j moves_j keys_j, [H, G, d] and [H, P, B, d] -> [H, G, P, B]."""
    total: FloatArray = np.einsum("hgd,hpbd->hgpb", moves, keys, optimize=True)
    return total


def page_values_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`locks_page_shares`: a sum over the group of exp(score - peak), the peak known exactly; the last page is 0."""
    scored, u = inputs["scores"][..., :-1], precision.roundoff
    groups = scored.shape[1]
    peak = scored.max(axis=-1, keepdims=True, initial=-np.inf)
    terms = np.exp(scored - np.where(np.isneginf(peak), 0.0, peak))
    relative = np.expm1(argument_bound(scored, u))
    bound = np.zeros(reference["shares"].shape)
    inner = np.sum(terms * relative + terms * (1 + relative) * gamma(groups, u), axis=1)
    bound[:, :-1] = inner + groups * precision.tiny
    return {"shares": bound}


def score_enclosure(
    queries: FloatArray,
    complete: FloatArray,
    rank: int,
    basis_bits: int,
    softmax_scale: float | None,
    precision: Precision,
) -> tuple[FloatArray, FloatArray]:
    """Scores of complete pages [H, P, B, d] and how far a right port's may lie from them, both [H, G, P].

    The middle is a summary without zero modes, coded as the dialect codes: modes raised to the floor are within what
    the perturbation of modes that need not be kept allows, since C V^T does not depend on their size.
    """
    u, scale = precision.roundoff, scale_of(softmax_scale, queries.shape[-1])
    built = locks_build_summary(key_pages=complete, rank=rank)
    summary = locks_dequantize_summary(**quantize_summary(LOCKS_KV_0_1_4, **built, basis_bits=basis_bits))
    rounded = round_queries(queries)
    scores = locks_score_pages(queries=rounded, **summary, softmax_scale=scale)
    if complete.size == 0:
        return scores, np.zeros(scores.shape)
    s = spectrum(complete, u)
    flips, roundings = query_moves(queries, u)
    logits, _ = summary_logits({"queries": rounded, **summary, "softmax_scale": scale}, u)
    moved = build_rounding(s, rounded, rank, u, quantised=True)
    moved = moved + quantization_error(s, rounded, rank, basis_bits, u, STORAGE)
    moved = moved * (1 + gamma(QUERY_ROUNDINGS, u)) + _through_keys(flips + roundings, np.abs(reconstructed(summary)))
    channels = np.flatnonzero(flips.any(axis=(0, 1)))
    if len(channels):  # another code meets the port's own summary, not the reference's
        units = np.broadcast_to(np.eye(queries.shape[-1])[channels], (len(queries), len(channels), queries.shape[-1]))
        per_channel = quantization_error(s, units, rank, basis_bits, u, STORAGE)  # [H, channels, P, B]
        per_channel = per_channel + build_rounding(s, units, rank, u, quantised=True)
        moved = moved + np.einsum("hgc,hcpb->hgpb", flips[..., channels], per_channel, optimize=True)
    return scores, lse_bound(logits, abs(scale) * moved, u)


def value_enclosure(scores: FloatArray, eta: FloatArray, precision: Precision) -> tuple[FloatArray, FloatArray]:
    """Low and high ends [H, P + 1] of the values of any scores within ``eta`` of ``scores`` [H, G, P], the last page 0.

    A term exp(s - peak) is largest when its own score is high and all others low, and never above 1.
    """
    H, G, P = scores.shape
    low, high = np.zeros((H, P + 1)), np.zeros((H, P + 1))
    if P == 0:
        return low, high
    down, up, u = scores - eta, scores + eta, precision.roundoff
    with np.errstate(invalid="ignore"):  # a score of which nothing is known
        least = np.exp(np.minimum(down - _largest_other(up), 0.0))
        most = np.exp(np.minimum(up - _largest_other(down), 0.0))
        relative = np.expm1(np.maximum(argument_bound(down, u), argument_bound(up, u))) + gamma(G, u)
        low[:, :-1] = np.sum(np.nan_to_num(least * np.maximum(1 - relative, 0.0), nan=0.0), axis=1)
        high[:, :-1] = np.sum(np.nan_to_num(most * (1 + relative), nan=np.inf, posinf=np.inf), axis=1)
    spare = np.where(np.arange(P + 1) < P, G * precision.tiny, 0.0)  # flushed to zero
    return low - spare, high + spare


def _largest_other(x: FloatArray) -> FloatArray:
    """For every entry of the last axis the largest of the others, -inf where there is none.

    >>> _largest_other(np.array([1.0, 3.0, 2.0])).tolist()
    [3.0, 2.0, 3.0]
    """
    first = np.argmax(x, axis=-1, keepdims=True)
    top = np.take_along_axis(x, first, axis=-1)
    rest = x.copy()
    np.put_along_axis(rest, first, -np.inf, axis=-1)
    second = rest.max(axis=-1, keepdims=True)
    return np.where(np.isneginf(rest) & (np.arange(x.shape[-1]) == first), second, top)


def decode_enclosure(
    queries: FloatArray,
    keys: FloatArray,
    rank: int,
    basis_bits: int,
    page_size: int,
    softmax_scale: float | None,
    precision: Precision,
) -> tuple[FloatArray, FloatArray]:
    """Values [H, P] from ``low`` to ``high`` that a right port may rank pages by; the most recent page has none."""
    complete, open_page = split_pages(keys, page_size)
    if open_page.shape[1] == 0:
        complete = complete[:, :-1]
    scores, eta = score_enclosure(queries, complete, rank, basis_bits, softmax_scale, precision)
    return value_enclosure(scores, eta, precision)
