"""Shared basis: page scores from one basis for all pages. Mirrors `refimpl.baselines.shared_basis.shared_basis_scores`.

grid (ceil(P / M), H)    per 16 directions: q . W [G, 16], then times the tokens' coordinates [16, M B]
  plus q . mean  -->  logits [G, M, B]  -->  log-sum-exp over B  -->  scores [G, M]
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, Sizes, scale_of
from fastimpl.device import LOG2E, dot, padded
from fastimpl.locks.score import FLOAT, load_queries, log_sum_exp_of_tokens

PAGES = 8


@triton.jit
def shared_scores_kernel(
    queries, mean, basis, coordinates, scores, pages, scale_log2,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, RANK: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    G: tl.constexpr, G_PAD: tl.constexpr,
):  # fmt: skip
    """Scores [H, G, P] of coordinates [H, P, B, RANK] in basis [H, D, RANK] about mean [H, D]."""
    page, head = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1).to(tl.int64)
    channel, group, mode = tl.arange(0, D_PAD), tl.arange(0, G_PAD), tl.arange(0, 16)
    lane = tl.arange(0, M * B_PAD)
    own, slot = tl.program_id(0) * M + lane // B_PAD, lane % B_PAD
    here, filled = page < pages, (slot < B) & (own < pages)
    token = (head * pages + own) * B + slot
    query = load_queries(queries + head * G * D, G, G_PAD, D, D_PAD, 0, 1, D).to(tl.float32)
    centre = tl.load(mean + head * D + channel, mask=channel < D, other=0.0)
    logits = tl.zeros([G_PAD, M * B_PAD], tl.float32) + tl.sum(query * centre[None, :], 1)[:, None]
    for first in range(0, RANK, 16):
        kept = first + mode < RANK
        column = tl.load(basis + (head * D + channel)[:, None] * RANK + (first + mode)[None, :],
                         mask=(channel < D)[:, None] & kept[None, :], other=0.0)  # fmt: skip
        coordinate = tl.load(coordinates + token[:, None] * RANK + (first + mode)[None, :],
                             mask=filled[:, None] & kept[None, :], other=0.0)  # fmt: skip
        logits += dot(dot(query, column), tl.trans(coordinate))
    whole = tl.reshape(filled, [M, B_PAD])
    score = log_sum_exp_of_tokens(tl.reshape(logits * scale_log2, [G_PAD, M, B_PAD]), whole)
    at = (head * G + group)[:, None] * pages + page[None, :]
    tl.store(scores + at, score, mask=(group < G)[:, None] & here[None, :])


def shared_basis_scores(
    *, queries: Any, mean: Any, basis: Any, coordinates: Any, softmax_scale: float | None = None
) -> torch.Tensor:
    """Scores [H, G, P] in nats from mean [H, d], basis [H, d, r], coordinates [H, P, B, r] (Locks App. D)."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS).contiguous()
    mean = sizes.bind("mean", mean, "H d", FLOAT).contiguous()
    basis = sizes.bind("basis", basis, "H d r", FLOAT).contiguous()
    coordinates = sizes.bind("coordinates", coordinates, "H P B r", FLOAT).contiguous()
    (H, G, d), (_, pages, B, r) = queries.shape, coordinates.shape
    scores = torch.empty((H, G, pages), dtype=torch.float32, device=queries.device)
    if 0 not in (H, G, pages):
        shared_scores_kernel[(-(-pages // PAGES), H)](
            queries, mean, basis, coordinates, scores, pages, scale_of(softmax_scale, d) * LOG2E.value,
            M=PAGES, B=B, B_PAD=padded(B, 2), RANK=r, D=d, D_PAD=padded(d), G=G, G_PAD=padded(G), num_warps=4,
        )  # fmt: skip
    return scores
