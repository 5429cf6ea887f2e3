"""Quest: the page envelope, a per-channel minimum and maximum (Locks App. A.2, Lemma 2; App. D)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, real, whole


def quest_build_summary(*, key_pages: Any) -> dict[str, FloatArray]:
    """The envelope of every page: ``minimum`` and ``maximum`` [H, P, d] of key_pages [H, P, n, d] over its tokens.

    An open page is passed alone with its n tokens, never padded. Raises ArgumentError for a shape, a non-finite key
    or pages without tokens. Source: Locks Lemma 2.

    >>> envelope = quest_build_summary(key_pages=[[[[1.0, 5.0], [3.0, 2.0]]]])
    >>> envelope["minimum"].tolist(), envelope["maximum"].tolist()
    ([[[1.0, 2.0]]], [[[3.0, 5.0]]])
    """
    sizes = Sizes()
    pages = real("key_pages", key_pages, "H P n d", sizes)
    if sizes["n"] == 0:
        raise ArgumentError("key_pages: expected at least one token per page, got n=0")
    return {"minimum": pages.min(axis=2), "maximum": pages.max(axis=2)}


def quest_scores(*, queries: Any, minimum: Any, maximum: Any) -> FloatArray:
    """Envelope score of every page: sum_c max(q_c u_c, q_c l_c), without 1/sqrt(d), [H, G, P].

    Times 1/sqrt(d) it bounds every logit of the page from above, and plus log B the page's log-mass.

    Args:
        queries: [H, G, d]. minimum, maximum: [H, P, d], minimum <= maximum.

    Raises:
        ArgumentError: a shape, a non-finite value, or an envelope turned over.

    Source: Locks Lemma 2 (e_j).

    >>> quest_scores(queries=[[[2.0, -1.0]]], minimum=[[[1.0, 2.0]]], maximum=[[[3.0, 5.0]]]).tolist()
    [[[4.0]]]
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    low, high = real("minimum", minimum, "H P d", sizes), real("maximum", maximum, "H P d", sizes)
    if (low > high).any():
        index = [int(i) for i in np.argwhere(low > high)[0]]
        raise ArgumentError(f"minimum: expected values up to maximum, got {low[tuple(index)]} at {index}")
    above = np.einsum("hgd,hpd->hgp", np.maximum(queries, 0.0), high, optimize=True)
    below = np.einsum("hgd,hpd->hgp", np.minimum(queries, 0.0), low, optimize=True)
    return above + below


def quest_select_pages(*, scores: Any, budget_tokens: int, page_size: int) -> IntArray:
    """Quest's own selection: per query head the min(max(3, floor(b/B)), P) best pages, [H, G, K], ascending.

    Nothing is forced; a KV head reads the union over its group. Ties go to the lower page. Raises ArgumentError for a
    shape or a NaN. Source: Locks App. C.1 (Quest selects per query head).

    >>> quest_select_pages(scores=[[[0.0, 3.0, 1.0, 2.0, 9.0]]], budget_tokens=48, page_size=16).tolist()
    [[[1, 3, 4]]]
    """
    sizes = Sizes()
    scores = real("scores", scores, "H G P", sizes, minus_infinity=True)
    kept = max(3, whole("budget_tokens", budget_tokens, low=0) // whole("page_size", page_size, low=1))
    order = np.argsort(-scores, axis=-1, kind="stable")[..., : min(kept, sizes["P"])]
    pages: IntArray = np.sort(order, axis=-1)
    return pages


def quest_state_bytes(head_size: int) -> int:
    """Two bf16 vectors per page and KV head: 4 d bytes (Locks App. D).

    >>> quest_state_bytes(128)
    512
    """
    return 4 * whole("head_size", head_size, low=1)
