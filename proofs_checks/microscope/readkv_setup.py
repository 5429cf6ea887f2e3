"""What ReadKV's measurements share: transforms, calibration, the encoded cache of a layer, and its rows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proofs_checks.microscope.source import LayerTrace
from refimpl.attention import attention
from refimpl.checks import FloatArray
from refimpl.readkv.calibration import Calibration, calibrate_moments, calibrate_samples, standardize
from refimpl.readkv.reader import PrefixCache, encode_cache
from refimpl.readkv.rotation import readkv_rotate, rotation_matrix

SEED = 20260801
"""The papers' primary transform seed names the signs; the signs that it draws here are NumPy's."""


def transform_signs(head_size: int, seed: int = SEED) -> tuple[FloatArray, FloatArray]:
    """Key and value signs [d] of +-1.

    >>> [sorted(set(signs.tolist())) for signs in transform_signs(64)]
    [[-1.0, 1.0], [-1.0, 1.0]]
    """
    drawn = np.random.default_rng(seed).choice([-1.0, 1.0], size=(2, head_size))
    return drawn[0], drawn[1]


def calibrations(trace: LayerTrace, signs: tuple[FloatArray, FloatArray]) -> tuple[Calibration, Calibration]:
    """Means and scales of transformed key and value channels, [H, d] each: from held-out moments where there are any.

    Without them a layer is calibrated on itself, which flatters the codec: reports name the difference.
    """
    if trace.moments is None:
        pairs = zip((trace.keys, trace.values), signs, strict=True)
        first, second = (calibrate_samples(samples=readkv_rotate(x=x, signs=s)) for x, s in pairs)
    else:
        (key_mean, value_mean), (key_cov, value_cov) = trace.moments
        first = calibrate_moments(mean=key_mean, covariance=key_cov, transform=rotation_matrix(signs[0]))
        second = calibrate_moments(mean=value_mean, covariance=value_cov, transform=rotation_matrix(signs[1]))
    return first, second


def encode_layer(trace: LayerTrace) -> PrefixCache:
    """The layer's eight-bit cache."""
    signs = transform_signs(trace.keys.shape[-1])
    keys, values = calibrations(trace, signs)
    return encode_cache(
        keys=trace.keys, values=trace.values, key_mean=keys.mean, key_scale=keys.scale, value_mean=values.mean,
        value_scale=values.scale, key_signs=signs[0], value_signs=signs[1],
    )  # fmt: skip


def standardized(trace: LayerTrace) -> tuple[FloatArray, FloatArray]:
    """Standardised transformed keys and values, [H, T, d] each."""
    signs = transform_signs(trace.keys.shape[-1])
    parts = zip((trace.keys, trace.values), signs, calibrations(trace, signs), strict=True)
    first, second = (standardize(readkv_rotate(x=x, signs=s), c.mean, c.scale) for x, s, c in parts)
    return first, second


@dataclass(frozen=True)
class Row:
    """One step of one layer: its queries, the codes it sees, and what exact attention gives."""

    queries: FloatArray
    cache: PrefixCache
    keys: FloatArray
    values: FloatArray
    output: FloatArray
    """[H, G, d]."""

    def relative_error(self, result: dict[str, Any]) -> FloatArray:
        """|o - o_hat| / |o| of every KV head, its query heads taken together, [H]."""
        size = np.linalg.norm(self.output, axis=(1, 2))
        return np.linalg.norm(result["output"] - self.output, axis=(1, 2)) / size


def rows(trace: LayerTrace, cache: PrefixCache, most: int | None = None) -> Iterator[Row]:
    """The layer's steps, or ``most`` of them spread evenly."""
    steps = range(len(trace.positions))
    chosen = steps if most is None or most >= len(steps) else np.linspace(0, len(steps) - 1, most).astype(int)
    for step in chosen:
        seen = int(trace.positions[step]) + 1
        part = replace(cache, key_codes=cache.key_codes[:, :seen], value_codes=cache.value_codes[:, :seen])
        queries, keys, values = trace.queries(int(step)), trace.keys[:, :seen], trace.values[:, :seen]
        exact = attention(queries=queries, keys=keys, values=values)["output"]
        yield Row(queries, part, keys, values, exact)
