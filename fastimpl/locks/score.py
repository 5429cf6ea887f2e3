"""Page scores from float32 summaries and from keys: the log-sum-exp of a page's logits (`score_records.py`: records).

Mirrors `refimpl.locks.score.locks_score_pages` and `exact_page_scores`.

    grid (N * ceil(P / M), H)       one program: M pages of one KV head against its G queries
      for every mode k:   q . v_k [G, M]  (one matrix product)   times   c_k [M, B]
      plus q . mu [G, M]  -->  logits [G, M, B]  -->  log-sum-exp over B  -->  scores [G, M]

Bytes moved per page: 4 (d + d r + B r) of a summary, or its keys, and 4 G out.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, Sizes, scale_of
from fastimpl.device import LN2, LOG2E, dot, finite_or_zero, padded
from fastimpl.paging import Cache

FLOAT = (torch.float32,)


@triton.jit
def log_sum_exp_of_tokens(logits, filled):
    """Natural log-sum-exp over the last axis of base-2 logits [G, M, B], of the tokens where ``filled`` [M, B]."""
    logits = tl.where(filled[None], logits, float("-inf"))
    largest = tl.max(logits, 2)
    total = tl.sum(tl.exp2(logits - finite_or_zero(largest)[:, :, None]), 2)
    return (largest + tl.log2(tl.where(total > 0, total, 1.0))) * LN2


@triton.jit
def load_queries(
    queries, G: tl.constexpr, G_PAD: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr, FIRST: tl.constexpr,
    STEP: tl.constexpr, stride_qg,
):  # fmt: skip
    """Channels FIRST, FIRST + STEP, .. of one KV head's queries, [G_PAD, WIDTH]."""
    group, channel = tl.arange(0, G_PAD), FIRST + STEP * tl.arange(0, WIDTH)
    return tl.load(queries + group[:, None] * stride_qg + channel[None, :],
                   mask=(group < G)[:, None] & (channel < D)[None, :], other=0.0)  # fmt: skip


@triton.jit(do_not_specialize=["length_of_all", "pages", "row_pages"])
def score_summary_kernel(
    queries, centroids, bases, coefficients, block_table, tokens, scores,
    stride_qn, stride_qh, stride_qg, stride_ch, stride_cp, stride_bh, stride_bp, stride_bd, stride_bk,
    stride_eh, stride_ep, stride_eb, stride_ek, stride_table, length_of_all, pages, row_pages, scale_log2,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr,
    G: tl.constexpr, G_PAD: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """Scores of complete pages from float32 summaries; ``row_pages`` is the width of the scores' rows."""
    tiles = tl.cdiv(pages, M)
    n, head = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1).to(tl.int64)
    page = (tl.program_id(0) % tiles) * M + tl.arange(0, M)
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    here = (page < length // B) & (page < pages)
    block = page.to(tl.int64)
    if TABLE:
        block = tl.load(block_table + n * stride_table + page, mask=here, other=0).to(tl.int64)
    query = load_queries(queries + n * stride_qn + head * stride_qh, G, G_PAD, D, D_PAD, 0, 1, stride_qg).to(tl.float32)
    channel, slot, group = tl.arange(0, D_PAD), tl.arange(0, B_PAD), tl.arange(0, G_PAD)
    live = here[:, None] & (channel < D)[None, :]
    filled = here[:, None] & (slot < B)[None, :]
    centroid = tl.load(
        centroids + (head * stride_ch + block * stride_cp)[:, None] + channel[None, :], mask=live, other=0.0
    )
    centre = dot(query, tl.trans(centroid))  # [G, M]
    spread = tl.zeros([G_PAD, M, B_PAD], tl.float32)
    for k in tl.static_range(RANK):
        column = tl.load(
            bases + (head * stride_bh + block * stride_bp)[:, None] + channel[None, :] * stride_bd + k * stride_bk,
            mask=live, other=0.0,
        )  # fmt: skip
        coefficient = tl.load(
            coefficients + (head * stride_eh + block * stride_ep)[:, None] + slot[None, :] * stride_eb + k * stride_ek,
            mask=filled, other=0.0,
        )  # fmt: skip
        spread += dot(query, tl.trans(column))[:, :, None] * coefficient[None]
    logits = (centre[:, :, None] + spread) * scale_log2
    score = log_sum_exp_of_tokens(logits, filled)
    row = (n * tl.num_programs(1) + head) * G + group
    tl.store(scores + row[:, None] * row_pages + page[None, :], score, mask=(group < G)[:, None] & here[None, :])


@triton.jit(do_not_specialize=["length_of_all", "pages", "row_pages"])
def exact_scores_kernel(
    queries, keys, block_table, tokens, scores, stride_qn, stride_qh, stride_qg, stride_kb, stride_ks, stride_kh,
    stride_table, length_of_all, pages, row_pages, scale_log2,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, G: tl.constexpr,
    G_PAD: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, OPEN: tl.constexpr,
):  # fmt: skip
    """Exact scores of all pages, the open one included; where OPEN, of the open page alone (grid x: sequences)."""
    tiles = tl.cdiv(pages, M)
    n, head = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1).to(tl.int64)
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    page = (tl.program_id(0) % tiles) * M + tl.arange(0, M)
    if OPEN:
        page = length // B + tl.arange(0, M)
    here = page * B < length
    block = page.to(tl.int64)
    if TABLE:
        block = tl.load(block_table + n * stride_table + page, mask=here, other=0).to(tl.int64)
    query = load_queries(queries + n * stride_qn + head * stride_qh, G, G_PAD, D, D_PAD, 0, 1, stride_qg)
    channel, group = tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    token = tl.arange(0, M * B_PAD)
    slot = token % B_PAD
    at = tl.reshape(tl.broadcast_to((block * stride_kb + head * stride_kh)[:, None], [M, B_PAD]), [M * B_PAD])
    first = tl.reshape(tl.broadcast_to((page * B)[:, None], [M, B_PAD]), [M * B_PAD])
    filled = (slot < B) & (first + slot < length)
    key = tl.load(keys + (at + slot * stride_ks)[:, None] + channel[None, :],
                  mask=filled[:, None] & (channel < D)[None, :], other=0.0)  # fmt: skip
    logits = tl.reshape(dot(query, tl.trans(key)) * scale_log2, [G_PAD, M, B_PAD])
    score = log_sum_exp_of_tokens(logits, tl.reshape(filled, [M, B_PAD]))
    row = (n * tl.num_programs(1) + head) * G + group
    tl.store(scores + row[:, None] * row_pages + page[None, :], score, mask=(group < G)[:, None] & here[None, :])


def score_summaries(
    queries: torch.Tensor, summary: dict[str, torch.Tensor], cache: Cache, scale: float, scores: torch.Tensor
) -> None:
    """Scores of complete pages into scores [N, H, G, P] from float32 summaries by block ([H, M, ...], any strides)."""
    N, H, G, d = queries.shape
    rank = summary["basis"].shape[3]
    pages, M = cache.longest // cache.page_size, 16
    if 0 in (N * H * G, pages):
        return
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    score_summary_kernel[(N * -(-pages // M), H)](
        queries, summary["centroid"], summary["basis"], summary["coefficients"], table, tokens, scores,
        *queries.stride()[:3], *summary["centroid"].stride()[:2], *summary["basis"].stride(),
        *summary["coefficients"].stride(), stride_table, length, pages, scores.shape[3], scale * LOG2E.value,
        M=M, B=cache.page_size, B_PAD=padded(cache.page_size, 2), D=d, D_PAD=padded(d), RANK=rank, G=G,
        G_PAD=padded(G), num_warps=4, **cache.switches,
    )  # fmt: skip


def score_exactly(
    queries: torch.Tensor, cache: Cache, scale: float, scores: torch.Tensor, open_only: bool = False
) -> None:
    """Exact scores of every page, or of the open page alone, into scores [N, H, G, P]."""
    N, H, G, d = queries.shape
    M = 1 if open_only else max(64 // padded(cache.page_size), 1)
    pages = M if open_only else cache.pages
    if 0 in (N * H * G, pages):
        return
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    exact_scores_kernel[(N * -(-pages // M), H)](
        queries, cache.keys, table, tokens, scores, *queries.stride()[:3], *cache.key_strides, stride_table, length,
        pages, scores.shape[3], scale * LOG2E.value,
        M=M, B=cache.page_size, B_PAD=padded(cache.page_size), D=d, D_PAD=padded(d), G=G, G_PAD=padded(G),
        OPEN=open_only, num_warps=4, **cache.switches,
    )  # fmt: skip


def locks_score_pages(
    *, queries: Any, centroid: Any, basis: Any, coefficients: Any, softmax_scale: float | None = None
) -> torch.Tensor:
    """Scores [H,G,P] in nats of pages from float32 summaries [H,P,d], [H,P,d,r], [H,P,B,r] (Locks Eq. (1))."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    centroid = sizes.bind("centroid", centroid, "H P d", FLOAT)
    basis = sizes.bind("basis", basis, "H P d r", FLOAT)
    coefficients = sizes.bind("coefficients", coefficients, "H P B r", FLOAT)
    H, P, B = coefficients.shape[:3]
    cache = Cache(queries, queries, (0, 0, 0), (0, 0, 0), B, H, sizes["d"], P, P * B, None, P * B)
    scores = torch.empty((1, H, queries.shape[1], P), dtype=torch.float32, device=queries.device)
    summary = {"centroid": centroid, "basis": basis, "coefficients": coefficients}
    score_summaries(queries[None], summary, cache, scale_of(softmax_scale, sizes["d"]), scores)
    return scores[0]


def exact_page_scores(*, queries: Any, key_pages: Any, softmax_scale: float | None = None) -> torch.Tensor:
    """Exact scores [H,G,P] in nats of pages [H,P,B,d] of equal filled length (Locks Lemma 1)."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    pages = sizes.bind("key_pages", key_pages, "H P B d", (queries.dtype,))
    H, P, B, d = pages.shape
    strides = (pages.stride(1), pages.stride(2), pages.stride(0))
    cache = Cache(pages, pages, strides, strides, B, H, d, P, P * B, None, P * B)
    scores = torch.empty((1, H, queries.shape[1], P), dtype=torch.float32, device=queries.device)
    score_exactly(queries[None], cache, scale_of(softmax_scale, d), scores)
    return scores[0]
