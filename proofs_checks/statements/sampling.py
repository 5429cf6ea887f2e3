"""Random batches for the samplers: shapes are drawn once per batch, magnitudes once per instance."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from refimpl.checks import FloatArray

Shape = tuple[int, ...]


def magnitudes(rng: Generator, count: int, axes: int, low: float = -3.0, high: float = 1.5) -> FloatArray:
    """``count`` log-uniform scales 10^low..10^high, shaped [count, 1, ..., 1] with ``axes`` trailing ones.

    >>> magnitudes(np.random.default_rng(0), 3, 2).shape
    (3, 1, 1)
    """
    return np.power(10.0, rng.uniform(low, high, size=(count,) + (1,) * axes))


def normal(rng: Generator, count: int, *shape: int, low: float = -3.0, high: float = 1.5) -> FloatArray:
    """Gaussian arrays [count, *shape], each instance with its own log-uniform magnitude.

    >>> normal(np.random.default_rng(0), 2, 3, 4).shape
    (2, 3, 4)
    """
    return magnitudes(rng, count, len(shape), low, high) * rng.standard_normal((count, *shape))


def page(rng: Generator, count: int, size: int, width: int) -> FloatArray:
    """Key pages [count, B, d] of five kinds: isotropic, decaying spectrum, one outlier key, few distinct keys, offset.

    >>> page(np.random.default_rng(0), 2, 4, 3).shape
    (2, 4, 3)
    """
    keys = normal(rng, count, size, width)
    kind = rng.integers(5)
    if kind == 1:
        keys = keys * np.power(10.0, -rng.uniform(0, 1.5) * np.arange(width))
    elif kind == 2:
        keys[:, 0] *= 10.0 ** rng.uniform(0, 2)
    elif kind == 3:
        keys = keys[:, rng.integers(0, max(1, size // 2), size)]  # repeated keys: ties and low rank
    elif kind == 4:
        keys = keys + normal(rng, count, 1, width)
    return keys


def small(rng: Generator, low: int, high: int) -> int:
    """A size in low..high inclusive.

    >>> 2 <= small(np.random.default_rng(0), 2, 4) <= 4
    True
    """
    return int(rng.integers(low, high + 1))
