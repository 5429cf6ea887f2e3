"""Gaussianity of standardised scalars, and the distortion that the prefix tree really has on them (ReadKV App. D)."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.microscope.accumulate import Histogram, Mean, Results
from proofs_checks.microscope.readkv_setup import encode_layer, standardized
from proofs_checks.microscope.source import LayerTrace
from refimpl.readkv.codec import decode_prefixes
from refimpl.readkv.tree import LEAF_DEPTH, effective_distortions

ScalarHistogram = partial(Histogram, -12.0, 12.0, 24_000)


def measure_codec(trace: LayerTrace, results: Results) -> None:
    """Add one layer: moments and histogram of z, and mean squared error of its prefixes at every depth."""
    cache = encode_layer(trace)
    codes = (cache.key_codes, cache.value_codes)
    for name, z, code in zip(("keys", "values"), standardized(trace), codes, strict=True):
        key = ("readkv codec", trace.capture, name)
        for power in (1, 2, 3, 4):
            results.at(Mean, *key, f"moment {power}").add(z**power)
        results.at(ScalarHistogram, *key, "histogram").add(z)
        for depth in range(LEAF_DEPTH + 1):
            rebuilt = decode_prefixes(code, np.full((1, 1, 1), depth), LEAF_DEPTH)
            results.at(Mean, *key, f"depth {depth}").add((z - rebuilt) ** 2)


def expected_distortion(depth: int) -> float:
    """The effective curve D(t) that the allocator uses: what a standard Gaussian scalar would lose.

    >>> round(expected_distortion(0), 6), round(expected_distortion(1), 4)
    (1.0, 0.3634)
    """
    return float(effective_distortions()[depth])
