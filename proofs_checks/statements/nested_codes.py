"""Nested scalar codes: the deployed Lloyd tables and the uniform dyadic code, with their exact pointwise errors."""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from refimpl.checks import FloatArray, IntArray
from refimpl.readkv.codec import decode_prefixes, encode_leaves
from refimpl.readkv.tree import deployed_table

LLOYD_DEPTH = 8
UNIFORM_DEPTH = 12


def reconstruct(code: str, z: FloatArray, depths: IntArray) -> FloatArray:
    """Reconstruction of z in [-1, 1] from the first ``depths`` bits of its path; shapes broadcast; depth 0 gives 0.

    >>> reconstruct("uniform", np.array([0.3, 0.3]), np.array([1, 2])).tolist()
    [0.5, 0.25]
    """
    if code == "lloyd":
        return decode_prefixes(encode_leaves(z, LLOYD_DEPTH), depths, LLOYD_DEPTH)
    cells = np.exp2(depths - 1.0)  # half the number of cells
    index = np.minimum(np.floor((z + 1) * cells), 2 * cells - 1)
    return np.where(depths == 0, 0.0, (index + 0.5) / cells - 1)


def gains(code: str) -> FloatArray:
    """Refinement gains of all levels, positive and falling.

    >>> gains("uniform")[:2].tolist()
    [0.25, 0.0625]
    """
    if code == "lloyd":
        return deployed_table(LLOYD_DEPTH).gains.astype(np.float64)
    return np.power(4.0, -np.arange(1.0, UNIFORM_DEPTH + 1))  # (1/3) 4^-(t-1) - (1/3) 4^-t


@lru_cache(maxsize=64)
def worst_point(code: str, depth: int) -> tuple[float, Fraction]:
    """Where sup over [-1, 1] of |u - Q_depth(u)| is approached (a float just inside the cell), and the exact sup.

    The error is largest at an end of a cell cut to [-1, 1], so all ends are enumerated in rationals.

    Source: ReadKV Lemma 7 (proof).

    >>> point, size = worst_point("lloyd", 8)
    >>> abs(point) > 0.98159879446 and 0.0096543431 < size < 0.0096543432
    True
    """
    if code == "uniform":
        return -1.0, Fraction(1, 2**depth)
    table = deployed_table(LLOYD_DEPTH)
    edges = sorted(float(t) for level in table.thresholds[:depth] for t in level)
    bounds = [-1.0, *edges, 1.0]
    best, where = Fraction(0), 0.0
    for mean, low, high in zip(table.centroids[depth], [-np.inf, *edges], [*edges, np.inf], strict=True):
        ends = (max(low, bounds[0]), min(high, bounds[-1]))
        if ends[0] >= ends[1]:
            continue
        inside = (ends[0], ends[1] if ends[1] == 1.0 else float(np.nextafter(ends[1], -np.inf)))
        for end, point in zip(ends, inside, strict=True):
            error = abs(Fraction(float(end)) - Fraction(float(mean)))
            if error > best:
                best, where = error, point
    return where, best
