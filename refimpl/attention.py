"""Softmax attention of one decode step, its log-sum-exp, and the merge of partial results (both papers, Sec. 2)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, integers, number, real, whole


def log_sum_exp(x: FloatArray) -> FloatArray:
    """Natural log of the sum of exponentials over the last axis, in nats; -inf over an empty or all -inf axis (AMB-14).

    >>> log_sum_exp(np.log([[1.0, 3.0], [2.0, 2.0]])).round(12).tolist() == [round(math.log(4), 12)] * 2
    True
    >>> float(log_sum_exp(np.array([])))
    -inf
    """
    if x.shape[-1] == 0:
        return np.full(x.shape[:-1], -np.inf)
    largest = np.max(x, axis=-1, keepdims=True)  # [..., 1]
    shift = np.where(np.isneginf(largest), 0.0, largest)  # -inf minus -inf would be NaN
    with np.errstate(divide="ignore"):
        total: FloatArray = np.log(np.sum(np.exp(x - shift), axis=-1)) + shift[..., 0]
    return total


def scale_of(softmax_scale: float | None, d: int) -> float:
    """The factor on every logit: ``softmax_scale``, or 1/sqrt(d) for None. Raises ArgumentError unless finite."""
    if softmax_scale is None:
        return 1.0 / math.sqrt(d) if d else 1.0
    return number("softmax_scale", softmax_scale)


def softmax(logits: FloatArray) -> FloatArray:
    """Weights [..., T] of logits [..., T]: equal logits get equal weights, bit for bit; no tokens give no weights.

    >>> softmax(np.array([3.0, 3.0])).tolist()
    [0.5, 0.5]
    """
    masses = np.exp(logits - logits.max(axis=-1, keepdims=True, initial=-np.inf))  # [..., T]
    weights: FloatArray = masses / masses.sum(axis=-1, keepdims=True)
    return weights


def attend(queries: FloatArray, keys: FloatArray, values: FloatArray, scale: float) -> dict[str, FloatArray]:
    """Attention of checked float64 arrays: queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], lse [H,G]."""
    logits = scale * np.einsum("hgd,htd->hgt", queries, keys, optimize=True)  # [H, G, T]
    lse = log_sum_exp(logits)  # [H, G]
    shift = np.where(np.isneginf(lse), 0.0, lse)
    weights = np.exp(logits - shift[..., None])  # [H, G, T], sums to 1 unless T = 0
    return {"output": np.einsum("hgt,htd->hgd", weights, values, optimize=True), "lse": lse}


def attention(*, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None) -> dict[str, FloatArray]:
    """Dense attention of one decode step: every query attends all T tokens of its KV head.

    Args:
        queries: [H, G, d]; query g of KV head h is query head h*G + g (AMB-15).
        keys, values: [H, T, d]. T may be 0.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d] = sum_i alpha_i v_i and ``lse`` [H, G] in nats; no tokens give 0 and -inf (AMB-14).

    Raises:
        ArgumentError: a shape, dtype or non-finite value, named.

    Source: Locks Sec. 2; ReadKV Sec. 2.

    Two keys with logits 0 and ln 3 weigh their values 1 : 3.

    >>> q, k = [[[1.0]]], [[[0.0], [math.log(3)]]]
    >>> result = attention(queries=q, keys=k, values=[[[0.0], [8.0]]])
    >>> round(float(result["output"][0, 0, 0]), 12), round(math.exp(result["lse"][0, 0]), 12)
    (6.0, 4.0)
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    keys = real("keys", keys, "H T d", sizes)
    values = real("values", values, "H T d", sizes)
    return attend(queries, keys, values, scale_of(softmax_scale, sizes["d"]))


def merge_attention(*, outputs: Any, lses: Any) -> dict[str, FloatArray]:
    """Merge the states of S splits of the tokens into the state of all of them.

    Args:
        outputs: [S, H, G, d], each split's normalised output. S >= 1.
        lses: [S, H, G], each split's log-sum-exp in nats; -inf marks an empty split, whose output is not read.

    Returns:
        ``output`` [H, G, d] and ``lse`` [H, G]; all splits empty give 0 and -inf, never NaN (AMB-14).

    Raises:
        ArgumentError: S = 0, a shape, NaN, or +inf.

    Source: split decoding; the weights are the splits' shares of the softmax mass.

    >>> merged = merge_attention(outputs=[[[[2.0]]], [[[6.0]]]], lses=[[[0.0]], [[math.log(3)]]])
    >>> round(float(merged["output"][0, 0, 0]), 12)
    5.0
    >>> merge_attention(outputs=np.zeros((2, 1, 1, 1)), lses=np.full((2, 1, 1), -np.inf))["lse"].tolist()
    [[-inf]]
    """
    sizes = Sizes()
    outputs = real("outputs", outputs, "S H G d", sizes)
    lses = real("lses", lses, "S H G", sizes, minus_infinity=True)
    if sizes["S"] == 0:
        raise ArgumentError("outputs: expected at least one split, got S=0")
    lse = log_sum_exp(np.moveaxis(lses, 0, -1))  # [H, G]
    shift = np.where(np.isneginf(lse), 0.0, lse)
    weights = np.exp(lses - shift)  # [S, H, G], 0 for an empty split
    return {"output": np.einsum("shg,shgd->hgd", weights, outputs), "lse": lse}


def tokens_of_pages(pages: Any, page_size: int, tokens: int) -> Any:
    """Token indices of ``pages`` [K] in the given order; the last page stops at ``tokens``."""
    index = (np.asarray(pages)[:, None] * page_size + np.arange(page_size)).ravel()  # [K * B]
    return index[index < tokens]


def sparse_attention(
    *, queries: Any, keys: Any, values: Any, pages: Any, page_size: int, softmax_scale: float | None = None
) -> dict[str, FloatArray]:
    """Attention restricted to a set of pages, with the softmax renormalised over it.

    Args:
        queries: [H, G, d].
        keys, values: [H, T, d].
        pages: [H, K] distinct page indices below ceil(T/B), any order; one set per KV head.
        page_size: B tokens; the last page stops at T.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d] and ``lse`` [H, G] in nats over the kept tokens; K = 0 gives 0 and -inf.

    Raises:
        ArgumentError: a shape, a non-finite value in a listed page, a page out of range, or one named twice.

    Source: Locks Sec. 2 (o_S).

    >>> kept = sparse_attention(queries=[[[1.0]]], keys=np.zeros((1, 5, 1)), values=np.arange(5.0)[None, :, None],
    ...                         pages=[[2, 0]], page_size=2)   # tokens 0, 1 and 4
    >>> round(float(kept["output"][0, 0, 0]), 12), round(math.exp(kept["lse"][0, 0]), 12)
    (1.666666666667, 3.0)
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    keys = real("keys", keys, "H T d", sizes, read_later=True)
    values = real("values", values, "H T d", sizes, read_later=True)
    page_size = whole("page_size", page_size, low=1)
    last = -(-sizes["T"] // page_size) - 1
    pages = integers("pages", pages, "H K", sizes, low=0, high=last)
    scale = scale_of(softmax_scale, sizes["d"])
    result = {"output": np.zeros(queries.shape), "lse": np.full(queries.shape[:2], -np.inf)}
    both = (("keys", keys), ("values", values))
    for head, chosen in enumerate(pages):
        if len(set(chosen.tolist())) < len(chosen):
            raise ArgumentError(f"pages: expected distinct pages, got {chosen.tolist()} for KV head {head}")
        index = tokens_of_pages(chosen, page_size, sizes["T"])  # [kept tokens]
        read = [real(f"{n} (KV head {head})", a[head][index], "T d", Sizes())[None] for n, a in both]  # [1, kept, d]
        one = attend(queries[head][None], read[0], read[1], scale)
        result["output"][head], result["lse"][head] = one["output"][0], one["lse"][0]
    return result


def page_coverage(shares: FloatArray, pages: Any) -> FloatArray:
    """Coverage gamma_S: the share of attention mass that the pages hold. shares [..., P], pages [K] -> [...].

    Source: Locks Sec. 2.

    >>> float(page_coverage(np.array([0.5, 0.25, 0.25]), [0, 2]))
    0.75
    """
    covered: FloatArray = np.sum(shares[..., np.asarray(pages, dtype=np.int64)], axis=-1)
    return covered
