"""Tables of the fast reader's value pass, made on the host.

Mirrors the prefix centroids of `refimpl.readkv.tree.lloyd_tree`: depths 1 to 3 as slots (see `slots.py`), depth 4 two
tokens at a time, depths 5 to 8 by whole codes.
"""

from __future__ import annotations

import functools

import torch

from fastimpl.readkv.slots import multilinear, prefix_tables
from fastimpl.readkv.tree import LEVELS, lloyd_tree

SLOTS = ((0,), (1,), (2,), (0, 1, 2))
"""Planes of a slot; depth 1 has the first one, depth 2 two, depth 3 all four."""


@functools.cache
def slot_factors(device: torch.device) -> torch.Tensor:
    """Coefficients [9, 8] of the slots of depths 1 to 3, each twice in a word as float16, int32; 0 elsewhere."""
    _, centroids, _ = lloyd_tree(LEVELS)
    found = torch.zeros(9, 8, dtype=torch.float32)
    for depth in range(1, 4):
        for i, planes in enumerate(SLOTS):
            if max(planes) < depth:
                found[depth, i] = multilinear(centroids[depth], planes)
    pairs = found.to(torch.float16)[..., None].expand(-1, -1, 2).contiguous()
    return pairs.view(torch.int32)[..., 0].to(device).contiguous()


def pair_table(device: torch.device) -> torch.Tensor:
    """Centroids of depth 4 [256, 2] float16: of the code in the index's low four bits, of that above; bit p is plane p."""
    _, centroids, _ = lloyd_tree(LEVELS)
    code = torch.arange(16)
    prefix = sum(((code >> plane) & 1) << (3 - plane) for plane in range(4))
    value = centroids[4][prefix].to(torch.float16)
    index = torch.arange(256)
    return torch.stack([value[index % 16], value[index // 16]], 1).to(device)


@functools.cache
def value_tables(device: torch.device) -> torch.Tensor:
    """`slots.prefix_tables`, then `pair_table`, [1536] float16."""
    return torch.cat([prefix_tables(device).flatten(), pair_table(device).flatten()]).contiguous()
