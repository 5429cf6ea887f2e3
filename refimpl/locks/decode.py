"""Decode: build, quantise, score, combine, select and attend, on contiguous and on paged caches (Locks Sec. 4)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import sparse_attention
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, real, whole
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.quantize import locks_dequantize_summary, locks_quantize_summary
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.select import locks_select_pages, pages_within_budget
from refimpl.locks.summary import locks_build_summary
from refimpl.paging import PagedCache, page_count, split_pages

BASIS_BITS = (2, 4, 8, "fp", None)


def deployed_summary(key_pages: FloatArray, rank: int, basis_bits: int | str | None) -> dict[str, FloatArray]:
    """The summary that scoring reads: built, then quantised and dequantised as ``basis_bits`` says.

    2, 4, 8 quantise the basis to those bits and coefficients and centroid to int8; "fp" leaves the basis as it is
    (the papers' r8fp, AMB-30); None quantises nothing (Theorem 1). Shapes as `locks_build_summary`.

    >>> pages = np.array([[[[0.0, 3.0], [4.0, 3.0]]]])
    >>> deployed_summary(pages, 1, None)["coefficients"].round(12).tolist()
    [[[[-2.0], [2.0]]]]
    """
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    if basis_bits is None:
        return built
    codes = locks_quantize_summary(**built, basis_bits=basis_bits if isinstance(basis_bits, int) else 8)
    deployed = locks_dequantize_summary(**codes)
    return deployed | {"basis": built["basis"]} if basis_bits == "fp" else deployed


def locks_scores(
    queries: FloatArray, keys: FloatArray, rank: int, basis_bits: int | str | None, page_size: int, scale: float | None
) -> FloatArray:
    """Scores [H, G, P] of all pages: estimates for complete pages, the open page's exact score last (AMB-01, AMB-02).

    >>> q, k = np.ones((1, 1, 2)), np.zeros((1, 5, 2))
    >>> np.exp(locks_scores(q, k, 1, 4, 2, None)).round(12).tolist()
    [[[2.0, 2.0, 1.0]]]
    """
    complete, open_page = split_pages(keys, page_size)
    summary = deployed_summary(complete, rank, basis_bits)
    scores = locks_score_pages(queries=queries, **summary, softmax_scale=scale)  # [H, G, complete pages]
    if open_page.shape[1]:
        exact = exact_page_scores(queries=queries, key_pages=open_page[:, None], softmax_scale=scale)  # [H, G, 1]
        scores = np.concatenate([scores, exact], axis=-1)
    return scores


def locks_decode(
    *,
    queries: Any,
    keys: Any,
    values: Any,
    rank: int,
    basis_bits: int | str | None,
    budget_tokens: int,
    page_size: int,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """One decode step of Locks: score every page from its summary, keep the best within the budget, attend them.

    Args:
        queries: [H, G, d]. keys, values: [H, T, d]; T may be 0.
        rank: r, 1 <= r <= min(B, d).
        basis_bits: 2, 4, 8, "fp" (only coefficients and centroid int8) or None (nothing quantised).
        budget_tokens: b, per KV head; k = ceil(b/B) pages with sink and most recent inside.
        page_size: B.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d] and ``pages`` [H, min(k, P)], ascending. Share-average combine.

    Raises:
        ArgumentError: a shape, a non-finite value, no query head, or a parameter out of range.

    Source: Locks Sec. 4; AMB-01 to AMB-05.

    Four pages of one token each; page 2 holds the key that the query looks for.

    >>> result = locks_decode(queries=[[[9.0]]], keys=[[[0.0], [0.0], [5.0], [0.0]]],
    ...     values=[[[1.0], [2.0], [3.0], [4.0]]], rank=1, basis_bits=4, budget_tokens=3, page_size=1)
    >>> result["pages"].tolist(), round(float(result["output"][0, 0, 0]), 9)
    ([[0, 2, 3]], 3.0)
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    keys = real("keys", keys, "H T d", sizes)
    values = real("values", values, "H T d", sizes)
    basis_bits = choice("basis_bits", basis_bits, BASIS_BITS)
    page_size = whole("page_size", page_size, low=1)
    if sizes["G"] == 0:
        raise ArgumentError("queries: expected at least one query head, got G=0")
    if sizes["T"] == 0:
        pages_within_budget(budget_tokens, page_size, 0)
        return {"output": np.zeros(queries.shape), "pages": np.zeros((sizes["H"], 0), np.int64)}
    scores = locks_scores(queries, keys, rank, basis_bits, page_size, softmax_scale)
    pages = locks_select_pages(
        shares=locks_page_shares(scores=scores), budget_tokens=budget_tokens, page_size=page_size
    )
    attended = sparse_attention(
        queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, softmax_scale=softmax_scale
    )
    return {"output": attended["output"], "pages": pages}


def locks_decode_paged(
    *,
    queries: Any,
    key_pool: Any,
    value_pool: Any,
    block_table: Any,
    tokens: Any,
    rank: int,
    basis_bits: int | str | None,
    budget_tokens: int,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`locks_decode` of N sequences whose caches lie in blocks of a shared pool; the pool's block is the page.

    Args:
        queries: [N, H, G, d]. key_pool, value_pool: [M, B, H, d], any strides. block_table: [N, Pmax]. tokens: [N].
        rank, basis_bits, budget_tokens, softmax_scale: as `locks_decode`.

    Returns:
        ``output`` [N, H, G, d] and ``pages`` [N, H, K] (logical), K = min(ceil(budget_tokens/B), most pages of any
        sequence); -1 stands at the end of a shorter row. An empty sequence has output 0 and only -1.

    Raises:
        ArgumentError: as `locks_decode` and `paged_attention`.

    Source: Locks Sec. 4 (Implementation); serving layout.

    >>> pool = np.zeros((2, 1, 1, 1))
    >>> result = locks_decode_paged(queries=np.ones((2, 1, 1, 1)), key_pool=pool, value_pool=pool + 5,
    ...     block_table=[[1, 0], [0, -1]], tokens=[2, 1], rank=1, basis_bits=4, budget_tokens=4)
    >>> result["pages"].tolist(), result["output"].ravel().tolist()
    ([[[0, 1]], [[0, -1]]], [5.0, 5.0])
    """
    cache = PagedCache(queries, key_pool, value_pool, block_table, tokens)
    most = max((page_count(int(t), cache.page_size) for t in cache.tokens), default=0)
    kept = pages_within_budget(budget_tokens, cache.page_size, most)
    output = np.zeros(cache.queries.shape)  # [N, H, G, d]
    pages = np.full((cache.sizes["N"], cache.sizes["H"], kept), -1, dtype=np.int64)
    for n in range(cache.sizes["N"]):
        keys, values = cache.sequence(n)
        one = locks_decode(
            queries=cache.queries[n],
            keys=keys,
            values=values,
            rank=rank,
            basis_bits=basis_bits,
            budget_tokens=budget_tokens,
            page_size=cache.page_size,
            softmax_scale=softmax_scale,
        )
        output[n] = one["output"]
        pages[n, :, : one["pages"].shape[1]] = one["pages"]
    return {"output": output, "pages": pages}
