"""Quest: page envelopes, their scores, and the pages of every query head. Mirrors `refimpl.baselines.quest`.

envelope   grid (P, H)             one page: B keys in, 2 d float32 out; the open page stops at T
scores     grid (ceil(P / M), H)   max(q, 0) . maximum + min(q, 0) . minimum: two matrix products
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.baselines.choose import best
from fastimpl.checks import FLOATS, Sizes, whole
from fastimpl.device import dot, padded
from fastimpl.locks.score import FLOAT, load_queries

PAGES = 16
"""Pages of one program of the scoring kernel."""


@triton.jit
def envelope_kernel(
    keys, minimum, maximum, length, pages,
    B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
):  # fmt: skip
    """Extremes [H, P, D] of the pages of keys [H, T, D]; lanes beyond T are neither minimum nor maximum."""
    page, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    token, channel = page * B + tl.arange(0, B_PAD), tl.arange(0, D_PAD)
    live = ((tl.arange(0, B_PAD) < B) & (token < length))[:, None] & (channel < D)[None, :]
    key = tl.load(keys + (head * length + token)[:, None] * D + channel[None, :], mask=live, other=0.0).to(tl.float32)
    row = (head * pages + page) * D + channel
    tl.store(minimum + row, tl.min(tl.where(live, key, float("inf")), 0), mask=channel < D)
    tl.store(maximum + row, tl.max(tl.where(live, key, float("-inf")), 0), mask=channel < D)


@triton.jit
def envelope_scores_kernel(
    queries, minimum, maximum, scores, pages,
    M: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr,
):  # fmt: skip
    """Envelope scores [H, G, P] of queries [H, G, D]."""
    page, head = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1).to(tl.int64)
    channel, group = tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    here = page < pages
    at = (head * pages + page)[:, None] * D + channel[None, :]
    live = here[:, None] & (channel < D)[None, :]
    low, high = tl.load(minimum + at, mask=live, other=0.0), tl.load(maximum + at, mask=live, other=0.0)
    query = load_queries(queries + head * G * D, G, G_PAD, D, D_PAD, 0, 1, D).to(tl.float32)
    score = dot(tl.maximum(query, 0.0), tl.trans(high)) + dot(tl.minimum(query, 0.0), tl.trans(low))
    row = (head * G + group) * pages
    tl.store(scores + row[:, None] + page[None, :], score, mask=(group < G)[:, None] & here[None, :])


def quest_envelope(*, keys: Any, page_size: int) -> dict[str, torch.Tensor]:
    """``minimum`` and ``maximum`` [H, P, d], float32, of the pages of keys [H, T, d] (Locks Lemma 2)."""
    keys = Sizes().bind("keys", keys, "H T d", FLOATS).contiguous()
    (H, T, d), B = keys.shape, whole("page_size", page_size, 1)
    pages = -(-T // B)
    ends = [torch.empty((H, pages, d), dtype=torch.float32, device=keys.device) for _ in range(2)]
    if 0 not in (H, pages, d):
        envelope_kernel[(pages, H)](keys, *ends, T, pages, B=B, B_PAD=padded(B, 2), D=d, D_PAD=padded(d))
    return {"minimum": ends[0], "maximum": ends[1]}


def quest_scores(*, queries: Any, minimum: Any, maximum: Any) -> torch.Tensor:
    """Envelope scores [H, G, P], without 1/sqrt(d), of queries [H, G, d] and extremes [H, P, d] (Locks Lemma 2)."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS).contiguous()
    ends = [sizes.bind(n, x, "H P d", FLOAT).contiguous() for n, x in (("minimum", minimum), ("maximum", maximum))]
    (H, G, d), pages = queries.shape, sizes["P"]
    scores = torch.empty((H, G, pages), dtype=torch.float32, device=queries.device)
    if 0 not in (H, G, pages):
        envelope_scores_kernel[(-(-pages // PAGES), H)](
            queries, *ends, scores, pages, M=PAGES, D=d, D_PAD=padded(d), G=G, G_PAD=padded(G), num_warps=4
        )
    return scores


def quest_pages(*, scores: Any, budget_tokens: int, page_size: int, recent_pages: int = 0) -> dict[str, torch.Tensor]:
    """``pages`` [H, G, K] of every query head, K = min(max(3, floor(b/B)), P), and the union ``read`` [H, P] uint8."""
    scores = Sizes().bind("scores", scores, "H G P", FLOAT)
    H, _, P = scores.shape
    kept = min(max(3, whole("budget_tokens", budget_tokens, 0) // whole("page_size", page_size, 1)), P)
    forced = torch.arange(P, device=scores.device) >= P - whole("recent_pages", recent_pages, 0, kept)
    pages = best(scores.masked_fill(forced, float("inf")), kept)
    read = torch.zeros((H, P), dtype=torch.uint8, device=scores.device)
    return {"pages": pages, "read": read.scatter_(1, pages.reshape(H, -1), 1)}
