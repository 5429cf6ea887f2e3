"""The cache that readers are served from: planes as 32-bit words, and the encoder that writes them.

Mirrors `refimpl.readkv.reader.encode_cache` and `refimpl.readkv.planes.append_*_planes`, in another layout:

    key planes   [rows, W, d, tiles * 8]       a tile is 256 tokens; token 256 i + 8 k + g is bit k of word 8 i + g:
                                               one sector of 32 bytes holds a tile of one channel's plane
    value planes [rows, ceil(W/2), T, d/16]    a word holds 16 channels, plane 2p in its low half, 2p + 1 in its high
                                               half: one sector holds a token's pair of planes at d = 128

A row is one KV head of one sequence; rows hold ``capacity`` tokens, lengths lie on the device. The kernels that write
them, their grids and bytes: `encoder.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fastimpl.device import INTERPRETED, multiprocessors, padded
from fastimpl.readkv.encode_ptx import THREADS
from fastimpl.readkv.encoder import append_kernel, encode_keys_kernel, encode_values_kernel, lengthen_kernel
from fastimpl.readkv.tree import tables

TILE = 256
"""Tokens of a sector of key planes."""

BLOCKS, REGISTERS = 2, 128
"""Programs of the encoder per multiprocessor, and their registers per thread."""


@dataclass(frozen=True)
class PlaneCache:
    """Planes and public state of ``rows`` = N * H KV heads.

    ``key_planes`` and ``value_planes`` int32 as the module draws them; means and scales [H, d]; signs [d]; float32.
    ``lengths`` [N] int32 on the device, ``capacity`` tokens per row, ``longest`` an upper bound of the lengths.
    """

    key_planes: torch.Tensor
    value_planes: torch.Tensor
    key_mean: torch.Tensor
    key_scale: torch.Tensor
    value_mean: torch.Tensor
    value_scale: torch.Tensor
    key_signs: torch.Tensor
    value_signs: torch.Tensor
    lengths: torch.Tensor
    stored_depth: int
    longest: int

    @property
    def heads(self) -> int:
        """H."""
        return self.key_scale.shape[0]

    @property
    def channels(self) -> int:
        """The head size d."""
        return self.key_scale.shape[1]

    @property
    def rows(self) -> int:
        """N * H."""
        return self.key_planes.shape[0]

    @property
    def capacity(self) -> int:
        """Tokens that a row has room for."""
        return self.value_planes.shape[2]

    @property
    def retained_bytes(self) -> int:
        """Bytes of all planes, whether filled or not."""
        return 4 * (self.key_planes.numel() + self.value_planes.numel())


def empty_cache(N: int, capacity: int, state: dict[str, torch.Tensor], stored_depth: int = 8) -> PlaneCache:
    """A cache of N empty sequences with room for ``capacity`` tokens each; ``state``: means, scales and signs."""
    H, d = state["key_scale"].shape
    device, tiles = state["key_scale"].device, -(-max(capacity, 1) // TILE)
    keys = torch.zeros((N * H, stored_depth, d, tiles * 8), dtype=torch.int32, device=device)
    values = torch.zeros((N * H, -(-stored_depth // 2), tiles * TILE, -(-d // 16)), dtype=torch.int32, device=device)
    lengths = torch.zeros(N, dtype=torch.int32, device=device)
    return PlaneCache(keys, values, **state, lengths=lengths, stored_depth=stored_depth, longest=tiles * TILE)


def by_lanes(x: torch.Tensor) -> bool:
    """Whether the kernels' PTX branch runs here and takes these keys or values [.., d]."""
    fits = x.dtype in (torch.bfloat16, torch.float16) and x.shape[-1] == 128
    even = x.data_ptr() % 16 == 0 and x.stride(-1) == 1 and all(stride % 8 == 0 for stride in x.stride()[:-1])
    here = x.device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return fits and even and here and torch.cuda.get_device_capability(x.device)[0] >= 8


def programs_of(turns: int, rows: int, device: torch.device) -> int:
    """Programs per row that share ``turns`` evenly, BLOCKS to a multiprocessor at most."""
    most = max(1, BLOCKS * multiprocessors(device) // rows)
    return -(-turns // -(-turns // most))


def encode(cache: PlaneCache, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write the planes of keys and values [N, H, T, d] (or of their uint8 codes), tokens up to the cache's lengths."""
    _, H, T, d = keys.shape
    if keys.numel() == 0:
        return
    shape = {"CODES": keys.dtype == torch.uint8, "W": cache.stored_depth, "D": d, "D_PAD": padded(d)}
    cells, root, tokens = tables(keys.device).cells, 1.0 / math.sqrt(d), TILE if INTERPRETED.value else 64
    lanes, tiles = by_lanes(keys), -(-T // TILE)
    encode_keys_kernel[(programs_of(tiles, cache.rows, keys.device) if lanes else tiles, cache.rows)](
        keys, cache.key_planes, cache.key_mean, cache.key_scale, cache.key_signs, cache.lengths, cells,
        *keys.stride()[:3], H, root, cache.key_planes.shape[3], T, PTX=lanes, **launch_of(lanes, 4), **shape,
    )  # fmt: skip
    lanes, runs = by_lanes(values), -(-T // 128)
    grid = programs_of(runs, cache.rows, values.device) if lanes else -(-T // tokens)
    encode_values_kernel[(grid, cache.rows)](
        values, cache.value_planes, cache.value_mean, cache.value_scale, cache.value_signs, cache.lengths, cells,
        *values.stride()[:3], H, root, cache.capacity, T, PTX=lanes, TOKENS=tokens, **launch_of(lanes, 8), **shape,
    )  # fmt: skip


def launch_of(lanes: bool, warps: int) -> dict[str, int]:
    """Launch options of the encoder's kernels; ``warps`` where they have no PTX."""
    return {"num_warps": THREADS // 32, "maxnreg": REGISTERS} if lanes else {"num_warps": warps}


def append(cache: PlaneCache, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Write one token, keys and values [N, H, d], to every sequence and make its length one more."""
    d, lanes = cache.channels, by_lanes(keys) and by_lanes(values)
    append_kernel[(cache.rows, 3 if lanes else 2)](
        keys.contiguous(), values.contiguous(), cache.key_planes, cache.value_planes, cache.key_mean, cache.key_scale,
        cache.value_mean, cache.value_scale, cache.key_signs, cache.value_signs, cache.lengths,
        tables(keys.device).cells, cache.heads, 1.0 / math.sqrt(d), cache.capacity, cache.key_planes.shape[3],
        PTX=lanes, W=cache.stored_depth, D=d, D_PAD=padded(d), num_warps=1 if lanes else 4,
    )  # fmt: skip
    count = cache.lengths.numel()
    lengthen_kernel[(-(-count // 128),)](cache.lengths, count, cache.capacity, BLOCK=128, num_warps=1)
