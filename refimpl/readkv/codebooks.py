"""Non-nested Lloyd-Max codebooks for N(0, 1) and for a coordinate of the unit sphere (ReadKV App. F.2)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
from scipy.linalg import solve_banded

from refimpl.checks import ArgumentError, FloatArray, choice, whole
from refimpl.readkv.laws import Law, Normal, Sphere

LAWS = ("normal", "sphere")


def _starting_edges(law: Law, cells: int) -> FloatArray:
    """Thresholds of ``cells`` positive cells where the cube root of the density has equal mass: nearly optimal."""
    last = law.value(np.array([math.pi / 2.0]))[0] if isinstance(law, Sphere) else math.inf
    grid = np.linspace(0.0, min(12.0, last), 4097)[:-1]  # [4096] in x; beyond 12 the mass is nothing
    x = law.position(grid)
    slope = 1.0 if isinstance(law, Normal) else 1.0 / np.cos(x)  # the sphere's density is of the angle
    mass = np.cumsum(np.cbrt(law.density(x) * slope))
    edges: FloatArray = np.interp(np.arange(1, cells) / cells, mass / mass[-1], grid)
    return law.position(edges)


def _newton_step(law: Law, edges: FloatArray) -> FloatArray:
    """Newton's correction [n - 1] of the inner edges of 0 = e_0 < ... < e_n towards midpoints of neighbouring means."""
    cells = law.cell(edges[:-1], edges[1:])
    inner = edges[1:-1]
    x = law.value(inner)
    residual = x - (cells.mean[:-1] + cells.mean[1:]) / 2.0  # [n - 1]
    # d mean / d edge = density (distance of the edge from the mean) / mass, at either end of a cell
    below = law.density(inner) * (x - cells.mean[:-1]) / cells.mass[:-1]
    above = law.density(inner) * (cells.mean[1:] - x) / cells.mass[1:]
    jacobian = np.zeros((3, len(inner)))
    speed = np.ones(len(inner)) if isinstance(law, Normal) else math.sqrt(law.d) * np.cos(inner)
    jacobian[1] = speed - (below + above) / 2.0
    # an inner cell's mean moves with its other end as well
    jacobian[0, 1:] = -(law.density(inner[1:]) * (x[1:] - cells.mean[1:-1]) / cells.mass[1:-1]) / 2.0
    jacobian[2, :-1] = -(law.density(inner[:-1]) * (cells.mean[1:-1] - x[:-1]) / cells.mass[1:-1]) / 2.0
    correction: FloatArray = solve_banded((1, 1), jacobian, residual)
    return correction


@lru_cache(maxsize=64)
def positive_codebook(law: Law, bits: int) -> tuple[FloatArray, FloatArray]:
    """Levels [2^(bits-1)] and edges [2^(bits-1) + 1] of the positive half of the optimal symmetric codebook.

    Newton's method on "every threshold is the midpoint of its neighbours, every level its cell's mean"; for a
    log-concave law that stationary point is unique, hence the optimum.

    >>> levels, edges = positive_codebook(Normal(), 1)
    >>> levels.round(6).tolist(), edges.tolist()
    ([0.797885], [0.0, inf])
    """
    end = math.inf if isinstance(law, Normal) else math.pi / 2.0
    edges = np.concatenate([[0.0], _starting_edges(law, 2 ** (bits - 1)), [end]])
    for _ in range(60):
        if bits == 1:
            break
        step = _newton_step(law, edges)
        # a full step may cross a neighbour while far from the solution; half the gap never does
        room = np.minimum(np.diff(edges)[:-1], np.diff(edges)[1:])
        factor = min(1.0, 0.5 * float(np.min(room / np.maximum(np.abs(step), np.finfo(float).tiny))))
        edges[1:-1] -= factor * step
        if np.all(np.abs(step) <= 4.0 * np.finfo(float).eps * edges[1:-1]):
            break
    return law.cell(edges[:-1], edges[1:]).mean, law.value(edges)


def lloyd_max_codebook(*, bits: int, law: str, d: int) -> dict[str, Any]:
    """The scalar codebook of least mean squared error for a law, not nested in those of fewer bits.

    Args:
        bits: 1..8.
        law: "normal", N(0, 1); or "sphere", sqrt(d) times a coordinate of a uniform unit vector of R^d.
        d: the sphere's dimension, at least 4; unused for "normal".

    Returns:
        ``levels`` [2^bits] and ``thresholds`` [2^bits - 1], float64, ascending, antisymmetric.

    Raises:
        ArgumentError: bits outside 1..8, another law, or d < 4 for the sphere.

    Source: ReadKV App. F.2 (Lloyd-2, TurboQuant's codebooks).

    >>> book = lloyd_max_codebook(bits=2, law="normal", d=1)
    >>> book["levels"].round(4).tolist(), book["thresholds"].round(4).tolist()
    ([-1.5104, -0.4528, 0.4528, 1.5104], [-0.9816, 0.0, 0.9816])
    """
    bits = whole("bits", bits, low=1, high=8)
    chosen = choice("law", law, LAWS)
    d = whole("d", d, low=1)
    if chosen == "sphere" and d < 4:
        raise ArgumentError(f'd: expected at least 4 for law="sphere" (the density is not log-concave below), got {d}')
    levels, edges = positive_codebook(Normal() if chosen == "normal" else Sphere(d), bits)
    inner = edges[1:-1]
    return {
        "levels": np.concatenate([-levels[::-1], levels]),
        "thresholds": np.concatenate([-inner[::-1], [0.0], inner]),
    }
