"""Select and attend in one kernel: every program finds the pages itself and attends over its run of them.

Mirrors the end of `refimpl.locks.decode.locks_decode`.

    grid (splits, N * H)   scores of a row, or what the chunks of a first pass kept
                             --> the k-th largest key --> kept pages in order --> this program's run of them
                             --> attention over it; then merge_kernel

The selection is the same in every program of a row (`select.py`): finding it again costs less than a launch and a wait.
A program writes its part of the list of pages and their blocks, and reads it back. Bytes moved per row: 4 G P of
scores, or 8 per survivor, once per program and from the L2 cache; 2 k B d elements of keys and values.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fastimpl.attend_run import attend_run, run_of, store_state
from fastimpl.attention import default_splits, merge
from fastimpl.device import LOG2E, dependent_launch, follow, padded
from fastimpl.locks.score import load_queries
from fastimpl.locks.select import ABSENT, PageSelection, bar_of_block, load_keys, put_keys
from fastimpl.locks.select_ptx import Choice, constants
from fastimpl.paging import Cache

MOST_ITEMS = 4096
"""Items that a program selects among: survivors, or pages straight from their scores (`MOST_PAGES`)."""

MOST_PAGES = 1024


@triton.jit
def write_run(pages, blocks, table, key, page, kept, first, last, beyond, TABLE: tl.constexpr):
    """Write places first .. last - 1 of the list of kept pages (-1 from where it ends) and of their blocks."""
    bar = bar_of_block(key, kept, False)
    room = kept - tl.sum(((key > bar) & (key > ABSENT)).to(tl.int32), 0)
    more = ((key > bar) & (key > ABSENT)).to(tl.int32)
    same = ((key == bar) & (key > ABSENT)).to(tl.int32)
    both = tl.cumsum((more << 16) + same, 0)  # a block has fewer than 2^15 items
    earlier = both & 0xFFFF
    place = (both >> 16) + tl.minimum(earlier, room) - 1
    keep = ((more > 0) | ((same > 0) & (earlier <= room))) & (place >= first) & (place < last)
    tl.store(pages + place, page, mask=keep)
    if TABLE:
        tl.store(blocks + place, tl.load(table + page, mask=keep, other=0).to(tl.int32), mask=keep)
    written = tl.max(tl.where((more > 0) | ((same > 0) & (earlier <= room)), place, -1), 0) + 1
    tl.store(pages + beyond, beyond * 0 - 1, mask=(beyond >= written) & (beyond >= first) & (beyond < last))


@triton.jit(do_not_specialize=["length_of_all", "stride_in", "items_of_all", "kept", "heads", "splits", "tiles"])
def select_attend_kernel(
    values, ids, largests, totals, scratch, queries, keys, value_cache, block_table, tokens, pages, blocks, outputs, lses,
    stride_qn, stride_qh, stride_qg, stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, stride_table,
    length_of_all, stride_in, items_of_all, kept, heads, splits, tiles, scale_log2,
    ITEMS: tl.constexpr, SOURCE: tl.constexpr, STEP: tl.constexpr, G: tl.constexpr, G_ROWS: tl.constexpr,
    G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    KEPT: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, STAGES: tl.constexpr, WARPS: tl.constexpr,
    PLACES: tl.constexpr, TEXT: tl.constexpr, OPERANDS: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Pages of a row, and the state of one run of their tokens."""
    follow(DEPENDENT)
    split, row = tl.program_id(0), tl.program_id(1)
    n, head = (row // heads).to(tl.int64), (row % heads).to(tl.int64)
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    start, stop = run_of(split, splits, kept * PAGE, BLOCK)
    first, last = start // PAGE, tl.cdiv(stop, PAGE)
    base = row.to(tl.int64) * stride_in
    own_pages, own_blocks = pages + row.to(tl.int64) * kept, blocks + row.to(tl.int64) * kept
    table = block_table + n * stride_table
    count = items_of_all
    own_keys = values + base
    if SOURCE == 1:
        count = tl.cdiv(length, PAGE)
    if (TEXT == "") | (SOURCE == 1):
        item = tl.arange(0, ITEMS)
        key, page = load_keys(values, ids, largests, totals, row, stride_in, item, count, 0, tl.cdiv(length, PAGE), tiles,
                              G, G_ROWS, SOURCE, STEP)  # fmt: skip
        if TEXT == "":
            write_run(own_pages, own_blocks, table, key, page, kept, first, last, tl.arange(0, KEPT), TABLE)
        else:
            own_keys = scratch + base
            put_keys(own_keys, page, key, item < count)
    query = load_queries(queries + n * stride_qn + head * stride_qh, G, G_PAD, D, D_PAD, 0, 1, stride_qg)
    if TEXT == "":
        tl.debug_barrier()  # what other threads of this program wrote is read below
        largest, total, state = attend_run(
            query, keys, value_cache, own_blocks, own_pages, start, stop, length, head,
            stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, scale_log2,
            G_PAD, D, D_PAD, PAGE, BLOCK, True, 2 * TABLE, STAGES,
        )  # fmt: skip
    else:
        zero = tl.arange(0, 32 * WARPS) * 0
        wide = zero.to(tl.int64)
        own_blocks = wide + (blocks + base).to(tl.int64)
        if SOURCE == 1:
            own_blocks = wide + table.to(tl.int64)
        sources = (
            wide + own_keys.to(tl.int64),
            zero + count,
            zero + kept,
            wide + (ids + base).to(tl.int64),
            own_blocks,
        )
        targets = (wide + own_pages.to(tl.int64), zero + first, zero + last)
        found = tl.inline_asm_elementwise(TEXT, OPERANDS, sources + targets, dtype=tl.int32, is_pure=False, pack=1)
        packed = tl.max(found, 0)
        # the most recent page is kept, last in the list, and may be open
        held = (packed >> 18) * PAGE - (tl.cdiv(length, PAGE) * PAGE - length)
        largest, total, state = attend_run(
            query, keys, value_cache, packed & 0x3FFFF, 0, start, tl.minimum(stop, held), length, head,
            stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, scale_log2,
            G_PAD, D, D_PAD, PAGE, BLOCK, False, 3, STAGES, PLACES,
        )  # fmt: skip
    store_state(outputs, lses, (row.to(tl.int64) * splits + split) * G, largest, total, state, G, G_PAD, D, D_PAD)


class SelectedAttention:
    """Selection and attention of one decode step with their buffers; `run` allocates nothing.

    Args:
        queries: [N, H, G, d]. cache: where keys and values lie.
        selection: the pages' selection; its last pass is done here where that is possible.
        scale: factor on the logits.
        splits: runs that the kept tokens are cut into; None chooses.
    """

    def __init__(
        self, queries: torch.Tensor, cache: Cache, selection: PageSelection, scale: float, splits: int | None = None
    ) -> None:
        N, H, G, d = queries.shape
        device = queries.device
        self.queries, self.cache, self.selection, self.scale = queries, cache, selection, scale
        self.block = 32 if queries.dtype == torch.float32 or d > 128 else 64
        self.splits = splits or default_splits(selection.kept * cache.page_size, N * H, device, self.block, 3)
        self.output = torch.empty((N, H, G, d), dtype=queries.dtype, device=device)
        self.lse = torch.empty((N, H, G), dtype=torch.float32, device=device)
        self.blocks = torch.empty_like(selection.pages)
        self.parts = torch.empty((N * H, self.splits, G, d), dtype=torch.float32, device=device)
        self.masses = torch.empty((N * H, self.splits, G), dtype=torch.float32, device=device)

    def choice(self, source: int, items: int) -> tuple[Choice | None, int]:
        """The PTX of the last pass, where that branch is taken, and the places that its runs cover at most."""
        run = -(-self.selection.kept * self.cache.page_size // self.splits)
        places = padded(-(-run // self.block) * self.block // self.cache.page_size + 2, 4)
        table = self.cache.block_table
        block_bytes = 0 if table is None else table.element_size() if source == 1 else 4
        return Choice(padded(items), 4, block_bytes, places, source == 1) if self.selection.ptx else None, places

    def run(self) -> dict[str, torch.Tensor]:
        """Launch: one kernel and the merge. The first pass of the selection must have run."""
        queries, cache, selection = self.queries, self.cache, self.selection
        N, H, G, d = queries.shape
        (table, stride_table), (tokens, length) = cache.table, cache.lengths
        source, values, ids, stride_in, items = selection.last_pass
        choice, places = self.choice(source, items)
        # two blocks in shared memory let three programs share a multiprocessor; five stages where look-ups stand between
        stages = 2 if choice or queries.element_size() > 2 or d > 128 else 5
        largests, totals = selection.masses or (values, values)
        tiles = largests.shape[1] if selection.masses else 0
        select_attend_kernel[(self.splits, N * H)](
            values, ids, largests, totals, selection.scratch, queries, cache.keys, cache.values, table, tokens, selection.pages,
            selection.blocks if choice and source == 2 else self.blocks, self.parts, self.masses, *queries.stride()[:3], *cache.key_strides, *cache.value_strides,
            stride_table, length, stride_in, items, selection.kept, H, self.splits, tiles, self.scale * LOG2E.value,
            ITEMS=padded(items), SOURCE=source, STEP=min(padded(tiles, 1), 256), G=G, G_ROWS=padded(G, 1),
            G_PAD=padded(G), D=d, D_PAD=padded(d), PAGE=cache.page_size, BLOCK=self.block,
            KEPT=padded(selection.kept), STAGES=stages, PLACES=places, num_warps=4, **constants(choice, 4),
            **cache.switches, **dependent_launch(queries.device),
        )  # fmt: skip
        merge(self.parts, self.masses, self.output, self.lse)
        return {"output": self.output, "lse": self.lse}
