"""SparQ: tokens ranked on the query's largest channels, attention on the best, a mean value for the rest."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import numpy as np

from refimpl.attention import attend, scale_of
from refimpl.baselines.choose import best, protected_tokens
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, choice, real, whole
from refimpl.locks.combine import head_shares
from refimpl.readkv.accounting import DENSE_BITS, TABLE_BITS, Geometry, call_lengths

RANKINGS = ("scores", "weights")


def sparq_attention(
    *,
    queries: Any,
    keys: Any,
    values: Any,
    rank: int,
    kept_tokens: int,
    ranking: str = "scores",
    local_tokens: int = 0,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """One SparQ step: probe r channels of all keys, attend k tokens and the current one, fill in the mean value.

    Args:
        queries: [H, G, d]. keys, values: [H, T, d], T >= 1; the last token is the current one.
        rank: r, probe channels per KV head, 1 <= r <= d.
        kept_tokens: k; min(k + 1, T) tokens are attended, the current one among them.
        ranking: tokens by the sum over the group of the probe scores ("scores") or of their softmax ("weights");
            the two agree at G = 1 (AMB-56).
        local_tokens: most recent tokens before the current one that are always among the k (AMB-57).
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d]; ``channels`` [H, r] and ``tokens`` [H, min(k + 1, T)], ascending; ``mass`` [H, G], the
        probe's estimate of the attention that the tokens hold.

    Raises:
        ArgumentError: a shape, a non-finite value, no tokens, or a size out of range.

    Source: ReadKV App. F.2 (Sparse Selection).

    All channels and all tokens: attention itself.

    >>> step = sparq_attention(queries=[[[1.0]]], keys=[[[0.0], [np.log(3)]]], values=[[[0.0], [8.0]]],
    ...                        rank=1, kept_tokens=2)
    >>> round(float(step["output"][0, 0, 0]), 12), step["tokens"].tolist(), round(float(step["mass"][0, 0]), 12)
    (6.0, [[0, 1]], 1.0)
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    keys = real("keys", keys, "H T d", sizes)
    values = real("values", values, "H T d", sizes)
    scale = scale_of(softmax_scale, sizes["d"])
    channels = sparq_channels(queries, rank)
    scores = probe_scores(queries, keys, channels, scale)
    tokens = ranked_tokens(scores, kept_tokens, choice("ranking", ranking, RANKINGS), local_tokens)
    return {**sparse_step(queries, keys, values, scores, tokens, scale), "channels": channels, "tokens": tokens}


def sparq_channels(queries: FloatArray, rank: int) -> IntArray:
    """The r channels of largest sum_g |q_gc| of every KV head: queries [H, G, d] -> [H, r], ascending.

    >>> sparq_channels(np.array([[[1.0, -5.0, 0.0], [2.0, 0.0, -2.5]]]), 2).tolist()
    [[0, 1]]
    """
    return best(np.abs(queries).sum(axis=1), whole("rank", rank, low=1, high=queries.shape[-1]))


def norm_factor(queries: FloatArray, channels: IntArray) -> FloatArray:
    """sqrt(|q|_1 / |q[channels]|_1), [H, G]: what a logit on few channels is scaled up by; 1 for q = 0 there.

    >>> norm_factor(np.array([[[3.0, 1.0, 0.0]]]), np.array([[0]])).round(6).tolist()
    [[1.154701]]
    """
    probed = np.take_along_axis(np.abs(queries), channels[:, None], axis=2).sum(axis=-1)
    whole_norm = np.abs(queries).sum(axis=-1)
    factor: FloatArray = np.sqrt(np.divide(whole_norm, probed, out=np.ones_like(probed), where=probed > 0))
    return factor


def probe_scores(queries: FloatArray, keys: FloatArray, channels: IntArray, scale: float) -> FloatArray:
    """Approximate logits on each KV head's channels, scaled by the query norm that they hold, [H, G, T]."""
    q = np.take_along_axis(queries, channels[:, None], axis=2)  # [H, G, r]
    k = np.take_along_axis(keys, channels[:, None], axis=2)  # [H, T, r]
    factor = scale * norm_factor(queries, channels)[..., None]
    scores: FloatArray = factor * np.einsum("hgr,htr->hgt", q, k, optimize=True)
    return scores


def ranked_tokens(scores: FloatArray, kept_tokens: int, ranking: str, local_tokens: int) -> IntArray:
    """The current token and the best k others by the group's scores [H, G, T], [H, min(k + 1, T)], ascending."""
    T, kept = scores.shape[-1], whole("kept_tokens", kept_tokens, low=0)
    if T == 0:
        raise ArgumentError("keys: expected at least the current token, got T=0")
    forced = protected_tokens(T, 0, whole("local_tokens", local_tokens, low=0, high=kept) + 1)
    pooled = (head_shares(scores) if ranking == "weights" else scores).sum(axis=1)  # [H, T]
    pooled[:, forced] = np.inf
    return best(pooled, kept + 1)


def sparse_step(
    queries: FloatArray, keys: FloatArray, values: FloatArray, scores: FloatArray, tokens: IntArray, scale: float
) -> dict[str, FloatArray]:
    """``output`` [H, G, d] and ``mass`` [H, G]: attention on tokens [H, K], the mean of all values for the rest."""
    picked = tokens[..., None]
    own = attend(queries, np.take_along_axis(keys, picked, axis=1), np.take_along_axis(values, picked, axis=1), scale)
    mass = np.take_along_axis(head_shares(scores), tokens[:, None], axis=2).sum(axis=-1)  # [H, G]
    rest = values.mean(axis=1)[:, None]  # [H, 1, d]
    return {"output": mass[..., None] * own["output"] + (1 - mass[..., None]) * rest, "mass": mass}


def sparq_read_percent(rank: int, kept_tokens: int, head_size: int, lengths: Iterable[int]) -> Fraction:
    """Logical reads in percent of dense: r channels of t keys, min(k + 1, t) keys and values, and the mean value.

    Source: ReadKV App. F.2; 24.7 in Table 2, 12.5 and 9.4 in Table 6.

    >>> from refimpl.readkv.accounting import prediction_lengths
    >>> calls = prediction_lengths(2048)
    >>> [float(round(sparq_read_percent(r, k, 128, calls), 1)) for r, k in ((32, 128), (16, 64), (8, 64))]
    [24.7, 12.5, 9.4]
    """
    calls = call_lengths(lengths)
    r, k, d = whole("rank", rank, low=1), whole("kept_tokens", kept_tokens, low=0), whole("head_size", head_size, low=1)
    read = sum(r * t + 2 * d * min(k + 1, t) + d for t in calls)
    return Fraction(100 * read, 2 * d * sum(calls))


def nested_read_percent(geometry: Geometry, rank: int, kept_tokens: int, lengths: Iterable[int]) -> Fraction:
    """The same on ReadKV's eight-bit code: depth-2 probes, depth-8 tokens read whole, mean, calibration, tables.

    Selected keys are fetched again in full, probed bits included: only so do the printed columns come out (AMB-58).

    Source: ReadKV App. F.2; Table 6 prints 8.3, 8.1, 8.0, 8.1, 7.9, 8.0.

    >>> from refimpl.readkv.accounting import GEOMETRIES, prediction_lengths
    >>> calls = prediction_lengths(2048)
    >>> [float(round(nested_read_percent(geometry, 32, 128, calls), 1)) for geometry in GEOMETRIES.values()]
    [8.3, 8.1, 8.0, 8.1, 7.9, 8.0]
    """
    calls = call_lengths(lengths)
    r, k = whole("rank", rank, low=1), whole("kept_tokens", kept_tokens, low=0)
    H, d = geometry.heads, geometry.channels
    per_head = sum(2 * r * t + 8 * 2 * d * min(k + 1, t) + DENSE_BITS * d for t in calls)
    shared = len(calls) * (geometry.calibration_layer_bits() + TABLE_BITS)
    return Fraction(100 * (H * per_head + shared), sum(geometry.dense_layer_bits(t) for t in calls))
