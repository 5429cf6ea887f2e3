"""Building blocks of case inputs: random attention inputs with outliers, pages with planted spectra, block pools."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def random_qkv(rng: np.random.Generator, H: int, G: int, T: int, d: int, sharpness: float = 1.0) -> dict[str, Array]:
    """Queries [H,G,d], keys and values [H,T,d] with unequal heads, channel outliers and a nonzero value mean.

    All-normal inputs hide faults: real keys have outlier channels and real values a mean.
    """
    channel = np.exp(rng.normal(size=d) * 0.7)
    head = np.arange(1, H + 1)[:, None, None]
    return {
        "queries": rng.normal(size=(H, G, d)) * sharpness,
        "keys": rng.normal(size=(H, T, d)) * channel / np.sqrt(np.mean(channel**2)) + 0.5 * rng.normal(size=(H, 1, d)),
        "values": head * (rng.normal(size=(H, T, d)) + 2 * rng.normal(size=(H, 1, d))),
    }


def planted_pages(rng: np.random.Generator, H: int, P: int, B: int, d: int, sigma: list[float]) -> Array:
    """Pages [H,P,B,d] whose centred singular values are exactly about ``sigma``, around centroids of size 3."""
    modes = len(sigma)
    tokens, _ = np.linalg.qr(_centred(rng.normal(size=(H, P, B, modes))))
    channels, _ = np.linalg.qr(rng.normal(size=(H, P, d, modes)))
    deviations = (tokens * np.asarray(sigma)) @ np.swapaxes(channels, -1, -2)
    pages: Array = 3 * rng.normal(size=(H, P, 1, d)) / np.sqrt(d) + deviations
    return pages


def _centred(x: Array) -> Array:
    centred: Array = x - x.mean(axis=-2, keepdims=True)
    return centred


def pooled(
    keys: Sequence[Array],
    values: Sequence[Array],
    lengths: Sequence[int],
    block: int,
    table: list[list[int]],
    blocks: int,
    fill: float = 0.0,
) -> dict[str, Array]:
    """A block pool that holds sequences of ``lengths`` under ``table``; unused slots hold ``fill``.

    keys and values [N][H,T,d] -> key_pool, value_pool [blocks, block, H, d], block_table [N, widest], tokens [N].
    """
    H, _, d = keys[0].shape
    width = max(len(row) for row in table)
    pools = []
    for source in (keys, values):
        pool = np.full((blocks, block, H, d), fill)
        for n, length in enumerate(lengths):
            for t in range(length):
                pool[table[n][t // block], t % block] = source[n][:, t]
        pools.append(pool)
    return {
        "key_pool": pools[0],
        "value_pool": pools[1],
        "block_table": np.array([row + [-1] * (width - len(row)) for row in table]),
        "tokens": np.array(lengths),
    }
