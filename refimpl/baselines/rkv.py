"""R-KV: tokens kept by attention of the recent queries and by being unlike later ones (Locks App. C.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.baselines.rocketkv import max_pool
from refimpl.checks import ArgumentError, FloatArray, Sizes, number, real, whole
from refimpl.locks.combine import head_shares

MIX, KERNEL, BUFFER = 0.1, 7, 128
"""Locks' setting: weight of attention, pooling width, tokens generated between two cuts."""

ALIKE = 0.5
"""Cosine above which two keys count as alike."""

NORM_FLOOR = 1e-8


def rkv_scores(
    *, queries: Any, keys: Any, mix: float = MIX, kernel: int = KERNEL, softmax_scale: float | None = None
) -> FloatArray:
    """Scores [H, T - w] of the tokens before the window: mix * attention - (1 - mix) * likeness.

    Attention: logits, their maximum over the group, softmax over the tokens before the window, mean over the window's
    queries, max pooling. Likeness: softmax over all tokens of a key's mean cosine to the others, the last alike
    key of every row counted as 0 (AMB-65).

    Args:
        queries: [H, G, w, d], the last w. keys: [H, T, d], T > w.
        mix: lambda, 0..1. kernel: odd pooling width. softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, no token before the window, an even kernel, or a mix out of range.

    Source: Locks App. C.2 (R-KV).

    >>> scores = rkv_scores(queries=[[[[0.0]]]], keys=[[[1.0], [-1.0], [1.0]]], mix=1.0, kernel=1)
    >>> scores.tolist()
    [[0.5, 0.5]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G w d", sizes), real("keys", keys, "H T d", sizes)
    w, T = sizes["w"], sizes["T"]
    if not 0 < w < T or sizes["G"] == 0:
        raise ArgumentError(f"queries: expected 1..T-1 queries of a group, got w={w}, T={T}, G={sizes['G']}")
    if not 0 <= number("mix", mix) <= 1:
        raise ArgumentError(f"mix: expected a share in 0..1, got {mix!r}")
    if whole("kernel", kernel, low=1) % 2 == 0:
        raise ArgumentError(f"kernel: expected an odd width, got {kernel}")
    logits = window_logits(queries, keys[:, : T - w], scale_of(softmax_scale, sizes["d"]))
    attention = max_pool(head_shares(logits).mean(axis=1), kernel)
    likeness = head_shares(column_means(cosines(keys)))[:, : T - w]
    scores: FloatArray = mix * attention - (1 - mix) * likeness
    return scores


def window_logits(queries: FloatArray, keys: FloatArray, scale: float) -> FloatArray:
    """The group's largest logit of every query of the window, [H, w, T]."""
    logits: FloatArray = scale * np.einsum("hgwd,htd->hgwt", queries, keys, optimize=True).max(axis=1)
    return logits


def cosines(keys: FloatArray) -> FloatArray:
    """Cosines between all keys of a head with 0 on the diagonal, [H, T, T]; lengths have 1e-8 added."""
    unit = keys / (np.linalg.norm(keys, axis=-1, keepdims=True) + NORM_FLOOR)
    alike = unit @ np.swapaxes(unit, 1, 2)
    index = np.arange(keys.shape[1])
    alike[:, index, index] = 0.0
    return alike


def column_means(alike: FloatArray) -> FloatArray:
    """Mean over rows of cosines [H, T, T], in each row the last one above 1/2 set to 0 (the first column if none)."""
    T = alike.shape[-1]
    last = np.where(alike > ALIKE, np.arange(T), 0).max(axis=-1)  # [H, T]
    kept = np.where(np.arange(T) == last[..., None], 0.0, alike)
    means: FloatArray = kept.mean(axis=1)
    return means


def rkv_resident_tokens(budget_tokens: int) -> tuple[int, int]:
    """Fewest and most tokens between two cuts: b right after one, b plus the buffer before the next.

    >>> rkv_resident_tokens(1024)
    (1024, 1152)
    """
    budget = whole("budget_tokens", budget_tokens, low=1)
    return budget, budget + BUFFER
