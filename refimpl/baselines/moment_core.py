"""Moment core: the second-cumulant truncation of a page's log-mass (Locks Eq. (A.2), Prop. 3; COBS form)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.checks import FloatArray, Sizes, real, whole
from refimpl.locks.summary import locks_build_summary


def moment_build_summary(*, key_pages: Any, rank: int) -> dict[str, FloatArray]:
    """Centroid and the ``rank`` leading directions and squared singular values of every page's deviations.

    Args:
        key_pages: [H, P, B, d], complete pages. rank: r, 1 <= r <= min(B, d).

    Returns:
        ``centroid`` [H, P, d], ``directions`` [H, P, d, r] (orthonormal or zero), ``energies`` [H, P, r] (sigma_k^2).

    Raises:
        ArgumentError: as `locks_build_summary`.

    Source: Locks Eq. (A.2): the rank-r form of S_j = sum_i delta_i delta_i^T.

    Keys 0 and 4 along one channel: deviations -2 and 2, so sigma^2 = 8.

    >>> core = moment_build_summary(key_pages=[[[[0.0, 3.0], [4.0, 3.0]]]], rank=1)
    >>> core["centroid"].tolist(), core["energies"].round(12).tolist()
    ([[[2.0, 3.0]]], [[[8.0]]])
    """
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    energies = np.einsum("hpbr,hpbr->hpr", built["coefficients"], built["coefficients"])  # columns are U sigma
    return {"centroid": built["centroid"], "directions": built["basis"], "energies": energies}


def moment_scores(
    *,
    queries: Any,
    centroid: Any,
    directions: Any,
    energies: Any,
    page_tokens: int,
    softmax_scale: float | None = None,
) -> FloatArray:
    """Second-order log-mass: scale q.mu + scale^2/(2n) sum_k sigma_k^2 (v_k.q)^2 + log n, in nats, [H, G, P].

    Eq. (A.2) leaves out log n, which is the same for pages of equal length; it is kept here so that scores of pages of
    any length are comparable with exact log-masses.

    Args:
        queries: [H, G, d]. centroid: [H, P, d]. directions: [H, P, d, r]. energies: [H, P, r].
        page_tokens: n, the tokens behind each page's moments.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, or n < 1.

    Source: Locks Eq. (A.2), Prop. 3.

    Deviations -2 and 2, query 1 at scale 1: variance 4, so the score is 2 + 4/2 + log 2.

    >>> scores = moment_scores(queries=[[[1.0]]], centroid=[[[2.0]]], directions=[[[[1.0]]]], energies=[[[8.0]]],
    ...                        page_tokens=2)
    >>> round(float(scores[0, 0, 0]) - math.log(2), 12)
    4.0
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    centroid = real("centroid", centroid, "H P d", sizes)
    directions = real("directions", directions, "H P d r", sizes)
    energies = real("energies", energies, "H P r", sizes)
    tokens = whole("page_tokens", page_tokens, low=1)
    scale = scale_of(softmax_scale, sizes["d"])
    centre = np.einsum("hgd,hpd->hgp", queries, centroid, optimize=True)
    projected = np.einsum("hgd,hpdr->hgpr", queries, directions, optimize=True)  # [H, G, P, r]
    spread = np.einsum("hgpr,hpr->hgp", projected**2, energies, optimize=True)
    scores: FloatArray = scale * centre + scale**2 / (2 * tokens) * spread + math.log(tokens)
    return scores


def moment_state_bytes(rank: int, head_size: int) -> int:
    """Centroid, r directions and r energies in bf16: 2 (d + r d + r) bytes per page and KV head (Locks App. D).

    >>> moment_state_bytes(8, 128)
    2320
    """
    rank, d = whole("rank", rank, low=1), whole("head_size", head_size, low=1)
    return 2 * (d + rank * d + rank)
