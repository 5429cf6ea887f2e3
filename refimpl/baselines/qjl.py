"""QJL: one sign per row of a Gaussian matrix, from which inner products are estimated without bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, integers, real, whole


def qjl_projection(*, rows: int, d: int, seed: int) -> FloatArray:
    """A matrix [rows, d] of independent N(0, 1) entries; the same seed gives the same matrix.

    >>> qjl_projection(rows=2, d=3, seed=0).shape
    (2, 3)
    """
    shape = whole("rows", rows, low=1), whole("d", d, low=1)
    return np.random.default_rng(whole("seed", seed, low=0)).normal(size=shape)


def qjl_encode(*, x: Any, projection: Any) -> dict[str, Any]:
    """Signs of the projected vectors, and the vectors' norms.

    Args:
        x: [N, d]. projection: [m, d].

    Returns:
        ``signs`` [N, m] int8, +1 or -1 (+1 for a projection of 0, AMB-51); ``norm`` [N].

    Raises:
        ArgumentError: a shape or a non-finite value.

    Source: ReadKV App. F.2 (TurboQuant); Zandieh et al. (QJL).

    >>> qjl_encode(x=[[3.0, 4.0]], projection=[[1.0, 0.0], [0.0, -1.0]])["signs"].tolist()
    [[1, -1]]
    """
    sizes = Sizes()
    x, projection = real("x", x, "N d", sizes), real("projection", projection, "m d", sizes)
    signs = np.where(x @ projection.T >= 0, 1, -1).astype(np.int8)
    return {"signs": signs, "norm": np.linalg.norm(x, axis=-1)}


def qjl_estimate(*, signs: Any, norm: Any, projection: Any, queries: Any) -> FloatArray:
    """Estimates [M, N] of queries times the encoded vectors: sqrt(pi/2) / m * norm * signs . (projection @ query).

    With a projection of independent N(0, 1) entries the mean is the inner product; the factor is for these alone.

    Args:
        signs: [N, m], +1 or -1. norm: [N]. projection: [m, d], the encoder's. queries: [M, d].

    Raises:
        ArgumentError: a shape, a non-finite value, or a sign that is not +-1.

    Source: ReadKV App. F.2 (TurboQuant); Zandieh et al. (QJL).

    >>> estimate = qjl_estimate(signs=[[1, -1]], norm=[5.0], projection=[[1.0, 0.0], [0.0, -1.0]], queries=[[3.0, 4.0]])
    >>> round(float(estimate[0, 0] / math.sqrt(math.pi / 2)), 9)
    17.5
    """
    sizes = Sizes()
    signs = integers("signs", signs, "N m", sizes, low=-1, high=1)
    if (signs == 0).any():
        raise ArgumentError(f"signs: expected +1 or -1, got 0 at {np.argwhere(signs == 0)[0].tolist()}")
    norm, projection = real("norm", norm, "N", sizes), real("projection", projection, "m d", sizes)
    queries = real("queries", queries, "M d", sizes)
    factor = math.sqrt(math.pi / 2) / max(sizes["m"], 1)
    estimates: FloatArray = factor * norm * (queries @ projection.T @ signs.T)
    return estimates


def qjl_inner_products(*, x: Any, queries: Any, seed: int) -> FloatArray:
    """Estimates [M, N] of queries [M, d] times x [N, d] from d signs, with a projection drawn from ``seed``.

    Over seeds, the mean of an estimate is the inner product. Raises ArgumentError as the two halves do.

    Source: ReadKV App. F.2 (TurboQuant); Zandieh et al. (QJL).

    >>> qjl_inner_products(x=[[0.0, 0.0]], queries=[[1.0, 1.0]], seed=0).tolist()
    [[0.0]]
    """
    sizes = Sizes()
    x, queries = real("x", x, "N d", sizes), real("queries", queries, "M d", sizes)
    if sizes["d"] == 0:
        raise ArgumentError("x: expected at least one channel, got d=0")
    projection = qjl_projection(rows=sizes["d"], d=sizes["d"], seed=seed)
    return qjl_estimate(**qjl_encode(x=x, projection=projection), projection=projection, queries=queries)
