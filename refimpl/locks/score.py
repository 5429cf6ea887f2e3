"""Score: each page's attention mass as a log-sum-exp, from its summary or from its keys (Locks Eq. (1), Lemma 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of
from refimpl.checks import FloatArray, Sizes, real


def locks_score_pages(
    *, queries: Any, centroid: Any, basis: Any, coefficients: Any, softmax_scale: float | None = None
) -> FloatArray:
    """Estimated log-mass of every complete page: log sum_i exp(scale (q.mu + (V^T q).c_i)), in nats.

    Args:
        queries: [H, G, d].
        centroid: [H, P, d]. basis: [H, P, d, r]. coefficients: [H, P, B, r].
        softmax_scale: factor on the logits, inside the sum, default 1/sqrt(d).

    Returns:
        scores [H, G, P].

    Raises:
        ArgumentError: a shape or a non-finite value.

    Source: Locks Eq. (1).

    One channel, centroid 1, keys 1 + ln 1 and 1 + ln 3: the mass is e (1 + 3).

    >>> import math
    >>> s = locks_score_pages(queries=[[[1.0]]], centroid=[[[1.0]]], basis=[[[[1.0]]]],
    ...                       coefficients=[[[[0.0], [math.log(3)]]]])
    >>> round(math.exp(s[0, 0, 0]) / math.e, 12)
    4.0
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    centroid = real("centroid", centroid, "H P d", sizes)
    basis = real("basis", basis, "H P d r", sizes)
    coefficients = real("coefficients", coefficients, "H P B r", sizes)
    centre = np.einsum("hgd,hpd->hgp", queries, centroid, optimize=True)  # [H, G, P]
    projected = np.einsum("hgd,hpdr->hgpr", queries, basis, optimize=True)  # [H, G, P, r]
    spread = np.einsum("hgpr,hpbr->hgpb", projected, coefficients, optimize=True)  # [H, G, P, B]
    return log_sum_exp(scale_of(softmax_scale, sizes["d"]) * (centre[..., None] + spread))


def exact_page_scores(*, queries: Any, key_pages: Any, softmax_scale: float | None = None) -> FloatArray:
    """Exact log-mass of pages of equal filled length, in nats: log sum_i exp(scale q.k_i).

    Args:
        queries: [H, G, d].
        key_pages: [H, P, B, d], never padded; the open page is passed alone as [H, 1, n, d].
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        scores [H, G, P].

    Raises:
        ArgumentError: a shape or a non-finite value.

    Source: Locks Lemma 1 (the selection target s_j).

    >>> import math
    >>> s = exact_page_scores(queries=[[[1.0]]], key_pages=[[[[0.0], [math.log(3)]]]])
    >>> round(math.exp(s[0, 0, 0]), 12)
    4.0
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    pages = real("key_pages", key_pages, "H P B d", sizes)
    logits = np.einsum("hgd,hpbd->hgpb", queries, pages, optimize=True)  # [H, G, P, B]
    return log_sum_exp(scale_of(softmax_scale, sizes["d"]) * logits)
