"""What honest ports may rank tokens by, and outputs on the port's own choice: SparQ, Loki, RocketKV, ShadowKV."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proofs_checks.bounds.common import gamma, logit_bound, mean_bound, times
from proofs_checks.bounds.readkv_reader import weight_bound
from proofs_checks.numbers import Precision
from refimpl.baselines.rocketkv import max_pool, window_weights
from refimpl.baselines.shadowkv import worst_cosines
from refimpl.baselines.sparq import norm_factor, probe_scores
from refimpl.checks import FloatArray, IntArray
from refimpl.locks.combine import head_shares

Range = tuple[FloatArray, FloatArray]


def around(value: FloatArray, error: FloatArray) -> Range:
    """Low and high ends."""
    return value - error, value + error


def channel_range(queries: FloatArray, precision: Precision, query_error: FloatArray | float = 0.0) -> Range:
    """Of sum_g |q_gc|, [H, d]: G sums of queries [H, G, d] that err by ``query_error``."""
    sums = np.abs(queries).sum(axis=1)
    moved = np.broadcast_to(query_error, queries.shape).sum(axis=1)
    return around(sums, moved + gamma(queries.shape[1], precision.roundoff) * (sums + moved))


def probe_error(
    queries: FloatArray,
    keys: FloatArray,
    channels: IntArray,
    scale: float,
    precision: Precision,
    query_error: FloatArray | float = 0.0,
    key_error: FloatArray | float = 0.0,
) -> FloatArray:
    """Error [H, G, T] of `probe_scores`: r products, and the factor's two norms, quotient and root.

    Queries [H, G, d] and keys [H, T, d] may err themselves; a norm of queries errs by at most the sum of their errors.
    """
    u, d, r = precision.roundoff, queries.shape[-1], channels.shape[-1]
    off = np.broadcast_to(query_error, queries.shape)
    q, q_off = (np.take_along_axis(x, channels[:, None], axis=2) for x in (np.abs(queries), off))
    k, k_off = (np.take_along_axis(x, channels[:, None], axis=2)
                for x in (np.abs(keys), np.broadcast_to(key_error, keys.shape)))  # fmt: skip
    factor = abs(scale) * norm_factor(queries, channels)[..., None]
    size = np.einsum("hgr,htr->hgt", q + q_off, k + k_off, optimize=True)
    moved = size - np.einsum("hgr,htr->hgt", q, k, optimize=True)
    norms = [np.divide(o, n, out=np.zeros_like(n), where=n > 0)
             for o, n in ((off.sum(-1), np.abs(queries).sum(-1)), (q_off.sum(-1), q.sum(-1)))]  # fmt: skip
    relative = gamma(d + r + 8, u) + 2 * (norms[0] + norms[1])[..., None]
    error: FloatArray = factor * (moved + times(gamma(r + 4, u), size))
    return error * (1 + relative) + relative * np.abs(probe_scores(queries, keys, channels, scale))


def pooled_range(scores: FloatArray, error: FloatArray, ranking: str, precision: Precision) -> Range:
    """Of what a group ranks its tokens by, [H, T], from probe scores [H, G, T]."""
    extra = gamma(scores.shape[1], precision.roundoff)
    if ranking == "weights":
        scores, error = head_shares(scores), weight_bound(scores, error, precision)
    return around(scores.sum(axis=1), error.sum(axis=1) + extra * np.abs(scores).sum(axis=1))


def step_bound(
    queries: FloatArray,
    keys: FloatArray,
    values: FloatArray,
    probe: Range,
    tokens: IntArray,
    scale: float,
    precision: Precision,
    logit_error: FloatArray | float = 0.0,
    value_error: FloatArray | float = 0.0,
) -> tuple[FloatArray, FloatArray]:
    """Errors of output [H, G, d], before it is stored, and of mass [H, G], on tokens [H, K].

    output = a own + (1 - a) mean: |da| |own - mean| + a |d own| + (1 - a) |d mean|, cross terms included, and the last
    operations. ``probe`` is the probe scores and their error; logits and values may err on top of their own roundings.
    """
    scores, error = probe
    u, picked, K = precision.roundoff, tokens[:, None], tokens.shape[-1]
    mass = np.take_along_axis(head_shares(scores), picked, axis=2).sum(axis=-1)
    off = np.take_along_axis(weight_bound(scores, error, precision), picked, axis=2).sum(axis=-1)
    off = off + gamma(K, u) * (mass + off)
    inside = replace(precision, output=precision.accumulate)
    output = np.empty(queries.shape)
    spare = np.broadcast_to(value_error, values.shape)
    for h, index in enumerate(tokens):
        k, v = keys[h][index], values[h][index]
        logits = scale * queries[h] @ k.T
        added = np.broadcast_to(logit_error, (*queries.shape[:2], keys.shape[1]))[h][:, index]
        own_off = mean_bound(logits, logit_bound(queries[h], k, scale, u) + added, v, inside)
        own_off += spare[h][index].max(axis=0, initial=0.0)
        own, mean = head_shares(logits) @ v, values[h].mean(axis=0)
        mean_off = gamma(len(values[h]) + 2, u) * np.abs(values[h]).mean(axis=0) + spare[h].mean(axis=0)
        a, da = mass[h][:, None], off[h][:, None]
        output[h] = da * (np.abs(own - mean) + own_off + mean_off) + a * own_off + np.abs(1 - a) * mean_off
        output[h] += gamma(4, u) * (a * np.abs(own) + np.abs(1 - a) * np.abs(mean) + output[h])
    return output, off


def loki_error(
    queries: FloatArray, keys: FloatArray, components: FloatArray, rank: int, scale: float, precision: Precision
) -> FloatArray:
    """Error [H, G, T] of logits on r directions: two projections and their product, no path beyond 2 d + r."""
    leading = np.abs(components[..., :rank])
    q = np.einsum("hgd,hdr->hgr", np.abs(queries), leading, optimize=True)
    size = abs(scale) * np.einsum("hgr,htr->hgt", q, np.abs(keys) @ leading, optimize=True)
    return times(gamma(2 * queries.shape[-1] + rank + 3, precision.roundoff), size)


def votes_range(queries: FloatArray, keys: FloatArray, kernel: int, scale: float, precision: Precision) -> Range:
    """Of the pooled votes [H, T - w] of RocketKV's first stage; the maxima of a pool keep the order of both ends."""
    G, w, T = queries.shape[1], queries.shape[2], keys.shape[1]
    weights = window_weights(queries, keys, scale)
    logits = scale * np.einsum("hgwd,htd->hgwt", queries, keys, optimize=True)
    logits = np.where(np.arange(T) > T - w + np.arange(w)[:, None], -np.inf, logits)
    error = weight_bound(logits, logit_bound(queries, keys[:, None], scale, precision.roundoff), precision)
    votes = weights[..., : T - w].sum(axis=(1, 2))
    off = error[..., : T - w].sum(axis=(1, 2)) + gamma(G * w, precision.roundoff) * votes
    return max_pool(votes - off, kernel), max_pool(votes + off, kernel)


def chunk_score_error(
    queries: FloatArray, keys: FloatArray, channels: IntArray, chunk_size: int, scale: float, precision: Precision
) -> FloatArray:
    """Error [H, G, C] of RocketKV's chunk scores on the port's channels.

    Where sum_g q_gc may round to either sign, a port may take the maximum or the minimum: their difference is allowed.
    """
    u, d, r = precision.roundoff, queries.shape[-1], channels.shape[-1]
    q = np.take_along_axis(queries, channels[:, None], axis=2)
    k = np.take_along_axis(keys, channels[:, None], axis=2)
    starts = np.arange(0, keys.shape[1], chunk_size)
    top, low = np.maximum.reduceat(k, starts, axis=1), np.minimum.reduceat(k, starts, axis=1)
    free = np.abs(q.sum(axis=1)) <= gamma(queries.shape[1] - 1, u) * np.abs(q).sum(axis=1)  # [H, r]
    factor = abs(scale) * norm_factor(queries, channels)[..., None]
    size = np.einsum("hgr,hcr->hgc", np.abs(q), np.maximum(np.abs(top), np.abs(low)), optimize=True)
    either = np.einsum("hgr,hcr->hgc", np.abs(q) * free[:, None], top - low, optimize=True)
    error: FloatArray = factor * (gamma(d + 2 * r + 12, u) * size + either)
    return error


def landmark_error(chunks: FloatArray, precision: Precision) -> FloatArray:
    """Error [H, C, d] of the mean of n keys [H, C, n, d]."""
    n = chunks.shape[2]
    error: FloatArray = gamma(n + 1, precision.roundoff) * np.abs(chunks).mean(axis=2)
    return error


def worst_cosine_range(chunks: FloatArray, landmarks: FloatArray, precision: Precision) -> Range:
    """Of the smallest cosine between a landmark and its keys, [H, C]: two lengths, a product, and the landmark's own.

    A landmark that errs by e turns by at most |e| / (|landmark| - |e|).
    """
    own = np.linalg.norm(landmark_error(chunks, precision), axis=-1)
    length = np.linalg.norm(landmarks, axis=-1)
    with np.errstate(divide="ignore"):
        turn = np.where(length > own, 2 * own / np.maximum(length - own, 0.0), 2.0)
    return around(worst_cosines(chunks, landmarks), turn + gamma(2 * chunks.shape[-1] + 10, precision.roundoff))
