"""Select pages: the sink, the most recent page and the largest shares among the rest, lowest index first on ties.

Mirrors `refimpl.locks.select.locks_select_pages`, for any number of pages and any budget.

    grid (chunks, N * H)  first pass: every chunk of pages keeps its own best min(k, chunk), in page order
    grid (1, N * H)       last pass:  the survivors of all chunks, in page order, keep the best k

A share becomes an integer that sorts the same way; forced pages get the largest one. The k-th largest is found by
fixing two bits of the threshold per round and counting what reaches it: at most 16 rounds, fewer once exactly k do, and
only counts, so no candidate buffer can overflow. Then everything above the threshold is kept, and of its equals the
first in page order. Two passes give what one would: a page that its chunk drops has k better or equal, earlier pages in
front of it. On NVIDIA a first pass over scores is `select_ptx.py`, which does the same with eight bits per round; the
last pass runs inside the attention (`attend.py`).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import Sizes, kept_pages, whole
from fastimpl.device import INTERPRETED, dependent_launch, follow, padded
from fastimpl.locks.combine import combined_share, load_scores, log_mass
from fastimpl.locks.select_ptx import Choice, constants

CHUNK = 2048
"""Pages per program of the first pass over shares."""

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
    return (total & 0xFFFFF).to(tl.int32), ((total >> 20) & 0xFFFFF).to(tl.int32), (total >> 40).to(tl.int32)


@triton.jit
def load_keys(
    values, ids, largests, totals, row, stride_in, item, count, first_item, pages, tiles, G: tl.constexpr,
    G_PAD: tl.constexpr, SOURCE: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Keys and page ids of items: of shares (SOURCE 0), of scores (1), or of what an earlier pass kept (2).

    Scores are read before the masses, up to the row's width: neither waits for the other, nor for the length.
    """
    live = item < count
    base = row.to(tl.int64) * stride_in
    page = first_item + item
    if SOURCE == 2:
        key = tl.load(values + base + item, mask=live, other=ABSENT)
        page = tl.load(ids + base + item, mask=live, other=-1)
    else:
        if SOURCE == 0:
            share = tl.load(values + base + page, mask=live, other=0.0)
        else:
            score = load_scores(values, row, page, stride_in, stride_in, G, G_PAD, False)
            share = combined_share(score, log_mass(largests, totals, row, tiles, G_PAD, STEP), G, 0)
        key = tl.where((page == 0) | (page == pages - 1), FORCED, sortable(share))
    return tl.where(live, key, ABSENT), page


@triton.jit
def narrowed(bar, step, c1, c2, c3, kept):
    """The largest of bar, bar + step, .. that ``kept`` items reach, and the next step: 0 once exactly so many do."""
    bar += tl.where(c3 >= kept, 3, tl.where(c2 >= kept, 2, tl.where(c1 >= kept, 1, 0))) * step
    exact = (c1 == kept) | (c2 == kept) | (c3 == kept)
    return bar, tl.where(exact, 0, step >> 2)


@triton.jit
def bar_of_block(key, kept, SHARES: tl.constexpr):
    """The threshold of the ``kept`` largest of one block of keys; SHARES: keys may be below 0."""
    bar, step = 0, 1 << 28  # shares of scores lie below 2 = 2^30 as bits, forced pages above
    if SHARES:
        bar, step = -2147483648, 1 << 30
    while step > 0:
        c1, c2, c3 = three_counts(key, bar + step, bar + 2 * step, bar + 3 * step)
        bar, step = narrowed(bar, step, c1, c2, c3, kept)
    return bar


@triton.jit
def put_keys(scratch, page, key, live):
    """Keys into memory, where the PTX branch reads them: whatever layout Triton gave them."""
    tl.store(scratch + page, key, mask=live)
    tl.debug_barrier()


@triton.jit
def write_kept(kept_values, kept_ids, key, page, bar, room, written, equals, LAST: tl.constexpr):
    """Append the items above ``bar`` and the first ``room`` equals; returns the counts after it."""
    more = ((key > bar) & (key > ABSENT)).to(tl.int32)
    same = ((key == bar) & (key > ABSENT)).to(tl.int32)
    both = tl.cumsum((more << 16) + same, 0)  # a block has fewer than 2^15 items
    earlier = equals + (both & 0xFFFF)
    keep = more + same * (earlier <= room).to(tl.int32)
    place = written + (both >> 16) + tl.minimum(earlier, room) - tl.minimum(equals, room) - 1
    tl.store(kept_ids + place, page.to(kept_ids.dtype.element_ty), mask=keep > 0)
    if not LAST:
        tl.store(kept_values + place, key, mask=keep > 0)
    return written + tl.sum(keep, 0), equals + tl.sum(same, 0)


@triton.jit
def select_plainly(
    values, ids, largests, totals, kept_values, kept_ids, row, stride_in, item, key, page, count, first_item, pages, tiles,
    kept, BLOCK: tl.constexpr, ONE_BLOCK: tl.constexpr, SOURCE: tl.constexpr, LAST: tl.constexpr, G: tl.constexpr,
    G_PAD: tl.constexpr, STEP: tl.constexpr,
):  # fmt: skip
    """Write the ``kept`` largest of a chunk whose first block is ``key``; further blocks are read again per round."""
    if ONE_BLOCK:
        bar = bar_of_block(key, kept, SOURCE == 0)
    else:
        bar, step = 0, 1 << 28
        if SOURCE == 0:
            bar, step = -2147483648, 1 << 30
        while step > 0:
            c1, c2, c3 = three_counts(key, bar + step, bar + 2 * step, bar + 3 * step)
            for first in range(BLOCK, count, BLOCK):
                later, _page = load_keys(values, ids, largests, totals, row, stride_in, first + item, count, first_item,
                                         pages, tiles, G, G_PAD, SOURCE, STEP)  # fmt: skip
                d1, d2, d3 = three_counts(later, bar + step, bar + 2 * step, bar + 3 * step)
                c1, c2, c3 = c1 + d1, c2 + d2, c3 + d3
            bar, step = narrowed(bar, step, c1, c2, c3, kept)
    above = tl.sum(((key > bar) & (key > ABSENT)).to(tl.int32), 0)
    if not ONE_BLOCK:
        for first in range(BLOCK, count, BLOCK):
            later, _page = load_keys(values, ids, largests, totals, row, stride_in, first + item, count, first_item,
                                     pages, tiles, G, G_PAD, SOURCE, STEP)  # fmt: skip
            above += tl.sum(((later > bar) & (later > ABSENT)).to(tl.int32), 0)
    room = kept - above
    written, equals = write_kept(kept_values, kept_ids, key, page, bar, room, 0, 0, LAST)
    if not ONE_BLOCK:
        for first in range(BLOCK, count, BLOCK):
            later, at = load_keys(values, ids, largests, totals, row, stride_in, first + item, count, first_item, pages,
                                  tiles, G, G_PAD, SOURCE, STEP)  # fmt: skip
            written, equals = write_kept(kept_values, kept_ids, later, at, bar, room, written, equals, LAST)
    for first in range(0, kept, BLOCK):
        place = first + item
        beyond = (place >= written) & (place < kept)
        tl.store(kept_ids + place, (item * 0 - 1).to(kept_ids.dtype.element_ty), mask=beyond)
        if not LAST:
            tl.store(kept_values + place, item * 0 + ABSENT, mask=beyond)


@triton.jit(do_not_specialize=["pages_of_all", "stride_in", "stride_out", "items_of_all", "kept", "heads", "tiles"])
def select_kernel(
    values, ids, tokens, largests, totals, scratch, block_table, kept_values, kept_ids, kept_blocks, pages_of_all,
    stride_in, stride_out, stride_table, items_of_all, kept, heads, page_size, tiles,
    CHUNK: tl.constexpr, BLOCK: tl.constexpr, LENGTHS: tl.constexpr, SOURCE: tl.constexpr, LAST: tl.constexpr,
    ONE_BLOCK: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr, STEP: tl.constexpr, WARPS: tl.constexpr,
    TEXT: tl.constexpr, OPERANDS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """The ``kept`` largest of one chunk of items, in item order; a place beyond them gets id -1."""
    follow(DEPENDENT)
    chunk, row = tl.program_id(0), tl.program_id(1)
    pages = pages_of_all
    if LENGTHS:
        pages = tl.cdiv(tl.load(tokens + row // heads).to(tl.int32), page_size)
    first_item = chunk * CHUNK
    count = items_of_all
    if SOURCE != 2:
        count = tl.maximum(tl.minimum(pages - first_item, CHUNK), 0)
    item = tl.arange(0, BLOCK)
    key, page = load_keys(values, ids, largests, totals, row, stride_in, item, count, first_item, pages, tiles, G,
                          G_PAD, SOURCE, STEP)  # fmt: skip
    out = (row.to(tl.int64) * tl.num_programs(0) + chunk) * stride_out
    if TEXT == "":
        select_plainly(values, ids, largests, totals, kept_values + out, kept_ids + out, row, stride_in, item, key, page,
                       count, first_item, pages, tiles, kept, BLOCK, ONE_BLOCK, SOURCE, LAST, G, G_PAD, STEP)  # fmt: skip
    else:
        own = scratch + row.to(tl.int64) * stride_in
        put_keys(own, page, key, item < count)
        zero = tl.arange(0, 32 * WARPS) * 0
        wide = zero.to(tl.int64)
        sources = (wide + (own + first_item).to(tl.int64), zero + count, zero + kept)
        targets = (wide + (kept_values + out).to(tl.int64), wide + (kept_ids + out).to(tl.int64))
        table = wide + (block_table + (row // heads).to(tl.int64) * stride_table).to(tl.int64)
        targets = targets + (wide + (kept_blocks + out).to(tl.int64), table, zero + first_item)
        tl.inline_asm_elementwise(TEXT, OPERANDS, sources + targets, dtype=tl.int32, is_pure=False, pack=1)


def chunk_of_scores(pages: int) -> int:
    """Pages per program of the first pass over scores: eight programs a row or more, 4096 survivors of 128 or fewer.

    >>> [chunk_of_scores(pages) for pages in (2048, 8192, 32768, 65536)]
    [256, 512, 1024, 2048]
    """
    return 256 if pages <= 4096 else 512 if pages <= 16384 else 1024 if pages <= 32768 else 2048


def takes_ptx(device: torch.device) -> bool:
    """Whether the PTX branch selects."""
    return device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value


class PageSelection:
    """Pages [N, H, kept] (int32, ascending, -1 padded), with buffers; `run` allocates nothing.

    Args:
        values: shares [N, H, P]; or scores [N, H, G, P], with the masses of their tiles: the shares are then made on
            the way and never stored.
        tokens: lengths [N] on the device, or None: P pages each.
        most: pages that one pass selects among; None: twice a chunk.
        table: block table [N, Pmax], whose entries the PTX branch looks up on the way; None: pages are blocks.
    """

    def __init__(
        self, values: torch.Tensor, tokens: torch.Tensor | None, page_size: int, kept: int,
        masses: tuple[torch.Tensor, torch.Tensor] | None = None, most: int | None = None,
        table: torch.Tensor | None = None,
    ) -> None:  # fmt: skip
        self.rows, self.width = values.shape[0] * values.shape[1], values.shape[-1]
        self.values, self.tokens, self.page_size, self.kept, self.masses = values, tokens, page_size, kept, masses
        self.table = table
        self.heads, self.groups = values.shape[1], values.shape[2] if masses else 1
        self.chunk = CHUNK if masses is None else chunk_of_scores(self.width)
        self.chunks = -(-self.width // self.chunk) if self.width > (most or 2 * self.chunk) else 1
        self.pages = torch.empty((*values.shape[:2], kept), dtype=torch.int32, device=values.device)
        self.ptx = masses is not None and takes_ptx(values.device)
        # the PTX branch reads keys from memory
        self.scratch = (
            torch.empty((self.rows, self.width), dtype=torch.int32, device=values.device) if self.ptx else self.pages
        )
        if self.chunks > 1:
            self.survivors = min(kept, self.chunk)
            self.keys = torch.empty((self.rows, self.chunks, self.survivors), dtype=torch.int32, device=values.device)
            self.ids, self.blocks = torch.empty_like(self.keys), torch.empty_like(self.keys)

    @property
    def last_pass(self) -> tuple[int, torch.Tensor, torch.Tensor, int, int]:
        """What the last pass selects among: source, values, ids, elements between rows, items."""
        if self.chunks == 1:
            return (0 if self.masses is None else 1), self.values, self.values, self.width, self.width
        items = self.chunks * self.survivors
        return 2, self.keys, self.ids, items, items

    def run(self) -> torch.Tensor:
        """Launch one or two passes."""
        if 0 in (self.rows, self.kept):
            return self.pages
        self.run_first()
        source, values, ids, stride_in, items = self.last_pass
        self._pass(1, items, source, values, ids, self.pages, self.pages, self.kept, stride_in)
        return self.pages

    def run_first(self) -> None:
        """Launch all passes but the last."""
        if self.chunks > 1:
            self._pass(self.chunks, self.chunk, 0 if self.masses is None else 1, self.values, self.values, self.keys,
                       self.ids, self.survivors, self.width)  # fmt: skip

    def _pass(
        self, chunks: int, chunk: int, source: int, values: torch.Tensor, ids: torch.Tensor, kept_values: torch.Tensor,
        kept_ids: torch.Tensor, kept: int, stride_in: int,
    ) -> None:  # fmt: skip
        block = min(padded(chunk), 4096)
        warps = 4 if block <= 512 else 8 if block <= 1024 else 16
        table = self.pages if self.table is None else self.table
        block_bytes = 0 if self.table is None else self.table.element_size()
        first = Choice(block, warps, block_bytes) if self.ptx and source == 1 and chunks > 1 else None
        largests, totals = self.masses or (self.values, self.values)
        tiles = largests.shape[1] if self.masses else 0
        select_kernel[(chunks, self.rows)](
            values, ids, values if self.tokens is None else self.tokens, largests, totals, self.scratch, table, kept_values,
            kept_ids, self.blocks if chunks > 1 else kept_ids, self.width, stride_in, kept, table.stride(0), chunk, kept, self.heads, self.page_size, tiles,
            CHUNK=chunk, BLOCK=block, LENGTHS=self.tokens is not None, SOURCE=source, LAST=kept_ids is self.pages,
            ONE_BLOCK=chunk <= block, G=self.groups, G_PAD=padded(self.groups, 1), STEP=min(padded(tiles, 1), 256),
            num_warps=warps, **constants(first, warps),
            **dependent_launch(values.device),
        )  # fmt: skip


def locks_select_pages(*, shares: Any, budget_tokens: int, page_size: int) -> torch.Tensor:
    """Pages [H, min(k,P)] of shares [H,P]: 0, P-1 and the largest others, ascending; ties to the lower (Locks Sec. 4).

    Raises ArgumentError for a dtype, shape, or k < 2 with P > 1 (AMB-04).
    """
    sizes = Sizes()
    shares = sizes.bind("shares", shares, "H P", (torch.float32,))
    kept = kept_pages(budget_tokens, whole("page_size", page_size, 1), shares.shape[1])
    return PageSelection(shares.contiguous()[None], None, page_size, kept).run()[0]
