"""Lloyd-Max codebooks that are not nested, for N(0, 1) and for a coordinate of the sphere.

Mirrors `refimpl.readkv.codebooks.lloyd_max_codebook`; built on the host in float64, no kernel: levels are means of
their cells, thresholds midpoints of levels, in turn, from cells of equal mass under the density's cube root.
"""

from __future__ import annotations

import functools
import math

import torch

from fastimpl.checks import ArgumentError, whole

LAWS = ("normal", "sphere")
ROUNDS = 400
NODES = 128
NATS = 50.0
"""A cell ends where the density has fallen by this factor's exponential."""


def _points(law: str, d: int, u: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """x, and density times dx/du without its constant, at the coordinate u: x itself, or the angle of x."""
    if law == "normal":
        return u, torch.exp(-u * u / 2.0)
    return math.sqrt(d) * torch.sin(u), torch.cos(u).clamp(min=0.0) ** (d - 2)


def _means(law: str, d: int, edges: torch.Tensor) -> torch.Tensor:
    """Means [n] of the positive cells between edges [n + 1], given as coordinates, by Simpson's rule."""
    low, high = edges[:-1], edges[1:]
    if law == "normal":
        end = torch.sqrt(low * low + 2.0 * NATS)
    else:
        end = torch.acos(torch.cos(low) * math.exp(-NATS / (d - 2)))
    step = (torch.minimum(high, end) - low)[:, None] / NODES
    rule = torch.ones(NODES + 1, dtype=torch.float64)
    rule[1:-1:2], rule[2:-1:2] = 4.0, 2.0
    x, weight = _points(law, d, low[:, None] + step * torch.arange(NODES + 1, dtype=torch.float64))
    return (x * weight * rule).sum(1) / (weight * rule).sum(1)


def _start(law: str, d: int, cells: int) -> torch.Tensor:
    grid = torch.linspace(0.0, 12.0 if law == "normal" else math.pi / 2.0, 4097, dtype=torch.float64)[:-1]
    _, weight = _points(law, d, grid)
    slope = torch.ones_like(grid) if law == "normal" else torch.cos(grid)
    mass = torch.cumsum((weight / slope) ** (1.0 / 3.0) * slope, 0)
    return grid[torch.searchsorted(mass, mass[-1] * torch.arange(1, cells, dtype=torch.float64) / cells)]


@functools.cache
def _codebook(bits: int, law: str, d: int) -> tuple[torch.Tensor, torch.Tensor]:
    end = torch.tensor([math.inf if law == "normal" else math.pi / 2.0], dtype=torch.float64)
    zero, inner = torch.zeros(1, dtype=torch.float64), _start(law, d, 2 ** (bits - 1))
    for _ in range(ROUNDS):
        means = _means(law, d, torch.cat([zero, inner, end]))
        middle = (means[1:] + means[:-1]) / 2.0
        inner = middle if law == "normal" else torch.asin(middle / math.sqrt(d))
    means = _means(law, d, torch.cat([zero, inner, end]))
    middle = (means[1:] + means[:-1]) / 2.0
    levels, thresholds = torch.cat([-means.flip(0), means]), torch.cat([-middle.flip(0), zero, middle])
    return levels.to(torch.float32), thresholds.to(torch.float32)


def lloyd_max_codebook(*, bits: int, law: str, d: int) -> dict[str, torch.Tensor]:
    """Levels [2^bits] and thresholds [2^bits - 1] of least squared error, float32, ascending (ReadKV F.2).

    ``law`` "normal", or "sphere" of dimension d >= 4. Raises ArgumentError for bits outside 1..8, a law or d.
    """
    bits = whole("bits", bits, 1, 8)
    if law not in LAWS:
        raise ArgumentError(f"law: expected 'normal' or 'sphere', got {law!r}")
    d = whole("d", d, 4 if law == "sphere" else 1)
    levels, thresholds = _codebook(bits, law, d if law == "sphere" else 1)
    return {"levels": levels.clone(), "thresholds": thresholds.clone()}
