"""Where a sequence's keys and values lie: one description for contiguous caches and for blocks of a shared pool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fastimpl.checks import FLOATS, INDICES, Sizes, check_table, whole


@dataclass(frozen=True)
class Cache:
    """Keys and values of N sequences, H KV heads, pages of B tokens.

    Token t of sequence n lies at ``block * strides[0] + (t % B) * strides[1] + head * strides[2]``, its block being
    ``block_table[n, t // B]``, or ``t // B`` itself in a contiguous cache of one sequence.
    """

    keys: torch.Tensor
    values: torch.Tensor
    key_strides: tuple[int, int, int]
    value_strides: tuple[int, int, int]
    page_size: int
    heads: int
    channels: int
    blocks: int
    """Blocks in the pool; in a contiguous cache the pages, the open one included."""
    tokens: torch.Tensor | int
    """Lengths [N] on the device, or the one length."""
    block_table: torch.Tensor | None
    longest: int
    """An upper bound of every length."""

    @property
    def sequences(self) -> int:
        """N."""
        return self.tokens.shape[0] if isinstance(self.tokens, torch.Tensor) else 1

    @property
    def pages(self) -> int:
        """Pages of the longest sequence, its open page included."""
        return -(-self.longest // self.page_size)

    @property
    def table(self) -> tuple[torch.Tensor, int]:
        """The block table and its row stride; any tensor and 0 where there is none."""
        return (self.keys, 0) if self.block_table is None else (self.block_table, self.block_table.stride(0))

    @property
    def lengths(self) -> tuple[torch.Tensor, int]:
        """The device's lengths and 0, or any tensor and the one length."""
        return (self.tokens, 0) if isinstance(self.tokens, torch.Tensor) else (self.keys, self.tokens)

    @property
    def switches(self) -> dict[str, int]:
        """The kernels' compile-time switches."""
        return {"TABLE": int(self.block_table is not None), "LENGTHS": isinstance(self.tokens, torch.Tensor)}


def contiguous_cache(keys: torch.Tensor, values: torch.Tensor, page_size: int) -> Cache:
    """Keys and values [H, T, d] of one sequence, any strides but a contiguous last axis."""
    heads, tokens, channels = keys.shape
    strides = [(page_size * x.stride(1), x.stride(1), x.stride(0)) for x in (keys, values)]
    pages = -(-tokens // page_size)
    return Cache(keys, values, *strides, page_size, heads, channels, pages, tokens, None, tokens)


def paged_cache(sizes: Sizes, dtype: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Cache:
    """Pools [M, B, H, d] of any strides, a block table [N, Pmax] and lengths [N], all checked.

    Raises ArgumentError for a dtype, device or shape, a negative length, or a used block id out of range.
    """
    keys = sizes.bind("key_pool", key_pool, "M B H d", FLOATS if dtype is None else (dtype,))
    values = sizes.bind("value_pool", value_pool, "M B H d", (keys.dtype,))
    block_table = sizes.bind("block_table", block_table, "N Pmax", INDICES)
    tokens = sizes.bind("tokens", tokens, "N", INDICES)
    page_size = whole("key_pool's block size", sizes["B"], 1)
    longest = check_table(block_table, tokens, page_size, sizes["M"])
    strides = [(x.stride(0), x.stride(1), x.stride(2)) for x in (keys, values)]
    return Cache(
        keys, values, *strides, page_size, sizes["H"], sizes["d"], sizes["M"], tokens, block_table, longest
    )  # fmt: skip
