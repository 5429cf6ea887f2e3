"""Monte-Carlo twin of Eq. (4): how far a uniform point of the cube is from the best guess after b bits.

Mirrors `refimpl.readkv.entropy.observe_boxes` for grids: coordinate c is told in 2^bits_c equal cells, so the bits told
are their sum, and the error is the cells' own variance. Eq. (4) bounds it from below for any observation of as many
bits (`refimpl.readkv.entropy.cube_mmse_bound`).

    grid (points / BLOCK)   counter-based uniforms -> point -> centre of its cell -> squared distance -> one sum per program

Bytes: one float32 per program written; nothing is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, whole
from fastimpl.device import INTERPRETED

BLOCK = 1 << 14 if INTERPRETED.value else 1024


class Estimate(NamedTuple):
    """Squared error summed over coordinates, and its standard error over the programs' means."""

    mmse: float
    error: float


@triton.jit
def cube_kernel(cells, sums, points, seed, N: tl.constexpr, BLOCK: tl.constexpr):
    """Sum over BLOCK points of the squared distance to the centres of their cells; coordinate c has cells[c] of them."""
    point = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for c in range(N):
        count = tl.load(cells + c)
        z = 2.0 * tl.rand(seed, point * N + c) - 1.0
        cell = tl.minimum(tl.floor((z + 1.0) * 0.5 * count), count - 1.0)
        away = z - ((cell + 0.5) * 2.0 / count - 1.0)
        total += away * away
    tl.store(sums + tl.program_id(0), tl.sum(tl.where(point < points, total, 0.0), 0))


def cube_error(bits: Sequence[int], points: int, seed: int, device: torch.device) -> Estimate:
    """Error of the cube [-1, 1]^n when coordinate c is told to ``bits[c]`` bits, estimated from ``points`` points.

    Raises ArgumentError for no coordinates, bits outside 0..12 or fewer than two programs' points.
    """
    if len(bits) == 0:
        raise ArgumentError("bits: expected at least one coordinate, got none")
    counts = [2.0 ** whole("bits", b, 0, 12) for b in bits]
    points = -(-whole("points", points, 2 * BLOCK) // BLOCK) * BLOCK
    cells = torch.tensor(counts, dtype=torch.float32, device=device)
    sums = torch.empty(points // BLOCK, dtype=torch.float32, device=device)
    cube_kernel[(points // BLOCK,)](cells, sums, points, seed, N=len(counts), BLOCK=BLOCK)
    means = sums.double() / BLOCK
    return Estimate(float(means.mean()), float(means.std() / len(means) ** 0.5))
