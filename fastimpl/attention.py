"""Attention of one decode step, split over the tokens: dense or over chosen pages, contiguous or through a block table.

Computes `refimpl.attention.attention`, `sparse_attention`, `merge_attention` and `refimpl.paging.paged_attention`,
`paged_sparse_attention`.

    grid (splits, N * H)            one program: one KV head's G queries against one run of tokens
      queries [G, d] --.
      keys    [BLOCK, d] --> logits [G, BLOCK] --> running maximum, sum, output [G, d]
      values  [BLOCK, d] ------------------------------^
    then grid (N * H * G)           merge_kernel: weigh the splits' outputs by their log-masses

One addressing rule serves every layout: token t lies in block t // B of its sequence (looked up in the block table
where there is one) at ``block * stride_block + (t % B) * stride_slot + head * stride_head``; a contiguous cache is a
pool whose blocks stand in order. Bytes moved: 2 T d per KV head and element size, read once; the splits' states are
S (d + 1) float32 per query head, written and read once.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.attend_run import attend_run, run_of, store_state
from fastimpl.checks import FLOATS, INDICES, ArgumentError, Sizes, scale_of, whole
from fastimpl.device import LN2, LOG2E, dependent_launch, finite_or_zero, follow, multiprocessors, padded
from fastimpl.paging import Cache, contiguous_cache, paged_cache


@triton.jit(do_not_specialize=["length_of_all", "kept", "heads", "splits"])
def split_attention_kernel(
    queries, keys, values, block_table, tokens, pages, outputs, lses,
    stride_qn, stride_qh, stride_qg, stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh,
    stride_table, stride_pn, stride_ph, length_of_all, kept, heads, splits, scale_log2,
    G: tl.constexpr, G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, PAGE: tl.constexpr,
    BLOCK: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, SPARSE: tl.constexpr, STAGES: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Normalised output [G, d] and natural log-mass of one run of tokens; an empty run gives 0 and -inf."""
    follow(DEPENDENT)
    split, row = tl.program_id(0), tl.program_id(1)
    n, head = (row // heads).to(tl.int64), (row % heads).to(tl.int64)
    group, channel = tl.arange(0, G_PAD), tl.arange(0, D_PAD)
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    count = length
    if SPARSE:
        count = kept * PAGE
    start, stop = run_of(split, splits, count, BLOCK)
    query = tl.load(
        queries + n * stride_qn + head * stride_qh + group[:, None] * stride_qg + channel[None, :],
        mask=(group < G)[:, None] & (channel < D)[None, :], other=0.0,
    )  # fmt: skip
    largest, total, state = attend_run(
        query, keys, values, block_table + n * stride_table, pages + n * stride_pn + head * stride_ph, start, stop,
        length, head, stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, scale_log2,
        G_PAD, D, D_PAD, PAGE, BLOCK, SPARSE, TABLE, STAGES,
    )  # fmt: skip
    store_state(outputs, lses, (row.to(tl.int64) * splits + split) * G, largest, total, state, G, G_PAD, D, D_PAD)


@triton.jit(do_not_specialize=["splits"])
def merge_kernel(
    outputs, lses, output, lse,
    stride_or, stride_os, stride_og, stride_lr, stride_ls, stride_lg, splits,
    G: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """One query head's state out of its splits' states; splits of log-mass -inf are not read."""
    follow(DEPENDENT)
    program = tl.program_id(0)
    row, group = (program // G).to(tl.int64), (program % G).to(tl.int64)
    channel, lane = tl.arange(0, D_PAD), tl.arange(0, BLOCK)
    largest = tl.full([1], float("-inf"), tl.float32)
    total = tl.zeros([1], tl.float32)
    state = tl.zeros([D_PAD], tl.float32)
    for first in range(0, splits, BLOCK):
        split = first + lane
        mass = tl.load(lses + row * stride_lr + split * stride_ls + group * stride_lg,
                       mask=split < splits, other=float("-inf")) * LOG2E  # fmt: skip
        live = mass > float("-inf")
        part = tl.load(
            outputs + row * stride_or + group * stride_og + (split * stride_os)[:, None] + channel[None, :],
            mask=live[:, None] & (channel < D)[None, :], other=0.0,
        )  # fmt: skip
        higher = tl.maximum(largest, tl.max(mass, 0))
        shift = finite_or_zero(higher)
        weights = tl.exp2(mass - shift)
        fade = tl.exp2(largest - shift)
        total = total * fade + tl.sum(weights, 0)
        state = state * fade + tl.sum(part * weights[:, None], 0)
        largest = higher
    empty = total == 0.0
    at = row * G + group
    mean = tl.div_rn(state, tl.broadcast_to(tl.where(empty, 1.0, total), [D_PAD]))  # exact where one split holds all
    tl.store(output + at * D + channel, mean.to(output.dtype.element_ty), mask=channel < D)
    mass = (largest + tl.log2(tl.where(empty, 1.0, total))) * LN2
    tl.store(lse + at + tl.arange(0, 1), tl.where(empty, float("-inf"), mass))


def default_splits(tokens: int, rows: int, device: torch.device, block: int, programs: int = 2) -> int:
    """How many runs the tokens are cut into: ``programs`` per multiprocessor, at least a block per run."""
    wanted = programs * multiprocessors(device) // max(rows, 1)
    return max(1, min(wanted, -(-tokens // block), 256))


class SplitAttention:
    """One attention of fixed shapes with its buffers: `run` allocates nothing, so it can be captured in a graph.

    Args:
        queries: [N, H, G, d]. cache: where keys and values lie.
        pages: [N, H, K] logical pages, -1 padded, or None for all tokens.
        scale: factor on the logits.
        splits: runs that the tokens are cut into; None chooses by `default_splits`.
    """

    def __init__(
        self, queries: torch.Tensor, cache: Cache, pages: torch.Tensor | None, scale: float, splits: int | None = None
    ) -> None:
        N, H, G, d = queries.shape
        rows, device = N * H, queries.device
        self.block = 32 if queries.dtype == torch.float32 or d > 128 else 64
        most = cache.longest if pages is None else pages.shape[2] * cache.page_size
        # few tokens are waited for, not read: more, shorter runs
        self.splits = splits or default_splits(most, rows, device, self.block, 2 if pages is None else 4)
        self.output = torch.empty((N, H, G, d), dtype=queries.dtype, device=device)
        self.lse = torch.empty((N, H, G), dtype=torch.float32, device=device)
        self.parts, self.masses = self.output, self.lse
        if self.splits > 1:
            self.parts = torch.empty((rows, self.splits, G, d), dtype=torch.float32, device=device)
            self.masses = torch.empty((rows, self.splits, G), dtype=torch.float32, device=device)
        self.queries, self.cache, self.pages, self.scale = queries, cache, pages, scale

    def run(self) -> dict[str, torch.Tensor]:
        """Launch: one split kernel and, for more than one split, one merge."""
        queries, cache, pages = self.queries, self.cache, self.pages
        N, H, G, d = queries.shape
        if N * H * G == 0:
            return {"output": self.output, "lse": self.lse}
        (table, stride_table), (tokens, length) = cache.table, cache.lengths
        # two stages more for each look-up that stands before a read, or Triton keeps one block in flight
        deep = 3 + 2 * (int(pages is not None) + cache.switches["TABLE"])
        split_attention_kernel[(self.splits, N * H)](
            queries, cache.keys, cache.values, table, tokens, queries if pages is None else pages,
            self.parts, self.masses, *queries.stride()[:3], *cache.key_strides, *cache.value_strides, stride_table,
            *((0, 0) if pages is None else pages.stride()[:2]), length, 0 if pages is None else pages.shape[2], H,
            self.splits, self.scale * LOG2E.value,
            G=G, G_PAD=padded(G), D=d, D_PAD=padded(d), PAGE=cache.page_size, BLOCK=self.block,
            SPARSE=pages is not None, STAGES=deep if queries.element_size() == 2 and d <= 128 else 2, num_warps=4,
            **cache.switches, **dependent_launch(queries.device),
        )  # fmt: skip
        if self.splits > 1:
            merge(self.parts, self.masses, self.output, self.lse)
        return {"output": self.output, "lse": self.lse}


def merge(parts: torch.Tensor, masses: torch.Tensor, output: torch.Tensor, lse: torch.Tensor) -> None:
    """Merge states parts [R, S, G, d] and masses [R, S, G] (any strides) into output and lse of R * G heads."""
    rows, splits, G, d = parts.shape
    if rows * G == 0:
        return
    merge_kernel[(rows * G,)](
        parts, masses, output, lse, *parts.stride()[:3], *masses.stride(), splits,
        G=G, D=d, D_PAD=padded(d), BLOCK=min(padded(splits, 1), 32), num_warps=4,
        **dependent_launch(parts.device),
    )  # fmt: skip


def attention(
    *, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None, splits: int | None = None
) -> dict[str, torch.Tensor]:
    """Dense attention: queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], natural lse [H,G] (Locks Sec. 2).

    T = 0 gives 0 and -inf. Raises ArgumentError for a dtype, device, shape or split count.
    """
    sizes = Sizes()
    queries, keys, values = _one_sequence(sizes, queries, keys, values)
    return _first(SplitAttention(queries[None], contiguous_cache(keys, values, 16), None,
                                 scale_of(softmax_scale, sizes["d"]), _splits(splits)).run())  # fmt: skip


def sparse_attention(
    *, queries: Any, keys: Any, values: Any, pages: Any, page_size: int, softmax_scale: float | None = None,
    splits: int | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Attention over pages [H, K], any order: the last page stops at T; K = 0 gives 0 and -inf (Locks Sec. 2).

    Pages beyond the last are not read. Raises ArgumentError as `attention` does.
    """
    sizes = Sizes()
    queries, keys, values = _one_sequence(sizes, queries, keys, values)
    pages = sizes.bind("pages", pages, "H K", INDICES)
    cache = contiguous_cache(keys, values, whole("page_size", page_size, 1))
    scale = scale_of(softmax_scale, sizes["d"])
    return _first(SplitAttention(queries[None], cache, pages[None], scale, _splits(splits)).run())


def paged_attention(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, softmax_scale: float | None = None,
    splits: int | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """Dense attention of N sequences [N,H,G,d] through a block table [N,Pmax] over pools [M,B,H,d], lengths [N].

    Raises ArgumentError for a dtype, device, shape, length, or a used block id out of range.
    """
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "N H G d", FLOATS)
    cache = paged_cache(sizes, queries.dtype, key_pool, value_pool, block_table, tokens)
    return SplitAttention(queries, cache, None, scale_of(softmax_scale, sizes["d"]), _splits(splits)).run()


def paged_sparse_attention(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, pages: Any,
    softmax_scale: float | None = None, splits: int | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """`paged_attention` over logical pages [N,H,K] of each sequence; -1 pads a row. Other pages are never read."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "N H G d", FLOATS)
    cache = paged_cache(sizes, queries.dtype, key_pool, value_pool, block_table, tokens)
    pages = sizes.bind("pages", pages, "N H K", INDICES)
    return SplitAttention(queries, cache, pages, scale_of(softmax_scale, sizes["d"]), _splits(splits)).run()


def merge_attention(*, outputs: Any, lses: Any) -> dict[str, torch.Tensor]:
    """Merge split states: outputs [S,H,G,d], natural log-masses [S,H,G] -> output [H,G,d], lse [H,G].

    -inf marks an empty split, whose output is not read; all empty gives 0 and -inf. Raises ArgumentError for S = 0.
    """
    sizes = Sizes()
    outputs = sizes.bind("outputs", outputs, "S H G d", FLOATS)
    lses = sizes.bind("lses", lses, "S H G", (torch.float32,))
    if sizes["S"] == 0:
        raise ArgumentError("outputs: expected at least one split, got S=0")
    output = torch.empty(outputs.shape[1:], dtype=outputs.dtype, device=outputs.device)
    lse = torch.empty(lses.shape[1:], dtype=torch.float32, device=lses.device)
    merge(outputs.movedim(0, 1), lses.movedim(0, 1), output, lse)
    return {"output": output, "lse": lse}


def _one_sequence(sizes: Sizes, queries: Any, keys: Any, values: Any) -> tuple[torch.Tensor, ...]:
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    keys = sizes.bind("keys", keys, "H T d", (queries.dtype,))
    return queries, keys, sizes.bind("values", values, "H T d", (queries.dtype,))


def _first(result: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: value[0] for name, value in result.items()}


def _splits(splits: int | None) -> int | None:
    return None if splits is None else whole("splits", splits, 1, 4096)
