"""Codebook-N: one shared table of N key vectors and one index per token (Locks App. D; PQCache form)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, number, real, whole


def codebook_train(*, keys: Any, entries: int, sweeps: int = 10) -> FloatArray:
    """N codewords [H, N, d] from keys [H, T, d] by k-means: evenly spaced tokens first, then Lloyd sweeps.

    The papers do not give the training; this one is deterministic. A codeword that no key chose keeps its place.
    N > T is an error. Raises ArgumentError for a shape or a non-finite key.

    Source: Locks App. D ("Codebook-128").

    >>> codebook_train(keys=[[[0.0], [2.0], [10.0], [12.0]]], entries=2).tolist()
    [[[1.0], [11.0]]]
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    entries = whole("entries", entries, low=1)
    if entries > sizes["T"]:
        raise ArgumentError(f"entries: expected at most one per token, T={sizes['T']}, got {entries}")
    words = keys[:, np.arange(entries) * sizes["T"] // entries].copy()  # [H, N, d]
    for _ in range(whole("sweeps", sweeps, low=0)):
        codes = codebook_encode(keys=keys, codewords=words)
        updated = np.stack([_cell_means(*one) for one in zip(keys, codes, words, strict=True)]) if len(keys) else words
        if np.array_equal(updated, words):
            break
        words = updated
    return words


def _cell_means(keys: FloatArray, codes: IntArray, words: FloatArray) -> FloatArray:
    counts = np.bincount(codes, minlength=len(words))[:, None]  # [N, 1]
    sums = np.zeros_like(words)
    np.add.at(sums, codes, keys)
    means: FloatArray = np.where(counts > 0, sums / np.maximum(counts, 1), words)
    return means


def codebook_encode(*, keys: Any, codewords: Any) -> IntArray:
    """Index of the nearest codeword (Euclidean; lower index first among equals) of every key, [H, T].

    keys: [H, T, d]. codewords: [H, N, d], N >= 1. Raises ArgumentError for a shape or a non-finite value.

    >>> codebook_encode(keys=[[[0.4], [9.0]]], codewords=[[[0.0], [10.0]]]).tolist()
    [[0, 1]]
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    codewords = real("codewords", codewords, "H N d", sizes)
    if sizes["N"] == 0:
        raise ArgumentError("codewords: expected at least one, got N=0")
    # |k - c|^2 without |k|^2, which all codewords share
    distance = (codewords**2).sum(-1)[:, None] - 2 * np.einsum("htd,hnd->htn", keys, codewords, optimize=True)
    codes: IntArray = np.argmin(distance, axis=-1).astype(np.int64)
    return codes


def codebook_decode(*, codes: Any, codewords: Any) -> FloatArray:
    """The key that each index stands for, [H, T, d]; codes [H, T] in 0..N-1, codewords [H, N, d].

    >>> codebook_decode(codes=[[1, 0]], codewords=[[[0.0], [10.0]]]).tolist()
    [[[10.0], [0.0]]]
    """
    sizes = Sizes()
    codewords = real("codewords", codewords, "H N d", sizes)
    codes = integers("codes", codes, "H T", sizes, low=0, high=sizes["N"] - 1)
    keys: FloatArray = np.take_along_axis(codewords, codes[..., None], axis=1)
    return keys


def codebook_scores(*, queries: Any, codes: Any, codewords: Any, softmax_scale: float | None = None) -> FloatArray:
    """Log-mass of pages whose keys are codewords, in nats, [H, G, P].

    Args:
        queries: [H, G, d]. codes: [H, P, B], one index per token. codewords: [H, N, d], N >= 1.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, an index out of range, or pages without tokens.

    Source: Locks App. D ("Codebook-128").

    >>> scores = codebook_scores(queries=[[[1.0]]], codes=[[[1, 1, 0]]], codewords=[[[np.log(2)], [0.0]]])
    >>> round(float(np.exp(scores[0, 0, 0])), 12)
    4.0
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    codewords = real("codewords", codewords, "H N d", sizes)
    codes = integers("codes", codes, "H P B", sizes, low=0, high=sizes["N"] - 1)
    if sizes["B"] == 0:
        raise ArgumentError("codes: expected at least one token per page, got B=0")
    logits = scale_of(softmax_scale, sizes["d"]) * np.einsum("hgd,hnd->hgn", queries, codewords, optimize=True)
    H, G = logits.shape[:2]
    index = codes.reshape(H, 1, sizes["P"] * sizes["B"]).repeat(G, axis=1)  # [H, G, P * B]
    return log_sum_exp(np.take_along_axis(logits, index, axis=2).reshape(H, G, *codes.shape[1:]))


def codebook_state_bytes(entries: int, page_size: int, head_size: int, pages_per_table: float) -> float:
    """Bytes per page: B indices of ceil(log2 N) bits, and the bf16 table shared by ``pages_per_table`` pages.

    Source: Locks App. D, 16 * 7 / 8 + 128 d 2 / npg; the printed 46, 81, 147, 279 B come out for npg near 1010.

    >>> [round(codebook_state_bytes(n, 16, 128, 1013)) for n in (128, 256, 512, 1024)]
    [46, 81, 147, 279]
    """
    bits = (whole("entries", entries, low=1) - 1).bit_length()
    table = 2 * entries * whole("head_size", head_size, low=1) / number("pages_per_table", pages_per_table, above=0)
    return whole("page_size", page_size, low=1) * bits / 8 + table
