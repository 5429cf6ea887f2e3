"""Moment core: mean logit and half its variance over a page. Mirrors `refimpl.baselines.moment_core.moment_scores`.

grid (ceil(P / M), H)    q . mu, and for every direction k  E_k (q . v_k)^2: r + 1 matrix products
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
def moment_scores_kernel(
    queries, centroids, directions, energies, scores, pages, scale, half_variance, log_tokens,
    M: tl.constexpr, RANK: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr,
):  # fmt: skip
    """scale q.mu + half_variance sum_k E_k (v_k.q)^2 + log n, [H, G, P]; directions [H, P, RANK, D]."""
    page, head = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1).to(tl.int64)
    channel, group = tl.arange(0, D_PAD), tl.arange(0, G_PAD)
    here = page < pages
    live = here[:, None] & (channel < D)[None, :]
    row = head * pages + page
    query = load_queries(queries + head * G * D, G, G_PAD, D, D_PAD, 0, 1, D).to(tl.float32)
    centroid = tl.load(centroids + row[:, None] * D + channel[None, :], mask=live, other=0.0)
    spread = tl.zeros([G_PAD, M], tl.float32)
    for k in range(RANK):
        direction = tl.load(directions + (row * RANK + k)[:, None] * D + channel[None, :], mask=live, other=0.0)
        energy = tl.load(energies + row * RANK + k, mask=here, other=0.0)
        along = dot(query, tl.trans(direction))
        spread += along * along * energy[None, :]
    score = dot(query, tl.trans(centroid)) * scale + spread * half_variance + log_tokens
    at = (head * G + group)[:, None] * pages + page[None, :]
    tl.store(scores + at, score, mask=(group < G)[:, None] & here[None, :])


def moment_scores(
    *, queries: Any, centroid: Any, directions: Any, energies: Any, page_tokens: int, softmax_scale: float | None = None
) -> torch.Tensor:
    """Scores [H, G, P] in nats from centroids [H, P, d], directions [H, P, d, r], energies [H, P, r] (Eq. (A.2))."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS).contiguous()
    centroid = sizes.bind("centroid", centroid, "H P d", FLOAT).contiguous()
    directions = sizes.bind("directions", directions, "H P d r", FLOAT).transpose(2, 3).contiguous()
    energies = sizes.bind("energies", energies, "H P r", FLOAT).contiguous()
    (H, G, d), pages, n = queries.shape, sizes["P"], whole("page_tokens", page_tokens, 1)
    scale = scale_of(softmax_scale, d)
    scores = torch.empty((H, G, pages), dtype=torch.float32, device=queries.device)
    if 0 not in (H, G, pages):
        moment_scores_kernel[(-(-pages // PAGES), H)](
            queries, centroid, directions, energies, scores, pages, scale, scale * scale / (2 * n), math.log(n),
            M=PAGES, RANK=sizes["r"], D=d, D_PAD=padded(d), G=G, G_PAD=padded(G), num_warps=4,
        )  # fmt: skip
    return scores
