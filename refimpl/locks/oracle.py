"""Oracles: selection that reads every key, shared by the group or by each query head alone (Locks Sec. 5, D.17)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import sparse_attention
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, real, whole
from refimpl.locks.combine import head_shares, locks_page_shares
from refimpl.locks.score import exact_page_scores
from refimpl.locks.select import locks_select_pages, pages_within_budget, select_one
from refimpl.paging import page_count, split_pages


def exact_scores(*, queries: Any, keys: Any, page_size: int, softmax_scale: float | None = None) -> FloatArray:
    """Exact log-masses of all P pages, the open page's last, in nats, [H, G, P].

    queries: [H, G, d]. keys: [H, T, d]. Raises ArgumentError for a shape or a non-finite value.

    Source: Locks Lemma 1 (s_j).

    >>> np.exp(exact_scores(queries=[[[1.0]]], keys=np.zeros((1, 3, 1)), page_size=2)).round(12).tolist()
    [[[2.0, 1.0]]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G d", sizes), real("keys", keys, "H T d", sizes)
    complete, open_page = split_pages(keys, whole("page_size", page_size, low=1))
    scores = exact_page_scores(queries=queries, key_pages=complete, softmax_scale=softmax_scale)
    if open_page.shape[1] == 0:
        return scores
    last = exact_page_scores(queries=queries, key_pages=open_page[:, None], softmax_scale=softmax_scale)
    return np.concatenate([scores, last], axis=-1)


def oracle_decode(
    *,
    queries: Any,
    keys: Any,
    values: Any,
    budget_tokens: int,
    page_size: int,
    combine: str = "share_average",
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`locks_decode` with exact scores in place of the summary's: the papers' exact-LSE oracle.

    Args and errors as `locks_decode`; ``combine`` as `locks_page_shares`. Returns ``output`` [H, G, d] and ``pages``
    [H, min(k, P)]. Source: Locks Sec. 5 ("read-every-key oracle"), App. C.

    >>> result = oracle_decode(queries=[[[9.0]]], keys=[[[0.0], [0.0], [5.0], [0.0]]],
    ...     values=[[[1.0], [2.0], [3.0], [4.0]]], budget_tokens=3, page_size=1)
    >>> result["pages"].tolist()
    [[0, 2, 3]]
    """
    scores = exact_scores(queries=queries, keys=keys, page_size=page_size, softmax_scale=softmax_scale)
    if scores.shape[1] == 0:
        raise ArgumentError("queries: expected at least one query head, got G=0")
    shares = locks_page_shares(scores=scores, combine=combine)
    pages = locks_select_pages(shares=shares, budget_tokens=budget_tokens, page_size=page_size)
    attended = sparse_attention(
        queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, softmax_scale=softmax_scale
    )
    return {"output": attended["output"], "pages": pages}


def per_head_pages(*, scores: Any, budget_tokens: int, page_size: int) -> IntArray:
    """Every query head's own selection: sink, most recent page, and the top of its own shares, [H, G, min(k, P)].

    No group combine; a KV head then reads the union over its group. Ties go to the lower page (AMB-06).

    Args:
        scores: [H, G, P], log-masses of all pages, -inf allowed. budget_tokens: b per query head. page_size: B.

    Raises:
        ArgumentError: a shape, NaN, or k < 2 with P > 1.

    Source: Locks Table D.17 ("Per-head oracle").

    >>> per_head_pages(scores=[[[0, 5, 1, 0], [0, 1, 5, 0]]], budget_tokens=3, page_size=1).tolist()
    [[[0, 1, 3], [0, 2, 3]]]
    """
    sizes = Sizes()
    shares = head_shares(real("scores", scores, "H G P", sizes, minus_infinity=True))
    kept = pages_within_budget(budget_tokens, page_size, sizes["P"])
    pages = np.zeros((sizes["H"], sizes["G"], kept), dtype=np.int64)
    for h, g in np.ndindex(sizes["H"], sizes["G"]):
        pages[h, g] = select_one(shares[h, g], kept)
    return pages


def per_head_traffic(*, pages: Any, tokens: int, page_size: int) -> dict[str, IntArray]:
    """What per-head selections cost: ``read_tokens`` [H] (the union, each page once) and ``attended_tokens`` [H, G].

    A shared set of K pages reads K B tokens per KV head; the union reads up to G times that.

    Args:
        pages: [H, G, K], distinct per query head, below ceil(tokens/B). tokens: T. page_size: B.

    Raises:
        ArgumentError: a shape or a page out of range.

    Source: Locks Sec. 5.4, Table D.17 ("up to G times traffic/work"), App. C.1 (Quest's union).

    Pages 0 and 1 against 0 and 2 of 5 tokens in pages of 2: the open page 2 holds one token.

    >>> cost = per_head_traffic(pages=[[[0, 1], [0, 2]]], tokens=5, page_size=2)
    >>> cost["read_tokens"].tolist(), cost["attended_tokens"].tolist()
    ([5], [[4, 3]])
    """
    size, total = whole("page_size", page_size, low=1), whole("tokens", tokens, low=0)
    chosen = integers("pages", pages, "H G K", Sizes(), low=0, high=page_count(total, size) - 1)
    length = np.minimum(size, total - np.arange(page_count(total, size)) * size)  # tokens of every page
    union = [int(length[np.unique(group)].sum()) for group in chosen]
    return {"read_tokens": np.array(union, dtype=np.int64), "attended_tokens": length[chosen].sum(axis=-1)}
