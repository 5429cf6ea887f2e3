"""Wrong selections: ShadowKV and RocketKV."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import scale_of
from refimpl.baselines import rocketkv, shadowkv
from refimpl.baselines.choose import best
from refimpl.baselines.sparq import norm_factor, sparq_channels
from refimpl.locks.combine import head_shares

A = "shadowkv_landmarks"


def _chunked(keys: Any, chunk_size: int, local_chunks: int) -> Any:
    count = max(keys.shape[1] // chunk_size - local_chunks, 0)
    return keys[:, : count * chunk_size].reshape(len(keys), count, chunk_size, keys.shape[2])


@mutant("landmarks-highest-cosine", A, "C", "the chunks that their landmarks fit best are the outliers")
def highest(*, keys: Any, chunk_size: int = 8, local_chunks: int = 4, outlier_chunks: int = 48) -> Any:
    """top-k of the wrong sign."""
    chunks = _chunked(keys, chunk_size, local_chunks)
    landmarks = chunks.mean(axis=2)
    return {"landmarks": landmarks, "outliers": best(shadowkv.worst_cosines(chunks, landmarks), outlier_chunks)}


@mutant("landmarks-mean-cosine", A, "C", "outliers by the mean cosine instead of the smallest")
def mean_cosine(*, keys: Any, chunk_size: int = 8, local_chunks: int = 4, outlier_chunks: int = 48) -> Any:
    """Averages an odd key away."""
    chunks = _chunked(keys, chunk_size, local_chunks)
    landmarks = chunks.mean(axis=2)
    unit = chunks / np.linalg.norm(chunks, axis=-1, keepdims=True)
    own = landmarks / np.linalg.norm(landmarks, axis=-1, keepdims=True)
    return {"landmarks": landmarks, "outliers": best(-np.einsum("hcnd,hcd->hc", unit, own), outlier_chunks)}


@mutant("landmarks-products", A, "C", "products stand for cosines")
def products(*, keys: Any, chunk_size: int = 8, local_chunks: int = 4, outlier_chunks: int = 48) -> Any:
    """Short keys become outliers."""
    chunks = _chunked(keys, chunk_size, local_chunks)
    landmarks = chunks.mean(axis=2)
    worst = np.einsum("hcnd,hcd->hcn", chunks, landmarks).min(axis=-1)
    return {"landmarks": landmarks, "outliers": best(-worst, outlier_chunks)}


@mutant("landmarks-maximum", A, "H", "the channel-wise maximum stands for the mean key")
def maximum(*, keys: Any, chunk_size: int = 8, local_chunks: int = 4, outlier_chunks: int = 48) -> Any:
    """Half an envelope."""
    chunks = _chunked(keys, chunk_size, local_chunks)
    worst = shadowkv.worst_cosines(chunks, chunks.mean(axis=2))
    return {"landmarks": chunks.max(axis=2), "outliers": best(-worst, outlier_chunks)}


D = "shadowkv_chunks"


@mutant("chunks-group-mean", D, "C", "the group's mean share instead of its largest")
def group_mean(*, queries: Any, landmarks: Any, kept_chunks: int, softmax_scale: Any = None) -> Any:
    """Three mild wishes beat a strong one."""
    logits = scale_of(softmax_scale, queries.shape[-1]) * np.einsum("hgd,hcd->hgc", queries, landmarks)
    return best(head_shares(logits).mean(axis=1), kept_chunks)


@mutant("chunks-raw-logits", D, "C", "the group's largest logit instead of its largest share")
def raw_logits(*, queries: Any, landmarks: Any, kept_chunks: int, softmax_scale: Any = None) -> Any:
    """No softmax before the maximum."""
    return best(np.einsum("hgd,hcd->hgc", queries, landmarks).max(axis=1), kept_chunks)


R = "shadowkv_low_rank"


@mutant("low-rank-per-head", R, "G", "every KV head has its own share of the rank")
def per_head(*, keys: Any, rank: int) -> Any:
    """Block diagonal factors."""
    heads, tokens, d = keys.shape
    own = max(rank // heads, 1)
    left, right = np.zeros((tokens, rank)), np.zeros((heads, rank, d))
    for h in range(heads):
        part = shadowkv.shadowkv_low_rank(keys=keys[h : h + 1], rank=min(own, tokens, d))
        rows = slice(h * own, min(h * own + part["left"].shape[1], rank))
        width = rows.stop - rows.start
        left[:, rows], right[h, rows] = part["left"][:, :width], part["right"][0, :width]
    return {"left": left, "right": right}


@mutant("low-rank-centred", R, "H", "the factor is that of the centred keys")
def centred(*, keys: Any, rank: int) -> Any:
    """The mean is lost."""
    return shadowkv.shadowkv_low_rank(keys=keys - keys.mean(axis=1, keepdims=True), rank=rank)


@mutant("low-rank-energies-squared", R, "H", "singular values enter twice")
def squared(*, keys: Any, rank: int) -> Any:
    """U S (S V)."""
    right = shadowkv.shadowkv_low_rank(keys=keys, rank=rank)
    energy = np.sqrt((right["right"] ** 2).sum(axis=(0, 2)))
    return {"left": right["left"] * energy, "right": right["right"]}


T = "rocketkv_snap"


def _votes(queries: Any, keys: Any, scale: Any) -> Any:
    return rocketkv.window_weights(queries, keys, scale_of(scale, queries.shape[-1]))


def _kept(votes: Any, budget: int, window: int, tokens: int) -> Any:
    own = np.broadcast_to(np.arange(tokens - window, tokens), (len(votes), window))
    return np.concatenate([best(votes, budget - window), own], axis=1)


@mutant("snap-window-on-top", T, "C", "the window comes on top of the budget")
def on_top(*, queries: Any, keys: Any, budget_tokens: int, kernel: int = 63, softmax_scale: Any = None) -> Any:
    """w tokens more."""
    more = budget_tokens + queries.shape[2]
    return rocketkv.rocketkv_snap(
        queries=queries, keys=keys, budget_tokens=more, kernel=kernel, softmax_scale=softmax_scale
    )


@mutant("snap-not-causal", T, "C", "window queries see later tokens")
def not_causal(*, queries: Any, keys: Any, budget_tokens: int, kernel: int = 63, softmax_scale: Any = None) -> Any:
    """No mask inside the window."""
    w, count = queries.shape[2], keys.shape[1]
    logits = scale_of(softmax_scale, queries.shape[-1]) * np.einsum("hgwd,htd->hgwt", queries, keys)
    votes = head_shares(logits)[..., : count - w].sum(axis=(1, 2))
    return _kept(rocketkv.max_pool(votes, kernel), budget_tokens, w, count)


@mutant("snap-no-pooling", T, "C", "votes are not pooled")
def no_pooling(*, queries: Any, keys: Any, budget_tokens: int, kernel: int = 63, softmax_scale: Any = None) -> Any:
    """Single tokens."""
    return rocketkv.rocketkv_snap(
        queries=queries, keys=keys, budget_tokens=budget_tokens, kernel=1, softmax_scale=softmax_scale
    )


@mutant("snap-average-pooling", T, "C", "votes are averaged over neighbours")
def average(*, queries: Any, keys: Any, budget_tokens: int, kernel: int = 63, softmax_scale: Any = None) -> Any:
    """A mean for a maximum."""
    w, count = queries.shape[2], keys.shape[1]
    votes = _votes(queries, keys, softmax_scale)[..., : count - w].sum(axis=(1, 2))
    padded = np.pad(votes, ((0, 0), (kernel // 2, kernel // 2)))
    pooled = np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=-1).mean(axis=-1)
    return _kept(pooled, budget_tokens, w, count)


@mutant("snap-group-maximum", T, "C", "the group's largest vote instead of the sum")
def group_maximum(*, queries: Any, keys: Any, budget_tokens: int, kernel: int = 63, softmax_scale: Any = None) -> Any:
    """One loud head."""
    w, count = queries.shape[2], keys.shape[1]
    votes = _votes(queries, keys, softmax_scale)[..., : count - w].sum(axis=2).max(axis=1)
    return _kept(rocketkv.max_pool(votes, kernel), budget_tokens, w, count)


K = "rocketkv_tokens"


def _ranked(queries: Any, keys: Any, chunk_size: int, rank: int, kept: int, scale: Any, scores: Any) -> Any:
    channels = sparq_channels(queries, rank)
    logits = scores(queries, keys, channels, chunk_size, scale_of(scale, queries.shape[-1]))
    shares = head_shares(np.repeat(logits, chunk_size, axis=-1)[..., : keys.shape[1]])
    return {"channels": channels, "tokens": best(shares.mean(axis=1), kept)}


def _rocket(name: str, suspect: str, what: str, scores: Any) -> None:
    def broken(
        *, queries: Any, keys: Any, chunk_size: int, rank: int, kept_tokens: int, softmax_scale: Any = None
    ) -> Any:
        return _ranked(queries, keys, chunk_size, rank, kept_tokens, softmax_scale, scores)

    mutant(name, K, suspect, what)(broken)


def _always_maximum(queries: Any, keys: Any, channels: Any, size: int, scale: float) -> Any:
    q = np.take_along_axis(queries, channels[:, None], axis=2)
    k = np.take_along_axis(keys, channels[:, None], axis=2)
    top = np.maximum.reduceat(k, np.arange(0, k.shape[1], size), axis=1)
    return scale * norm_factor(queries, channels)[..., None] * np.einsum("hgr,hcr->hgc", q, top)


def _own_sign(queries: Any, keys: Any, channels: Any, size: int, scale: float) -> Any:
    q = np.take_along_axis(queries, channels[:, None], axis=2)
    k = np.take_along_axis(keys, channels[:, None], axis=2)
    starts = np.arange(0, k.shape[1], size)
    top, low = np.maximum.reduceat(k, starts, axis=1), np.minimum.reduceat(k, starts, axis=1)
    both = np.einsum("hgr,hcr->hgc", np.maximum(q, 0), top) + np.einsum("hgr,hcr->hgc", np.minimum(q, 0), low)
    return scale * norm_factor(queries, channels)[..., None] * both


def _padded(queries: Any, keys: Any, channels: Any, size: int, scale: float) -> Any:
    pad = -keys.shape[1] % size
    return rocketkv.chunk_scores(queries, np.pad(keys, ((0, 0), (0, pad), (0, 0))), channels, size, scale)


def _no_factor(queries: Any, keys: Any, channels: Any, size: int, scale: float) -> Any:
    factor = norm_factor(queries, channels)[..., None]
    return rocketkv.chunk_scores(queries, keys, channels, size, scale) / factor


_rocket("rocket-always-maximum", "C", "chunks keep the maximum whatever the query's sign", _always_maximum)
_rocket("rocket-sign-per-head", "C", "every query head takes the extreme of its own sign", _own_sign)
_rocket("rocket-chunk-padded", "A", "the last chunk is padded with keys of 0 that count", _padded)
_rocket("rocket-no-norm-factor", "B", "heads are not scaled by the norm that their channels hold", _no_factor)


@mutant("rocket-signed-channels", K, "C", "channels by the size of the sum of q, not the sum of sizes")
def signed_channels(*, queries: Any, rank: int, **rest: Any) -> Any:
    """Signs cancel."""
    right = rocketkv.rocketkv_tokens(queries=queries, rank=rank, **rest)
    return {**right, "channels": best(np.abs(queries.sum(axis=1)), rank)}
