"""Pages whose quantised entries all lie at half a step, where every rounding error changes codes."""

import numpy as np


def half_step_page(rng, B, d, rank, level, ratio):
    """One page [B, d]: basis columns on disjoint channels, entries odd multiples of half a step; so is the centroid.

    ``ratio`` is that of neighbouring singular values, 8 the largest.
    """
    channels = rng.permutation(d)[: d // rank * rank].reshape(rank, -1)
    columns = np.zeros((d, rank))
    for k, places in enumerate(channels):
        halves = rng.integers(-level, level, size=len(places)) + 0.5
        halves[0] = level
        columns[places, k] = halves / np.linalg.norm(halves)
    tokens = rng.normal(size=(B, rank))
    tokens, _ = np.linalg.qr(tokens - tokens.mean(axis=0))
    centroid = rng.integers(-127, 127, size=d) + 0.5
    centroid[0] = 127.0
    return centroid / 64 + (tokens * 8.0 * ratio ** np.arange(rank)) @ columns.T
