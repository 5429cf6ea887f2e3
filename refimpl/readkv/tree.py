"""The progressive Gaussian Lloyd tree: nested splits, each stationary inside its fixed parent interval (App. D.1)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.checks import FloatArray, whole
from refimpl.readkv.laws import Cell, Normal

DEEPEST = 12
"""The deepest tree that is offered; the papers and all stages use depth 8."""

LEAF_DEPTH = 8
"""Depth of the stages' leaf codes."""

Float32Array = NDArray[np.float32]


@dataclass(frozen=True)
class LloydTree:
    """The tree in float64, before it is rounded.

    ``thresholds[l]`` [2^l] splits the 2^l intervals of depth l; ``centroids[t]`` [2^t] are the conditional means of the
    intervals of depth t; ``gains[t-1]`` = D(t-1) - D(t); ``distortions[t]`` = D(t), the exact mean squared error.
    """

    thresholds: tuple[FloatArray, ...]
    centroids: tuple[FloatArray, ...]
    gains: FloatArray
    distortions: FloatArray


def split_points(low: FloatArray, high: FloatArray) -> FloatArray:
    """The stationary split of every interval ``(low, high)``, 0 <= low < high <= inf: shape kept.

    It is the t with t = (E[Z | low < Z < t] + E[Z | t < Z < high]) / 2. The difference of the two sides increases in t,
    because the Gaussian is log-concave, so the split is unique and bisection between the ends finds it.

    >>> split = split_points(np.array([0.0]), np.array([np.inf]))
    >>> float(split[0].round(9))
    0.981598822
    """
    law = Normal()
    left, right = low.copy(), np.minimum(high, low + 2.0)  # beyond low + 1.6 the difference is positive in any tail
    for _ in range(64):  # halves a width of at most 2 until it is under an ulp of any split
        middle = (left + right) / 2.0
        rising = middle > (law.cell(low, middle).mean + law.cell(middle, high).mean) / 2.0
        left, right = np.where(rising, left, middle), np.where(rising, middle, right)
    middle_of_last: FloatArray = (left + right) / 2.0
    return middle_of_last


def _mirror(positive: FloatArray, sign: float = -1.0) -> FloatArray:
    return np.concatenate([sign * positive[::-1], positive])


@lru_cache(maxsize=DEEPEST)
def lloyd_tree(depth: int) -> LloydTree:
    """The tree of ``depth`` levels for N(0, 1) in float64; only the positive half is solved, the other mirrors it.

    Relative error of every entry is below 1e-12, which is more than its float32 rounding can need.

    >>> tree = lloyd_tree(3)
    >>> [len(level) for level in tree.thresholds], [len(level) for level in tree.centroids]
    ([1, 2, 4], [1, 2, 4, 8])
    >>> tree.distortions.round(5).tolist()
    [1.0, 0.36338, 0.11748, 0.03484]
    """
    law = Normal()
    edges = np.array([0.0, np.inf])  # the positive half of the intervals of depth 1
    thresholds, centroids = [np.zeros(1)], [np.zeros(1)]
    cells = law.cell(edges[:-1], edges[1:])
    gains, distortions = [2.0 * float(cells.mass[0] * cells.mean[0] ** 2)], [1.0, _distortion(cells)]
    centroids.append(_mirror(cells.mean))
    for _ in range(1, depth):
        splits = split_points(edges[:-1], edges[1:])
        thresholds.append(_mirror(splits))
        edges = np.insert(edges, np.arange(1, len(edges)), splits)
        cells = law.cell(edges[:-1], edges[1:])
        centroids.append(_mirror(cells.mean))
        gains.append(_gain(cells))
        distortions.append(_distortion(cells))
    return LloydTree(tuple(thresholds), tuple(centroids), np.array(gains), np.array(distortions))


def _gain(children: Cell) -> float:
    """What splitting saves over both halves: the variance between siblings, a sum of positive terms."""
    low, high = children.mass[0::2], children.mass[1::2]
    return 2.0 * float(np.sum(low * high / (low + high) * (children.mean[1::2] - children.mean[0::2]) ** 2))


def _distortion(cells: Cell) -> float:
    return 2.0 * float(np.sum(cells.mass * cells.variance))


@dataclass(frozen=True)
class Table:
    """The tree as it is deployed: every entry rounded to float32 once. Fields as `LloydTree`; read-only arrays."""

    thresholds: tuple[Float32Array, ...]
    centroids: tuple[Float32Array, ...]
    gains: Float32Array


@lru_cache(maxsize=DEEPEST)
def deployed_table(depth: int = LEAF_DEPTH) -> Table:
    """The float32 table of the tree, the one that encoder, decoder and readers share.

    >>> table = deployed_table()
    >>> len(table.thresholds), len(table.centroids), table.gains.dtype.name
    (8, 9, 'float32')
    """
    tree = lloyd_tree(depth)
    return Table(
        tuple(_frozen(level) for level in tree.thresholds),
        tuple(_frozen(level) for level in tree.centroids),
        _frozen(tree.gains),
    )


def _frozen(array: FloatArray) -> Float32Array:
    rounded = array.astype(np.float32)
    rounded.flags.writeable = False
    return rounded


def effective_distortions(depth: int = LEAF_DEPTH) -> FloatArray:
    """The allocator's curve D(t) = 1 - (sum of the first t stored float32 gains), t = 0..depth -> [depth + 1].

    Source: ReadKV App. D.1. It differs from `LloydTree.distortions` by the rounding of the gains.

    >>> effective_distortions(2).round(6).tolist()
    [1.0, 0.36338, 0.117482]
    """
    gains = deployed_table(depth).gains.astype(np.float64)
    return np.concatenate([[1.0], 1.0 - np.cumsum(gains)])


def readkv_tree(*, depth: int) -> dict[str, Any]:
    """The progressive Lloyd tree for N(0, 1), computed in high precision and rounded to float32 once.

    Args:
        depth: number of levels, 1..12. Codes of depth 8 are the stages'.

    Returns:
        ``thresholds``: list, level l = 0..depth-1 holds 2^l split points; ``centroids``: list, depth t = 0..depth holds
        2^t means, the first [0]; ``gains`` [depth]: D(t-1) - D(t). All float32, each level ascending.

    Raises:
        ArgumentError: a depth outside 1..12.

    Source: ReadKV App. D.1; Lemma 7 lists what the float32 table satisfies.

    The first split is 0, its children's means are -+sqrt(2/pi) and it saves 2/pi of the unit variance.

    >>> tree = readkv_tree(depth=1)
    >>> tree["thresholds"][0].tolist(), tree["centroids"][1].round(4).tolist(), tree["gains"].round(4).tolist()
    ([0.0], [-0.7979000210762024, 0.7979000210762024], [0.6366000175476074])
    """
    table = deployed_table(whole("depth", depth, low=1, high=DEEPEST))
    return {
        "thresholds": [level.copy() for level in table.thresholds],
        "centroids": [level.copy() for level in table.centroids],
        "gains": table.gains.copy(),
    }
