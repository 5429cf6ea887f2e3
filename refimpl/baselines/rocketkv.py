"""RocketKV: a prompt cut once to what its last queries look at, then tokens ranked by chunk extremes (Locks C.1)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.baselines.choose import best
from refimpl.baselines.sparq import norm_factor, sparq_channels
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, real, whole
from refimpl.locks.combine import head_shares

SNAP_WINDOW, SNAP_KERNEL = 32, 63
"""Stage 1 as published: the last 32 queries, pooling over 63 tokens."""


def max_pool(x: FloatArray, kernel: int) -> FloatArray:
    """The maximum over ``kernel`` neighbours of the last axis, stride 1, an odd kernel centred, cut at the ends.

    >>> max_pool(np.array([0.0, 5.0, 1.0, 2.0]), 3).tolist()
    [5.0, 5.0, 5.0, 2.0]
    """
    half = kernel // 2
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(half, half)], constant_values=-np.inf)
    if x.shape[-1] == 0:
        return x
    pooled: FloatArray = np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1, axis=-1).max(axis=-1)
    return pooled


def window_weights(queries: FloatArray, keys: FloatArray, scale: float) -> FloatArray:
    """Causal softmax [H, G, w, T] of the last w queries [H, G, w, d]: query i sees tokens 0..T - w + i."""
    w, T = queries.shape[2], keys.shape[1]
    logits = scale * np.einsum("hgwd,htd->hgwt", queries, keys, optimize=True)
    hidden = np.arange(T) > T - w + np.arange(w)[:, None]
    return head_shares(np.where(hidden, -np.inf, logits))


def rocketkv_snap(
    *, queries: Any, keys: Any, budget_tokens: int, kernel: int = SNAP_KERNEL, softmax_scale: float | None = None
) -> IntArray:
    """Stage 1: the prompt tokens that stay, by pooled attention of the window's queries, per KV head.

    Args:
        queries: [H, G, w, d], those of the prompt's last w tokens. keys: [H, T, d], the prompt's, T >= w.
        budget_tokens: tokens that stay, the window's w among them; at least w.
        kernel: odd width of the max pooling, 63.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        tokens [H, min(budget, T)], ascending.

    Raises:
        ArgumentError: a shape, a non-finite value, a prompt shorter than the window, an even kernel, or a budget below
            the window.

    Source: Locks App. C.1 (RocketKV, first stage); weights summed over window and group, the window's own columns
    left out before pooling (AMB-62).

    >>> rocketkv_snap(queries=[[[[1.0]]]], keys=[[[5.0], [0.0], [0.0], [9.0], [0.0], [0.0]]], budget_tokens=2,
    ...               kernel=1).tolist()
    [[3, 5]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G w d", sizes), real("keys", keys, "H T d", sizes)
    w, T = sizes["w"], sizes["T"]
    if w > T:
        raise ArgumentError(f"queries: expected a window of at most T={T} queries, got w={w}")
    budget, width = whole("budget_tokens", budget_tokens, low=w), whole("kernel", kernel, low=1)
    if width % 2 == 0:
        raise ArgumentError(f"kernel: expected an odd width, got {kernel}")
    weights = window_weights(queries, keys, scale_of(softmax_scale, sizes["d"]))
    votes = max_pool(weights[..., : T - w].sum(axis=(1, 2)), width)  # [H, T - w]
    window = np.broadcast_to(np.arange(T - w, T), (sizes["H"], w))
    return np.concatenate([best(votes, budget - w), window], axis=1)


def rocketkv_tokens(
    *, queries: Any, keys: Any, chunk_size: int, rank: int, kept_tokens: int, softmax_scale: float | None = None
) -> dict[str, IntArray]:
    """Stage 2: tokens ranked by their chunk's extreme keys on the query's largest channels.

    Args:
        queries: [H, G, d]. keys: [H, T, d], what stage 1 left and what was generated since.
        chunk_size: tokens per chunk; the last chunk may be short. rank: r, 1 <= r <= d. kept_tokens: k.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``channels`` [H, r], largest mean_g |q_gc|; ``tokens`` [H, min(k, T)], by the mean over the group of the
        softmax over tokens. Both ascending.

    Raises:
        ArgumentError: a shape, a non-finite value, no query head, or a size out of range.

    Source: Locks App. C.1 (RocketKV's estimator); a channel's extreme is the maximum where sum_g q_gc > 0, else the
    minimum (AMB-62).

    >>> chosen = rocketkv_tokens(queries=[[[1.0, 0.1]]], keys=[[[0.0, 9.0], [1.0, 0.0], [2.0, 0.0]]], chunk_size=2,
    ...                          rank=1, kept_tokens=1)
    >>> chosen["channels"].tolist(), chosen["tokens"].tolist()
    ([[0]], [[2]])
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G d", sizes), real("keys", keys, "H T d", sizes)
    if sizes["G"] == 0:
        raise ArgumentError("queries: expected at least one query head, got G=0")
    channels = sparq_channels(queries, rank)
    size = whole("chunk_size", chunk_size, low=1)
    scores = chunk_scores(queries, keys, channels, size, scale_of(softmax_scale, sizes["d"]))
    shares = head_shares(np.repeat(scores, size, axis=-1)[..., : sizes["T"]])
    return {"channels": channels, "tokens": best(shares.mean(axis=1), whole("kept_tokens", kept_tokens, low=0))}


def chunk_scores(
    queries: FloatArray, keys: FloatArray, channels: IntArray, chunk_size: int, scale: float
) -> FloatArray:
    """Approximate logits of the chunks' extreme keys, [H, G, ceil(T / chunk)]."""
    q = np.take_along_axis(queries, channels[:, None], axis=2)  # [H, G, r]
    k = np.take_along_axis(keys, channels[:, None], axis=2)  # [H, T, r]
    sign = np.where(q.sum(axis=1) > 0, 1.0, -1.0)  # [H, r]
    starts = np.arange(0, keys.shape[1], chunk_size)
    turned = sign[:, None] * k
    extremes = np.maximum.reduceat(turned, starts, axis=1) if len(starts) else turned  # [H, C, r]
    factor = scale * norm_factor(queries, channels)[..., None]
    scores: FloatArray = factor * np.einsum("hgr,hcr->hgc", sign[:, None] * q, extremes, optimize=True)
    return scores


@dataclass(frozen=True)
class RocketBudgets:
    """What a traffic budget buys: tokens kept of the prompt, tokens attended, chunk size, channels per chunk."""

    prompt_tokens: int
    attended_tokens: int
    chunk_size: int
    rank: int


def rocketkv_budgets(*, length: int, budget_tokens: int, new_tokens: int, head_size: int) -> RocketBudgets:
    """Split a traffic budget over both stages: c0 = L / b is shared as c0^alpha by stage 1, the rest by stage 2.

    Args:
        length: L, prompt and generated tokens at most. budget_tokens: b >= 16. new_tokens: generated at most.
        head_size: d.

    Raises:
        ArgumentError: a size out of range.

    Source: Locks App. C.1: half of b is attended, the other half pays for the estimator.

    Long generation leaves stage 1 nothing to do: the prompt's budget reaches L - new.

    >>> rocketkv_budgets(length=32768, budget_tokens=1024, new_tokens=128, head_size=128)
    RocketBudgets(prompt_tokens=5664, attended_tokens=512, chunk_size=3, rank=67)
    >>> rocketkv_budgets(length=17000, budget_tokens=1024, new_tokens=16384, head_size=128).prompt_tokens
    616
    """
    L, b = whole("length", length, low=1), whole("budget_tokens", budget_tokens, low=16)
    new = whole("new_tokens", new_tokens, low=0, high=L)
    d = whole("head_size", head_size, low=1)
    ratio = max(1.0, L / b)
    alpha = min(0.2 + 0.06 * math.log2(ratio), 0.8)
    cap = max(int(L / ratio**alpha), min(2 * new, L))
    left = max(1.0, cap / b)
    chunk = math.ceil(math.sqrt(left))
    chunk = chunk if chunk <= left else 1
    return RocketBudgets(cap - new, b // 2, chunk, int(d * chunk / left))
