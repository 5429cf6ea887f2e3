"""ShadowKV: chunk landmarks, outlier chunks kept exact, keys of the rest from a low-rank factor (Locks App. C.1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.baselines.choose import best
from refimpl.baselines.rope import rope_rotate
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, real, whole
from refimpl.locks.combine import head_shares

CHUNK, LOCAL_CHUNKS, OUTLIER_CHUNKS, RANK = 8, 4, 48, 160
"""The published setting: chunks of 8 tokens, 4 local chunks, 48 outlier chunks, rank 160 over all KV heads."""


def shadowkv_landmarks(
    *,
    keys: Any,
    chunk_size: int = CHUNK,
    local_chunks: int = LOCAL_CHUNKS,
    outlier_chunks: int = OUTLIER_CHUNKS,
) -> dict[str, Any]:
    """Prefill: the mean key of every chunk before the local region, and the chunks that it stands for worst.

    Args:
        keys: [H, T, d], positions applied.
        chunk_size: tokens per chunk, 8. local_chunks: the last T - 8 C tokens stay exact, C = floor(T/8) - 4.
        outlier_chunks: chunks per KV head of lowest min_i cos(landmark, k_i); min(that, C) are named.

    Returns:
        ``landmarks`` [H, C, d] and ``outliers`` [H, min(48, C)], ascending chunk indices.

    Raises:
        ArgumentError: a shape, a non-finite key, a key or landmark of length 0, or a size out of range.

    Source: Locks App. C.1 (ShadowKV); the upstream prefill (AMB-60).

    >>> state = shadowkv_landmarks(keys=[[[1.0, 0.0], [1.0, 0.0], [0.0, 2.0], [4.0, 0.0], [7.0, 7.0]]],
    ...                            chunk_size=2, local_chunks=0, outlier_chunks=1)
    >>> state["landmarks"].tolist(), state["outliers"].tolist()
    ([[[1.0, 0.0], [2.0, 1.0]]], [[1]])
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    size = whole("chunk_size", chunk_size, low=1)
    C = max(sizes["T"] // size - whole("local_chunks", local_chunks, low=0), 0)
    chunks = keys[:, : C * size].reshape(sizes["H"], C, size, sizes["d"])
    landmarks = chunks.mean(axis=2)
    outliers = best(-worst_cosines(chunks, landmarks), whole("outlier_chunks", outlier_chunks, low=0))
    return {"landmarks": landmarks, "outliers": outliers}


def worst_cosines(chunks: FloatArray, landmarks: FloatArray) -> FloatArray:
    """The smallest cosine between a landmark [H, C, d] and its chunk's keys [H, C, n, d], [H, C]."""
    lengths = np.linalg.norm(chunks, axis=-1) * np.linalg.norm(landmarks, axis=-1)[..., None]
    if (lengths == 0).any():
        raise ArgumentError("keys: expected keys and landmarks of positive length, got one of length 0")
    cosines = np.einsum("hcnd,hcd->hcn", chunks, landmarks, optimize=True) / lengths
    worst: FloatArray = cosines.min(axis=-1)
    return worst


def shadowkv_chunks(*, queries: Any, landmarks: Any, kept_chunks: int, softmax_scale: float | None = None) -> IntArray:
    """Decode: the best chunks per KV head by the largest share that any query head of the group gives a landmark.

    Args:
        queries: [H, G, d]. landmarks: [H, C, d], of the chunks that are no outliers. kept_chunks: floor(budget / 8).
        softmax_scale: factor on the logits, default 1/sqrt(d); upstream has 1/sqrt(128) for every d (AMB-61).

    Returns:
        chunks [H, min(kept, C)], ascending indices into ``landmarks``.

    Raises:
        ArgumentError: a shape, a non-finite value, no query head, or kept_chunks < 0.

    Source: Locks App. C.1 (ShadowKV selects by the group maximum).

    >>> shadowkv_chunks(queries=[[[1.0]]], landmarks=[[[0.0], [3.0], [1.0]]], kept_chunks=2).tolist()
    [[1, 2]]
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    landmarks = real("landmarks", landmarks, "H C d", sizes)
    if sizes["G"] == 0:
        raise ArgumentError("queries: expected at least one query head, got G=0")
    logits = scale_of(softmax_scale, sizes["d"]) * np.einsum("hgd,hcd->hgc", queries, landmarks, optimize=True)
    return best(head_shares(logits).max(axis=1), whole("kept_chunks", kept_chunks, low=0))


def shadowkv_low_rank(*, keys: Any, rank: int = RANK) -> dict[str, FloatArray]:
    """Rank-r factor of the keys before positions, all KV heads side by side: one row per token.

    Args:
        keys: [H, T, d], before positions. rank: r, 1 <= r <= min(T, H d).

    Returns:
        ``left`` [T, r] and ``right`` [H, r, d]; left times a head's right is the best rank-r fit of X [T, H d].

    Raises:
        ArgumentError: a shape, a non-finite key, or a rank out of range.

    Source: Locks Sec. 3 and App. D (ShadowKV).

    >>> factor = shadowkv_low_rank(keys=[[[3.0, 0.0], [6.0, 0.0]]], rank=1)
    >>> (factor["left"] @ factor["right"]).round(12).tolist()
    [[[3.0, 0.0], [6.0, 0.0]]]
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    H, T, d = keys.shape
    rank = whole("rank", rank, low=1, high=min(T, H * d))
    left, energy, right = np.linalg.svd(np.moveaxis(keys, 0, 1).reshape(T, H * d), full_matrices=False)
    kept = (energy[:rank, None] * right[:rank]).reshape(rank, H, d)
    return {"left": left[:, :rank], "right": np.moveaxis(kept, 1, 0)}


def shadowkv_keys(*, left: Any, right: Any, tokens: Any, frequencies: Any) -> FloatArray:
    """Approximate keys of the chosen tokens with their positions applied, [H, K, d].

    left: [T, r]. right: [H, r, d]. tokens: [K], which are the positions. frequencies: [d/2]. Raises ArgumentError.

    >>> shadowkv_keys(left=[[2.0], [3.0]], right=[[[1.0, 0.0]]], tokens=[1], frequencies=[0.0]).tolist()
    [[[3.0, 0.0]]]
    """
    sizes = Sizes()
    left, right = real("left", left, "T r", sizes), real("right", right, "H r d", sizes)
    tokens = integers("tokens", tokens, "K", sizes, low=0, high=sizes["T"] - 1)
    return rope_rotate(x=left[tokens] @ right, positions=tokens, frequencies=frequencies)


def shadowkv_selected_tokens(budget_tokens: int) -> int:
    """Tokens that Locks' accounting leaves to the selection: b minus 48 outlier chunks of 8 and a window of 32.

    The fixed 416 tokens count inside b; below them nothing is selected and the method is dense (not reported).

    >>> [shadowkv_selected_tokens(b) for b in (256, 512, 1024, 2048)]
    [0, 96, 608, 1632]
    """
    fixed = CHUNK * (OUTLIER_CHUNKS + LOCAL_CHUNKS)
    return max(whole("budget_tokens", budget_tokens, low=0) - fixed, 0)
