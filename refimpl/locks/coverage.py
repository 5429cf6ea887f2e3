"""Coverage, output error, and the exact identity between them (Locks Sec. 2, Lemma 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of, tokens_of_pages
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, real, whole
from refimpl.paging import page_count


def _kept_tokens(pages: Any, sizes: Sizes, page_size: int) -> Any:
    """Mask [H, 1 or G, T] of the tokens of pages [H, K] (shared by the group) or [H, G, K] (each head its own)."""
    per_head = np.ndim(pages) == 3
    last = page_count(sizes["T"], page_size) - 1
    chosen: IntArray = integers("pages", pages, "H G K" if per_head else "H K", Sizes(sizes), low=0, high=last)
    chosen = chosen if per_head else chosen[:, None]
    mask = np.zeros((*chosen.shape[:2], sizes["T"]), dtype=bool)
    for h, g in np.ndindex(*chosen.shape[:2]):
        if len(set(chosen[h, g].tolist())) < chosen.shape[2]:
            raise ArgumentError(f"pages: expected distinct pages, got {chosen[h, g].tolist()} for KV head {h}")
        mask[h, g, tokens_of_pages(chosen[h, g], page_size, sizes["T"])] = True
    return mask


def _weights(queries: FloatArray, keys: FloatArray, scale: float) -> FloatArray:
    logits = scale * np.einsum("hgd,htd->hgt", queries, keys, optimize=True)
    lse = log_sum_exp(logits)
    weights: FloatArray = np.exp(logits - np.where(np.isneginf(lse), 0.0, lse)[..., None])
    return weights


def coverage(*, queries: Any, keys: Any, pages: Any, page_size: int, softmax_scale: float | None = None) -> FloatArray:
    """Share of each query's attention mass that a page set holds, gamma_S, [H, G].

    Args:
        queries: [H, G, d]. keys: [H, T, d].
        pages: [H, K] shared by the group, or [H, G, K] for each query head its own; distinct, any order.
        page_size: B. softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, or a page out of range or named twice.

    Source: Locks Sec. 2.

    Logits 0 and ln 3 on pages of one token.

    >>> coverage(queries=[[[1.0]]], keys=[[[0.0], [np.log(3)]]], pages=[[1]], page_size=1).round(12).tolist()
    [[0.75]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G d", sizes), real("keys", keys, "H T d", sizes)
    mask = _kept_tokens(pages, sizes, whole("page_size", page_size, low=1))
    kept: FloatArray = (_weights(queries, keys, scale_of(softmax_scale, sizes["d"])) * mask).sum(axis=-1)
    return kept


def coverage_identity(
    *, queries: Any, keys: Any, values: Any, pages: Any, page_size: int, softmax_scale: float | None = None
) -> dict[str, FloatArray]:
    """Both sides of Lemma 1(i): o - o_S = epsilon (mean of the dropped values - mean of the kept values).

    Args:
        queries: [H, G, d]. keys, values: [H, T, d].
        pages: [H, K] or [H, G, K], K >= 1. page_size: B. softmax_scale: default 1/sqrt(d).

    Returns:
        ``dropped_mass`` [H, G] (epsilon, summed over the dropped tokens, so that it keeps its digits near 0);
        ``kept_mean`` and ``dropped_mean`` [H, G, d], mass-weighted, each normalised inside its own set (0 if it is
        empty); ``difference`` [H, G, d], o - o_S; ``bound`` [H, G], 2 R epsilon with R the largest value norm.

    Raises:
        ArgumentError: as `coverage`, or no page.

    Source: Locks Lemma 1(i).

    Values 0 and 8 with weights 1/4 and 3/4; keeping the first loses 3/4 of the mass.

    >>> sides = coverage_identity(queries=[[[1.0]]], keys=[[[0.0], [np.log(3)]]], values=[[[0.0], [8.0]]],
    ...                           pages=[[0]], page_size=1)
    >>> [sides[k].round(12).ravel().tolist() for k in ("dropped_mass", "difference", "bound")]
    [[0.75], [6.0], [12.0]]
    """
    sizes = Sizes()
    queries, keys = real("queries", queries, "H G d", sizes), real("keys", keys, "H T d", sizes)
    values = real("values", values, "H T d", sizes)
    mask = _kept_tokens(pages, sizes, whole("page_size", page_size, low=1))
    if not mask.any(axis=-1).all():
        raise ArgumentError("pages: expected at least one page per head, got none")
    scale = scale_of(softmax_scale, sizes["d"])
    logits = scale * np.einsum("hgd,htd->hgt", queries, keys, optimize=True)
    means = {}
    for name, tokens in (("kept_mean", mask), ("dropped_mean", ~mask)):
        inside = np.where(tokens, logits, -np.inf)
        lse = log_sum_exp(inside)
        weights = np.exp(inside - np.where(np.isneginf(lse), 0.0, lse)[..., None])
        means[name] = np.einsum("hgt,htd->hgd", weights, values, optimize=True)
    everything = _weights(queries, keys, scale)
    epsilon = (everything * ~mask).sum(axis=-1)
    radius = np.linalg.norm(values, axis=-1).max(axis=1, initial=0.0)[:, None]  # [H, 1]
    output = np.einsum("hgt,htd->hgd", everything, values, optimize=True)
    return means | {
        "dropped_mass": epsilon,
        "difference": output - means["kept_mean"],
        "bound": 2 * radius * epsilon,
    }


def output_error(
    *, queries: Any, keys: Any, values: Any, pages: Any, page_size: int, softmax_scale: float | None = None
) -> FloatArray:
    """|o_S - o|: Euclidean error of attention restricted to a page set, [H, G]. Arguments as `coverage_identity`.

    Source: Locks Lemma 1(i).

    >>> output_error(queries=[[[1.0]]], keys=[[[0.0], [np.log(3)]]], values=[[[0.0], [8.0]]],
    ...              pages=[[0]], page_size=1).round(12).tolist()
    [[6.0]]
    """
    sides = coverage_identity(
        queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, softmax_scale=softmax_scale
    )
    error: FloatArray = np.linalg.norm(sides["difference"], axis=-1)
    return error
