"""Loki: tokens ranked on the leading directions of a calibrated PCA of the keys, exact attention on the best."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import attend, scale_of
from refimpl.baselines.choose import best
from refimpl.checks import FloatArray, Sizes, number, real, whole


def loki_attention(
    *, queries: Any, keys: Any, values: Any, components: Any, rank: int, kept_tokens: int, softmax_scale: Any = None
) -> dict[str, Any]:
    """One Loki step: each query head ranks tokens on r principal directions and attends the best k exactly.

    Args:
        queries: [H, G, d]. keys, values: [H, T, d].
        components: [H, d, d], columns are directions by falling variance; no mean is subtracted (AMB-59).
        rank: r, 1 <= r <= d. kept_tokens: k >= 0.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d] and ``tokens`` [H, G, min(k, T)], ascending; k = 0 gives output 0.

    Raises:
        ArgumentError: a shape, a non-finite value, or a size out of range.

    Source: Locks Sec. 3 and App. D (Loki); ReadKV App. B.

    >>> keys, values = [[[1.0, 0.0], [5.0, 1.0]]], [[[2.0, 0.0], [4.0, 0.0]]]
    >>> step = loki_attention(queries=[[[1.0, 0.0]]], keys=keys, values=values, components=[np.eye(2)], rank=1,
    ...                       kept_tokens=1)
    >>> step["output"].tolist(), step["tokens"].tolist()
    ([[[4.0, 0.0]]], [[[1]]])
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    keys, values = real("keys", keys, "H T d", sizes), real("values", values, "H T d", sizes)
    components = real("components", components, "H d d", sizes)
    scale = scale_of(softmax_scale, sizes["d"])
    scores = loki_scores(queries, keys, components, whole("rank", rank, low=1, high=sizes["d"]), scale)
    tokens = best(scores, whole("kept_tokens", kept_tokens, low=0))
    output = np.zeros(queries.shape)
    for h, g in np.ndindex(sizes["H"], sizes["G"]):
        k, v = (array[h][tokens[h, g]][None] for array in (keys, values))  # [1, kept, d]
        output[h, g] = attend(queries[h, g][None, None], k, v, scale)["output"][0, 0]
    return {"output": output, "tokens": tokens}


def loki_scores(queries: FloatArray, keys: FloatArray, components: FloatArray, rank: int, scale: float) -> FloatArray:
    """Logits on the r leading directions, [H, G, T]; exact at r = d for orthonormal components."""
    leading = components[..., :rank]
    q = np.einsum("hgd,hdr->hgr", queries, leading, optimize=True)
    scores: FloatArray = scale * np.einsum("hgr,htr->hgt", q, keys @ leading, optimize=True)
    return scores


def loki_rank(explained: Any, share: float) -> int:
    """The released rank for a share of variance: directions whose cumulated share stays below it, largest over heads.

    That is one direction fewer than reach the share (AMB-59). explained: [H, d], shares of variance, falling.

    >>> loki_rank([[0.5, 0.25, 0.125, 0.125]], 0.75), loki_rank([[0.5, 0.25, 0.125, 0.125]], 0.8)
    (1, 2)
    """
    shares = real("explained", explained, "H d", Sizes())
    return int((np.cumsum(shares, axis=-1) < number("share", share)).sum(axis=-1).max(initial=0))


def loki_kept(tokens: int, share: float) -> int:
    """k: a share of T up to 1, else a number of tokens; at most T.

    >>> loki_kept(2048, 0.25), loki_kept(2048, 100), loki_kept(50, 100)
    (512, 100, 50)
    """
    tokens, share = whole("tokens", tokens, low=0), number("share", share, low=0)
    return min(int(share * tokens) if share <= 1 else int(share), tokens)
