"""Centroid only: one logit per page and the log of its length. Mirrors `refimpl.baselines.centroid`.

grid (ceil(P / M), H)    q . mu [G, M], one matrix product
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, Sizes, scale_of, whole
from fastimpl.device import dot, padded
from fastimpl.locks.score import FLOAT, load_queries

PAGES = 16


@triton.jit
def centroid_scores_kernel(
    queries, centroids, scores, pages, scale, log_tokens,
    M: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr,
):  # fmt: skip
    """scale q.mu + log n, [H, G, P], of centroids [H, P, D]."""
    page, head = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1).to(tl.int64)
    channel, group = tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    here = page < pages
    live = here[:, None] & (channel < D)[None, :]
    centroid = tl.load(centroids + (head * pages + page)[:, None] * D + channel[None, :], mask=live, other=0.0)
    query = load_queries(queries + head * G * D, G, G_PAD, D, D_PAD, 0, 1, D).to(tl.float32)
    score = dot(query, tl.trans(centroid)) * scale + log_tokens
    row = (head * G + group) * pages
    tl.store(scores + row[:, None] + page[None, :], score, mask=(group < G)[:, None] & here[None, :])


def centroid_scores(*, queries: Any, centroid: Any, page_tokens: int, softmax_scale: float | None = None) -> Any:
    """Scores [H, G, P] in nats of pages of n tokens from centroids [H, P, d] (Locks Table B.1)."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS).contiguous()
    centroid = sizes.bind("centroid", centroid, "H P d", FLOAT).contiguous()
    (H, G, d), pages, n = queries.shape, sizes["P"], whole("page_tokens", page_tokens, 1)
    scores = torch.empty((H, G, pages), dtype=torch.float32, device=queries.device)
    if 0 not in (H, G, pages):
        centroid_scores_kernel[(-(-pages // PAGES), H)](
            queries, centroid, scores, pages, scale_of(softmax_scale, d), math.log(n),
            M=PAGES, D=d, D_PAD=padded(d), G=G, G_PAD=padded(G), num_warps=4,
        )  # fmt: skip
    return scores
