"""Select pages: the sink, the most recent page and the largest shares among the rest, lowest index first on ties.

Mirrors `refimpl.locks.select.locks_select_pages`, for any number of pages and any budget.

    grid (chunks, N * H)  first pass: every chunk of pages keeps its own best min(k, chunk), in page order
    grid (1, N * H)       last pass:  the survivors of all chunks, in page order, keep the best k

A share becomes an integer that sorts the same way; forced pages get the largest one. The k-th largest is found by
fixing two bits per round of the threshold and counting what reaches it (16 rounds, counts only, so no candidate buffer
can overflow); then everything above the threshold is kept, and of its equals the first in page order. Two passes give
what one would: a page that its chunk drops has k better or equal, earlier pages in front of it.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import Sizes, kept_pages, whole
from fastimpl.device import padded

CHUNK = 2048
FORCED = tl.constexpr(0x7FFFFFFF)
ABSENT = tl.constexpr(-0x80000000)


@triton.jit
def sortable(share):
    """An int32 that orders as the float32 does; -0 equals +0, NaN sorts below every number."""
    bits = (share + 0.0).to(tl.int32, bitcast=True)
    key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    return tl.where(share == share, tl.minimum(key, 0x7FFFFFFE), -0x7FFFFFFF)


@triton.jit
def three_counts(key, t1, t2, t3):
    """How many keys (fewer than 2^20) reach each of three thresholds, by one packed reduction."""
    one = (key >= t1).to(tl.int64) + ((key >= t2).to(tl.int64) << 20) + ((key >= t3).to(tl.int64) << 40)
    total = tl.sum(one, 0)
    return total & 0xFFFFF, (total >> 20) & 0xFFFFF, total >> 40


@triton.jit
def load_keys(values, ids, base, item, count, first_item, pages, FIRST: tl.constexpr):
    """Keys and page ids of items; FIRST reads shares, a later pass what an earlier one kept."""
    live = item < count
    if FIRST:
        page = first_item + item
        key = sortable(tl.load(values + base + page, mask=live, other=0.0))
        key = tl.where((page == 0) | (page == pages - 1), FORCED, key)
        return tl.where(live, key, ABSENT), page
    else:
        key = tl.load(values + base + item, mask=live, other=ABSENT)
        return key, tl.load(ids + base + item, mask=live, other=-1)


@triton.jit
def select_kernel(
    values, ids, tokens, kept_values, kept_ids, pages_of_all, stride_in, stride_out, items_of_all, kept, heads, page_size,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, LENGTHS: tl.constexpr, FIRST: tl.constexpr, LAST: tl.constexpr,
    ONE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The ``kept`` largest of one chunk of items, in item order; a place beyond them gets id -1."""
    chunk, row = tl.program_id(0), tl.program_id(1)
    pages = pages_of_all
    if LENGTHS:
        pages = tl.cdiv(tl.load(tokens + row // heads).to(tl.int32), page_size)
    first_item = chunk * CHUNK
    count = items_of_all
    if FIRST:
        count = tl.maximum(tl.minimum(pages - first_item, CHUNK), 0)
    base = row.to(tl.int64) * stride_in
    item = tl.arange(0, BLOCK)
    key, page = load_keys(values, ids, base, item, count, first_item, pages, FIRST)
    # the threshold in unsigned order: bit pattern ^ 0x80000000
    threshold = tl.zeros([1], tl.int64)
    step = tl.full([1], 1 << 30, tl.int64)
    for _ in range(16):
        t1 = (threshold + step - 2147483648).to(tl.int32)
        t2 = (threshold + 2 * step - 2147483648).to(tl.int32)
        t3 = (threshold + 3 * step - 2147483648).to(tl.int32)
        c1, c2, c3 = three_counts(key, t1, t2, t3)
        if not ONE_BLOCK:
            for first in range(BLOCK, count, BLOCK):
                later, page = load_keys(values, ids, base, first + item, count, first_item, pages, FIRST)
                d1, d2, d3 = three_counts(later, t1, t2, t3)
                c1, c2, c3 = c1 + d1, c2 + d2, c3 + d3
        threshold += step * ((c1 >= kept).to(tl.int64) + (c2 >= kept).to(tl.int64) + (c3 >= kept).to(tl.int64))
        step = step >> 2
    bar = (threshold - 2147483648).to(tl.int32)
    above = 0
    for first in range(0, count, BLOCK):
        key, page = load_keys(values, ids, base, first + item, count, first_item, pages, FIRST)
        above += tl.sum(((key > bar) & (key > ABSENT)).to(tl.int32), 0)
    room = kept - above
    out = (row.to(tl.int64) * tl.num_programs(0) + chunk) * stride_out
    written, equals = 0, 0
    for first in range(0, count, BLOCK):
        key, page = load_keys(values, ids, base, first + item, count, first_item, pages, FIRST)
        more = ((key > bar) & (key > ABSENT)).to(tl.int32)
        same = ((key == bar) & (key > ABSENT)).to(tl.int32)
        taken = same * ((equals + tl.cumsum(same, 0)) <= room).to(tl.int32)
        keep = more + taken
        place = written + tl.cumsum(keep, 0) - 1
        tl.store(kept_ids + out + place, page.to(kept_ids.dtype.element_ty), mask=keep > 0)
        if not LAST:
            tl.store(kept_values + out + place, key, mask=keep > 0)
        written += tl.sum(keep, 0)
        equals += tl.sum(same, 0)
    for first in range(0, kept, BLOCK):
        place = first + item
        tl.store(kept_ids + out + place, (item * 0 - 1).to(kept_ids.dtype.element_ty), mask=(place >= written) & (place < kept))
        if not LAST:
            tl.store(kept_values + out + place, item * 0 + ABSENT, mask=(place >= written) & (place < kept))


class PageSelection:
    """Pages [N, H, kept] (int32, ascending, -1 padded) of shares [N, H, P], with buffers; `run` allocates nothing."""

    def __init__(self, shares: torch.Tensor, tokens: torch.Tensor | None, page_size: int, kept: int) -> None:
        N, H, P = shares.shape
        device = shares.device
        self.shares, self.tokens, self.page_size, self.kept = shares, tokens, page_size, kept
        self.chunks = -(-P // CHUNK) if P > 2 * CHUNK else 1
        self.pages = torch.empty((N, H, kept), dtype=torch.int32, device=device)
        if self.chunks > 1:
            self.survivors = min(kept, CHUNK)
            self.values = torch.empty((N * H, self.chunks, self.survivors), dtype=torch.int32, device=device)
            self.ids = torch.empty_like(self.values)

    def run(self) -> torch.Tensor:
        """Launch one or two passes."""
        N, H, P = self.shares.shape
        if 0 in (N * H, self.kept):
            return self.pages
        tokens = self.shares if self.tokens is None else self.tokens
        lengths = self.tokens is not None
        if self.chunks == 1:
            self._pass(1, self.shares, self.shares, tokens, self.pages, self.pages, P, P, self.kept, P, lengths, True, True)
            return self.pages
        self._pass(self.chunks, self.shares, self.shares, tokens, self.values, self.ids, P, CHUNK, self.survivors,
                   CHUNK, lengths, True, False)  # fmt: skip
        items = self.chunks * self.survivors
        self._pass(1, self.values, self.ids, tokens, self.pages, self.pages, items, items, self.kept, items, lengths,
                   False, True)  # fmt: skip
        return self.pages

    def _pass(
        self, chunks: int, values: torch.Tensor, ids: torch.Tensor, tokens: torch.Tensor, kept_values: torch.Tensor,
        kept_ids: torch.Tensor, stride_in: int, items: int, kept: int, chunk: int, lengths: bool, first: bool,
        last: bool,
    ) -> None:  # fmt: skip
        N, H, P = self.shares.shape
        block = min(padded(chunk), 4096)
        select_kernel[(chunks, N * H)](
            values, ids, tokens, kept_values, kept_ids, P, stride_in, kept, items, kept, H, self.page_size,
            CHUNK=chunk, BLOCK=block, LENGTHS=lengths, FIRST=first, LAST=last, ONE_BLOCK=chunk <= block,
            num_warps=4 if block <= 1024 else 8,
        )  # fmt: skip


def locks_select_pages(*, shares: Any, budget_tokens: int, page_size: int) -> torch.Tensor:
    """Pages [H, min(k,P)] of shares [H,P]: 0, P-1 and the largest others, ascending; ties to the lower (Locks Sec. 4).

    Raises ArgumentError for a dtype, shape, or k < 2 with P > 1 (AMB-04).
    """
    sizes = Sizes()
    shares = sizes.bind("shares", shares, "H P", (torch.float32,))
    kept = kept_pages(budget_tokens, whole("page_size", page_size, 1), shares.shape[1])
    return PageSelection(shares.contiguous()[None], None, page_size, kept).run()[0]
