"""Paged stages and the ReadKV reader as an engine runs them: captured once in a CUDA graph, then replayed in place.

Itself a port. A call in buffers that an earlier call had, with the same settings, replays that call's graph: queries,
pools, block table and lengths are what the buffers hold now. Only the longest length, which sizes the grid, is part of
the key, beside addresses, shapes and settings.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fastimpl.attention import SplitAttention
from fastimpl.checks import FLOATS, ArgumentError, Sizes, kept_pages, scale_of, whole
from fastimpl.locks import decode
from fastimpl.locks.record import Layout
from fastimpl.locks.summary import build_records
from fastimpl.paging import Cache, paged_cache
from fastimpl.readkv.chain import FLEXIBLE
from fastimpl.readkv.reader import flexible_lefts, one_sequence, step_of

FRAMEWORK = "torch"
DTYPES = ("bfloat16", "float16", "float32")
ACCUMULATE = "float32"
TIES = "lowest_index"

__all__ = ["locks_decode_paged", "paged_attention", "readkv_attention"]

Results = dict[str, torch.Tensor]


class Captured:
    """A step captured in a CUDA graph, and the buffers that it writes."""

    def __init__(self, step: Callable[[], Results]) -> None:
        self.step = step  # its workspaces live as long as the graph
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            step()  # compiles what is not compiled yet
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.results = step()

    def replay(self) -> Results:
        """Run again; the results are copies."""
        self.graph.replay()
        return {name: value.clone() for name, value in self.results.items()}


_captured: dict[tuple[Any, ...], Captured] = {}


def _replay(
    tensors: list[torch.Tensor], settings: tuple[Any, ...], make: Callable[[], Callable[[], Results]]
) -> Results:
    """Replay the step of these buffers and settings; ``make`` prepares it where there is none."""
    key = (*((x.data_ptr(), tuple(x.shape), x.stride(), x.dtype) for x in tensors), *settings)
    if key not in _captured:
        _captured[key] = Captured(make())
    return _captured[key].replay()


def _bound(queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> tuple[Sizes, Any, Cache]:
    """The checked arguments: sizes, queries, cache. Raises ArgumentError, also for tensors that are not on a GPU."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "N H G d", FLOATS)
    if queries.device.type != "cuda":
        raise ArgumentError(f"queries: expected a CUDA device, got {queries.device}")
    return sizes, queries, paged_cache(sizes, queries.dtype, key_pool, value_pool, block_table, tokens)


def _buffers(queries: torch.Tensor, cache: Cache) -> list[torch.Tensor]:
    """The tensors whose content a replay reads."""
    table, tokens = cache.block_table, cache.tokens
    assert table is not None
    assert isinstance(tokens, torch.Tensor)
    return [queries, cache.keys, cache.values, table, tokens]


def paged_attention(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, softmax_scale: float | None = None,
    splits: int | None = None,
) -> Results:  # fmt: skip
    """`fastimpl.attention.paged_attention`, captured and replayed."""
    sizes, queries, cache = _bound(queries, key_pool, value_pool, block_table, tokens)
    scale = scale_of(softmax_scale, sizes["d"])
    runs = None if splits is None else whole("splits", splits, 1, 4096)
    settings = ("attention", scale, runs, cache.longest)
    return _replay(_buffers(queries, cache), settings, lambda: SplitAttention(queries, cache, None, scale, runs).run)


def locks_decode_paged(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, rank: int, basis_bits: Any,
    budget_tokens: int, softmax_scale: float | None = None, scales: str = "float32",
) -> Results:  # fmt: skip
    """`fastimpl.locks.decode.locks_decode_paged`, building included, captured and replayed; integer bases only."""
    if isinstance(basis_bits, bool) or basis_bits not in (2, 4, 8):
        raise NotImplementedError("captured steps keep packed records: basis_bits 2, 4 or 8")
    sizes, queries, cache = _bound(queries, key_pool, value_pool, block_table, tokens)
    scale = scale_of(softmax_scale, sizes["d"])
    layout = Layout(cache.page_size, cache.channels, whole("rank", rank, 1, cache.page_size), basis_bits, scales)
    kept = kept_pages(budget_tokens, cache.page_size, cache.pages)

    if kept == 0:
        return decode.locks_decode_paged(
            queries=queries, key_pool=key_pool, value_pool=value_pool, block_table=block_table, tokens=tokens,
            rank=rank, basis_bits=basis_bits, budget_tokens=budget_tokens,
        )  # fmt: skip

    def make() -> Callable[[], Results]:
        records = layout.empty(cache.heads, cache.blocks, queries.device)
        chain = decode.LocksChain(queries, cache, records, layout, kept, scale)

        def step() -> Results:
            build_records(cache, layout, records)
            return chain.run()

        return step

    return _replay(_buffers(queries, cache), ("locks", layout, scale, kept, cache.longest), make)


def readkv_attention(
    *, queries: Any, key_codes: Any, value_codes: Any, key_mean: Any, key_scale: Any, value_mean: Any,
    value_scale: Any, key_signs: Any, value_signs: Any, key_budget: int, value_budget: int, stored_depth: int = 8,
    softmax_scale: float | None = None,
) -> Results:  # fmt: skip
    """`fastimpl.readkv.reader.readkv_attention`, packing of the planes included, captured and replayed."""
    arrays = {"key_codes": key_codes, "value_codes": value_codes, "key_mean": key_mean, "key_scale": key_scale,
              "value_mean": value_mean, "value_scale": value_scale, "key_signs": key_signs,
              "value_signs": value_signs}  # fmt: skip
    queries, cache, codes = one_sequence(queries, arrays, stored_depth)
    if queries.device.type != "cuda":
        raise ArgumentError(f"queries: expected a CUDA device, got {queries.device}")
    lefts = flexible_lefts(cache, codes[0].shape[2], key_budget, value_budget)
    scale = scale_of(softmax_scale, cache.channels)
    settings = ("readkv", scale, lefts[0][0], lefts[1][0], cache.stored_depth)
    state = [cache.key_mean, cache.key_scale, cache.value_mean, cache.value_scale, cache.key_signs, cache.value_signs]
    return _replay([queries, *codes, *state], settings, lambda: step_of(queries, cache, codes, FLEXIBLE, lefts, scale))
