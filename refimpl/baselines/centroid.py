"""Centroid only: a page scored by its mean key (Locks Table B.1)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.checks import ArgumentError, FloatArray, Sizes, real, whole


def centroid_scores(*, queries: Any, centroid: Any, page_tokens: int, softmax_scale: float | None = None) -> FloatArray:
    """Log-mass of pages whose n tokens all sit on the centroid: scale q.mu + log n, in nats, [H, G, P].

    By Jensen it never exceeds the exact log-mass. The log n matters only beside pages of another length.

    Args:
        queries: [H, G, d]. centroid: [H, P, d]. page_tokens: n >= 1.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, or n < 1.

    Source: Locks Table B.1 ("centroid only"), Eq. (A.1) without the deviations.

    >>> scores = centroid_scores(queries=[[[2.0]]], centroid=[[[3.0]]], page_tokens=1)
    >>> scores.tolist()
    [[[6.0]]]
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    centroid = real("centroid", centroid, "H P d", sizes)
    centre = np.einsum("hgd,hpd->hgp", queries, centroid, optimize=True)
    return scale_of(softmax_scale, sizes["d"]) * centre + math.log(whole("page_tokens", page_tokens, low=1))


def centroid_state_bytes(head_size: int, bits: int = 8) -> int:
    """Bytes of a page's centroid, d elements of ``bits``; 8 as in the Locks summary. Raises ArgumentError if partial.

    >>> centroid_state_bytes(128)
    128
    """
    total = whole("head_size", head_size, low=1) * whole("bits", bits, low=1)
    if total % 8:
        raise ArgumentError(f"head_size: expected whole bytes, got {head_size} elements of {bits} bits")
    return total // 8
