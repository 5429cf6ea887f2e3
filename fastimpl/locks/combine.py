"""Shares of pages: fold a GQA group's page scores into one ranking value per page, normalised over all pages.

Mirrors `refimpl.locks.combine.locks_page_shares`.

    mass_kernel    grid (chunks, N * H)    largest score and sum of exponentials of one chunk, per query head
    shares_kernel  grid (chunks, N * H)    all chunks' masses -> log-sum-exp per head -> shares of one chunk, combined

Bytes moved: scores 4 G P read twice, shares 4 P written, per KV head. All pages are in the denominator (AMB-01).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, Sizes
from fastimpl.device import LOG2E, finite_or_zero, padded

COMBINES = {"share_average": 0, "group_max": 1, "group_mass": 2}
CHUNK = 1024


@triton.jit
def load_scores(scores, row, page, count, row_pages, G: tl.constexpr, G_PAD: tl.constexpr, POOL: tl.constexpr):
    """Base-2 scores [G_PAD, C] of pages; pooled over the group, [1, C], where POOL. -inf: not there."""
    group = tl.arange(0, G_PAD)
    at = (row * G + group)[:, None].to(tl.int64) * row_pages + page[None, :]
    score = tl.load(scores + at, mask=(group < G)[:, None] & (page < count)[None, :], other=float("-inf")) * LOG2E
    if POOL:
        largest = tl.max(score, 0)
        total = tl.sum(tl.exp2(score - finite_or_zero(largest)[None, :]), 0)
        score = (largest + tl.log2(tl.where(total > 0, total, 1.0)))[None, :]
    return score


@triton.jit(do_not_specialize=["pages_of_all", "row_pages", "heads"])
def mass_kernel(
    scores, tokens, largests, totals, pages_of_all, row_pages, heads, page_size, G: tl.constexpr, G_PAD: tl.constexpr,
    CHUNK: tl.constexpr, LENGTHS: tl.constexpr, POOL: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Each head's base-2 maximum and sum over one chunk of pages, [N * H, chunks, ROWS] (ROWS: G_PAD, or 1)."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    count = pages_of_all
    if LENGTHS:
        count = tl.cdiv(tl.load(tokens + row // heads).to(tl.int32), page_size)
    score = load_scores(scores, row, chunk * CHUNK + tl.arange(0, CHUNK), count, row_pages, G, G_PAD, POOL)
    largest = tl.max(score, 1)
    total = tl.sum(tl.exp2(score - finite_or_zero(largest)[:, None]), 1)
    at = (row * tl.num_programs(0) + chunk) * ROWS + tl.arange(0, ROWS)
    tl.store(largests + at, largest)
    tl.store(totals + at, total)


@triton.jit
def log_mass(largests, totals, row, chunks, ROWS: tl.constexpr, STEP: tl.constexpr):
    """Each head's base-2 log-mass [ROWS] over all chunks; -inf where there is none."""
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    for first in range(0, chunks, STEP):
        chunk = first + tl.arange(0, STEP)
        at = (row * chunks + chunk)[:, None] * ROWS + tl.arange(0, ROWS)[None, :]
        live = tl.broadcast_to((chunk < chunks)[:, None], [STEP, ROWS])
        part = tl.load(largests + at, mask=live, other=float("-inf"))
        amount = tl.load(totals + at, mask=live, other=0.0)
        higher = tl.maximum(largest, tl.max(part, 0))
        shift = finite_or_zero(higher)
        total = total * tl.exp2(largest - shift) + tl.sum(amount * tl.exp2(part - shift[None, :]), 0)
        largest = higher
    return largest + tl.log2(tl.where(total > 0, total, 1.0))


@triton.jit
def combined_share(score, mass, G: tl.constexpr, RULE: tl.constexpr):
    """Shares [C] of base-2 scores [rows, C] given each row's log-mass; a head without mass contributes 0."""
    alive = tl.broadcast_to((mass > float("-inf"))[:, None], score.shape)
    share = tl.where(alive, tl.exp2(score - finite_or_zero(mass)[:, None]), 0.0)
    return tl.sum(share, 0) / G if RULE == 0 else tl.max(share, 0)


@triton.jit(do_not_specialize=["pages_of_all", "row_pages", "heads", "chunks"])
def shares_kernel(
    scores, tokens, largests, totals, shares, pages_of_all, row_pages, heads, page_size, chunks,
    G: tl.constexpr, G_PAD: tl.constexpr, CHUNK: tl.constexpr, LENGTHS: tl.constexpr, RULE: tl.constexpr,
    ROWS: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Shares of one chunk of pages; pages past a sequence's end are not written."""
    row = tl.program_id(1)
    count = pages_of_all
    if LENGTHS:
        count = tl.cdiv(tl.load(tokens + row // heads).to(tl.int32), page_size)
    page = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    mass = log_mass(largests, totals, row, chunks, ROWS, STEP)
    score = load_scores(scores, row, page, count, row_pages, G, G_PAD, RULE == 2)
    tl.store(shares + row.to(tl.int64) * row_pages + page, combined_share(score, mass, G, RULE), mask=page < count)


class PageShares:
    """Shares [N, H, P] of scores [N, H, G, P] with their buffers; `run` allocates nothing."""

    def __init__(
        self, scores: torch.Tensor, tokens: torch.Tensor | None, page_size: int, combine: str = "share_average"
    ) -> None:
        if combine not in COMBINES:
            raise ArgumentError(f"combine: expected one of {', '.join(COMBINES)}, got {combine!r}")
        N, H, G, P = scores.shape
        self.scores, self.tokens, self.page_size, self.rule = scores, tokens, page_size, COMBINES[combine]
        self.chunk = min(CHUNK, padded(P))
        self.chunks = -(-P // self.chunk)
        self.rows = 1 if self.rule == 2 else padded(G, 1)
        device = scores.device
        self.largests = torch.empty((N * H, self.chunks, self.rows), dtype=torch.float32, device=device)
        self.totals = torch.empty_like(self.largests)
        self.shares = torch.empty((N, H, P), dtype=torch.float32, device=device)

    def run(self) -> torch.Tensor:
        """Launch both kernels."""
        N, H, G, P = self.scores.shape
        if 0 in (N * H, P):
            return self.shares
        tokens = self.scores if self.tokens is None else self.tokens
        common = {"G": G, "G_PAD": padded(G, 1), "CHUNK": self.chunk, "LENGTHS": self.tokens is not None,
                  "ROWS": self.rows, "num_warps": 4}  # fmt: skip
        grid = (self.chunks, N * H)
        mass_kernel[grid](self.scores, tokens, self.largests, self.totals, P, P, H, self.page_size,
                          POOL=self.rule == 2, **common)  # fmt: skip
        shares_kernel[grid](self.scores, tokens, self.largests, self.totals, self.shares, P, P, H, self.page_size,
                            self.chunks, RULE=self.rule, STEP=min(padded(self.chunks, 1), 64), **common)  # fmt: skip
        return self.shares


def locks_page_shares(*, scores: Any, combine: str = "share_average") -> torch.Tensor:
    """Shares [H,P] of scores [H,G,P] in nats by "share_average", "group_max" or "group_mass" (Locks Table D.17).

    Raises ArgumentError for a dtype, shape, G = 0 or an unknown rule.
    """
    sizes = Sizes()
    scores = sizes.bind("scores", scores, "H G P", (torch.float32,))
    if sizes["G"] == 0:
        raise ArgumentError("scores: expected at least one query head, got G=0")
    return PageShares(scores.contiguous()[None], None, 1, combine).run()[0]
