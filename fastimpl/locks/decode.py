"""One decode step of Locks as a chain of fixed shapes: score, combine, select, attend, merge.

Mirrors `refimpl.locks.decode.locks_decode` and `locks_decode_paged`.

    records or summaries --score--> scores [N,H,G,P] --shares--> [N,H,P] --select--> pages [N,H,k] --attend--> output
    open page's keys ----exact----^

Lengths, block tables and summaries are read on the device, so a chain that was captured once in a CUDA graph follows
sequences as they grow, up to the table's width. Bytes per KV head: the record of every page, and 2 k B d elements of
keys and values; scores and shares are small beside them.
"""

from __future__ import annotations

from typing import Any

import torch

from fastimpl.attention import SplitAttention
from fastimpl.checks import FLOATS, ArgumentError, Sizes, kept_pages, scale_of, whole
from fastimpl.locks.attend import MOST_ITEMS, MOST_PAGES, SelectedAttention
from fastimpl.locks.combine import PageShares
from fastimpl.locks.quantize import dequantize_lines, quantize_lines
from fastimpl.locks.record import Layout
from fastimpl.locks.score import score_exactly, score_summaries
from fastimpl.locks.score_records import RecordScores
from fastimpl.locks.select import PageSelection
from fastimpl.locks.summary import build_records, build_summaries
from fastimpl.paging import Cache, contiguous_cache, paged_cache

BASIS_BITS = (2, 4, 8, "fp", None)

DENSE_BELOW = 131072
"""``mode="auto"`` attends densely below this many tokens times KV heads: there the chain's launches cost more than the
reads it saves. On one H200 at four KV heads 8K tokens lose and 32K win (docs/gpu.md)."""


class LocksChain:
    """Buffers and launches of one decode step; `run` allocates nothing and can be captured in a CUDA graph.

    Args:
        queries: [N, H, G, d], rewritten between runs. cache: keys and values by block.
        summary: records [H, blocks, bytes] with their layout, or a dict of float32 summaries by block.
        kept: pages per KV head. splits: runs that the kept tokens are cut into; None chooses.
    """

    def __init__(
        self, queries: torch.Tensor, cache: Cache, summary: torch.Tensor | dict[str, torch.Tensor],
        layout: Layout | None, kept: int, scale: float, splits: int | None = None,
    ) -> None:  # fmt: skip
        N, H, G, _ = queries.shape
        tokens = cache.tokens if isinstance(cache.tokens, torch.Tensor) else None
        self.queries, self.cache, self.summary, self.layout, self.scale = queries, cache, summary, layout, scale
        if layout is not None:
            self.scoring = RecordScores(queries, summary, layout, cache, scale)
            masses = (self.scoring.largests, self.scoring.totals)
            self.selection = PageSelection(
                self.scoring.scores, tokens, cache.page_size, kept, masses, MOST_PAGES, cache.block_table
            )
        else:
            self.scores = torch.empty((N, H, G, cache.pages), dtype=torch.float32, device=queries.device)
            self.shares = PageShares(self.scores, tokens, cache.page_size)
            self.selection = PageSelection(self.shares.shares, tokens, cache.page_size, kept)
        self.fused = layout is not None and self.selection.last_pass[-1] <= MOST_ITEMS
        if self.fused:
            self.attention: SplitAttention | SelectedAttention = SelectedAttention(
                queries, cache, self.selection, scale
            )
        else:
            self.attention = SplitAttention(queries, cache, self.selection.pages, scale, splits)

    def run(self) -> dict[str, torch.Tensor]:
        """Launch the chain: ``output`` [N, H, G, d] and ``pages`` [N, H, kept] in the chain's own buffers."""
        if self.layout is not None:
            self.scoring.run()
        else:
            score_summaries(self.queries, self.summary, self.cache, self.scale, self.scores)
            score_exactly(self.queries, self.cache, self.scale, self.scores, open_only=True)
            self.shares.run()
        if self.fused:
            self.selection.run_first()
        else:
            self.selection.run()
        return {"output": self.attention.run()["output"], "pages": self.selection.pages}


def _settings(rank: Any, basis_bits: Any, cache: Cache, budget_tokens: Any, scales: str, mode: str) -> tuple[int, int]:
    """The checked rank and the number of kept pages."""
    known = any(type(bits) is type(basis_bits) and bits == basis_bits for bits in BASIS_BITS)
    if not known:
        raise ArgumentError(f"basis_bits: expected one of 2, 4, 8, 'fp', None, got {basis_bits!r}")
    if scales not in ("float32", "float16"):
        raise ArgumentError(f"scales: expected 'float32' or 'float16', got {scales!r}")
    if mode not in ("locks", "auto"):
        raise ArgumentError(f"mode: expected 'locks' or 'auto', got {mode!r}")
    rank = whole("rank", rank, 1, min(cache.page_size, cache.channels))
    return rank, kept_pages(budget_tokens, cache.page_size, cache.pages)


def _decode(
    queries: torch.Tensor, cache: Cache, rank: int, basis_bits: Any, kept: int, scale: float, scales: str
) -> dict[str, torch.Tensor]:
    """Build every summary, then run one step."""
    if basis_bits in (2, 4, 8):
        layout = Layout(cache.page_size, cache.channels, rank, basis_bits, scales)
        summary: Any = layout.empty(cache.heads, cache.blocks, queries.device)
        build_records(cache, layout, summary)
    else:
        layout, summary = None, build_summaries(cache, rank)
        if basis_bits == "fp":
            summary |= _coded(summary)
    return LocksChain(queries, cache, summary, layout, kept, scale).run()


def _coded(summary: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Centroid and coefficients through int8 and back (AMB-30)."""
    return {name: dequantize_lines(*quantize_lines(summary[name], -1, 8), -1) for name in ("centroid", "coefficients")}


def locks_decode(
    *, queries: Any, keys: Any, values: Any, rank: int, basis_bits: Any, budget_tokens: int, page_size: int,
    softmax_scale: float | None = None, scales: str = "float32", mode: str = "locks",
) -> dict[str, torch.Tensor]:  # fmt: skip
    """One decode step: queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], pages [H,min(k,P)] (Locks Sec. 4).

    Builds every summary first. ``basis_bits`` 2, 4, 8, "fp" or None; ``scales`` of the record, "float32" or "float16";
    ``mode`` "auto" attends densely, pages empty, where selection cannot win. Raises ArgumentError.
    """
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    keys = sizes.bind("keys", keys, "H T d", (queries.dtype,))
    values = sizes.bind("values", values, "H T d", (queries.dtype,))
    cache = contiguous_cache(keys, values, whole("page_size", page_size, 1))
    rank, kept = _settings(rank, basis_bits, cache, budget_tokens, scales, mode)
    scale = scale_of(softmax_scale, sizes["d"])
    step = _step(queries[None], cache, rank, basis_bits, kept, scale, scales, mode)
    return {name: value[0] for name, value in step.items()}


def _step(
    queries: torch.Tensor, cache: Cache, rank: int, basis_bits: Any, kept: int, scale: float, scales: str, mode: str
) -> dict[str, torch.Tensor]:
    N, H = queries.shape[:2]
    dense = mode == "auto" and N * H * cache.longest < DENSE_BELOW
    if dense or kept == 0:
        none = torch.empty((N, H, 0), dtype=torch.int32, device=queries.device)
        return {"output": SplitAttention(queries, cache, None, scale).run()["output"], "pages": none}
    return _decode(queries, cache, rank, basis_bits, kept, scale, scales)


def locks_decode_paged(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, rank: int, basis_bits: Any,
    budget_tokens: int, softmax_scale: float | None = None, scales: str = "float32", mode: str = "locks",
) -> dict[str, torch.Tensor]:  # fmt: skip
    """`locks_decode` of N sequences [N,H,G,d] through a block table [N,Pmax] over pools [M,B,H,d], lengths [N].

    Returns output [N,H,G,d] and logical pages [N,H,K], -1 at the end of a shorter row. Raises ArgumentError.
    """
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "N H G d", FLOATS)
    cache = paged_cache(sizes, queries.dtype, key_pool, value_pool, block_table, tokens)
    rank, kept = _settings(rank, basis_bits, cache, budget_tokens, scales, mode)
    scale = scale_of(softmax_scale, sizes["d"])
    return _step(queries, cache, rank, basis_bits, kept, scale, scales, mode)
