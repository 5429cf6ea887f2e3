"""Quest: the page envelope, a per-channel minimum and maximum (Locks App. A.2, Lemma 2; App. C.1, D)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.baselines.choose import best
from refimpl.checks import ArgumentError, FloatArray, Sizes, real, whole
from refimpl.paging import split_pages

LEAST_PAGES = 3
"""Pages that Quest keeps however small the budget."""


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


def quest_envelope(*, keys: Any, page_size: int) -> dict[str, FloatArray]:
    """The envelope of every page of a sequence, the open page over the tokens that it has.

    Args:
        keys: [H, T, d]. page_size: B tokens.

    Returns:
        ``minimum`` and ``maximum`` [H, P, d], P = ceil(T/B).

    Raises:
        ArgumentError: a shape, a non-finite key, or B < 1.

    Source: Locks Lemma 2, App. D.

    >>> envelope = quest_envelope(keys=[[[1.0], [3.0], [-5.0]]], page_size=2)
    >>> envelope["minimum"].tolist(), envelope["maximum"].tolist()
    ([[[1.0], [-5.0]]], [[[3.0], [-5.0]]])
    """
    keys = real("keys", keys, "H T d", Sizes())
    complete, tail = split_pages(keys, whole("page_size", page_size, low=1))
    parts = [quest_build_summary(key_pages=p) for p in (complete, tail[:, None]) if p.shape[2]]
    return {name: np.concatenate([part[name] for part in parts], axis=1) for name in ("minimum", "maximum")}


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


def quest_pages(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> dict[str, Any]:
    """Quest's selection: per query head the min(max(3, floor(b/B)), P) best pages, and what the KV head then reads.

    Args:
        scores: [H, G, P]. budget_tokens: b. page_size: B.
        recent_pages: how many last pages are always kept, inside the budget; 1 in Quest's CUDA path (AMB-55).

    Returns:
        ``pages`` [H, G, K], ascending, ties to the lower page; ``read`` [H, P] uint8, 1 where a head of the group
        reads the page: the union over the group.

    Raises:
        ArgumentError: a shape, a non-finite score, or a size out of range.

    Source: Locks App. C.1 (Quest selects per query head, a KV head reads the union).

    >>> chosen = quest_pages(scores=[[[0.0, 3.0, 1.0, 2.0, 9.0]]], budget_tokens=48, page_size=16)
    >>> chosen["pages"].tolist(), chosen["read"].tolist()
    ([[[1, 3, 4]]], [[0, 1, 0, 1, 1]])
    """
    sizes = Sizes()
    scores = real("scores", scores, "H G P", sizes)
    kept = quest_kept_pages(budget_tokens, page_size, sizes["P"])
    scores[..., sizes["P"] - whole("recent_pages", recent_pages, low=0, high=kept) :] = np.inf
    pages = best(scores, kept)
    read = np.zeros((sizes["H"], sizes["P"]), dtype=np.uint8)
    np.put_along_axis(read, pages.reshape(sizes["H"], sizes["G"] * kept), 1, axis=1)
    return {"pages": pages, "read": read}


def quest_kept_pages(budget_tokens: int, page_size: int, pages: int) -> int:
    """Pages per query head: min(max(3, floor(b/B)), P).

    >>> quest_kept_pages(16, 16, 100), quest_kept_pages(79, 16, 100), quest_kept_pages(2048, 16, 5)
    (3, 4, 5)
    """
    kept = whole("budget_tokens", budget_tokens, low=0) // whole("page_size", page_size, low=1)
    return min(max(LEAST_PAGES, kept), whole("pages", pages, low=0))


def quest_read_range(budget_tokens: int, group: int) -> tuple[int, int]:
    """Least and most tokens that a KV head of G query heads reads at budget b: b and G b, if T allows (Locks C.1).

    >>> quest_read_range(1024, 4)
    (1024, 4096)
    """
    budget = whole("budget_tokens", budget_tokens, low=0)
    return budget, whole("group", group, low=1) * budget


def quest_state_bytes(head_size: int) -> int:
    """Two bf16 vectors per page and KV head: 4 d bytes (Locks App. D).

    >>> quest_state_bytes(128)
    512
    """
    return 4 * whole("head_size", head_size, low=1)
