"""The port's own tree and its own order of rotated coordinates: by these its codec and its readers are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from refimpl.checks import FloatArray, IntArray
from refimpl.readkv.rotation import hadamard_matrix
from refimpl.readkv.tree import LEAF_DEPTH, Table, deployed_table

Ask = Callable[[Any], Mapping[str, Any] | None]

TREE_CASE = "readkv_tree/depth-8"
BASIS_WIDTHS = (4, 16, 64, 128, 2, 8, 32, 256, 512, 1024)
"""Widths whose case ``readkv_rotate/basis-d`` shows the order of the port's coordinates."""


def port_table(ask: Ask) -> Table:
    """The port's own tree of depth 8 where it has one of the right form, else the float32 reference tree."""
    own = ask(TREE_CASE)
    table = deployed_table(LEAF_DEPTH)
    if own is None:
        return table
    try:
        thresholds = tuple(np.asarray(level, dtype=np.float64) for level in own["thresholds"])
        centroids = tuple(np.asarray(level, dtype=np.float64) for level in own["centroids"])
        gains = np.asarray(own["gains"], dtype=np.float64)
    except (TypeError, ValueError):
        return table
    formed = [len(t) for t in thresholds] == [len(t) for t in table.thresholds]
    formed &= [len(c) for c in centroids] == [len(c) for c in table.centroids] and gains.shape == table.gains.shape
    if not formed or not all(np.isfinite(level).all() for level in (*thresholds, *centroids, gains)):
        return table
    return Table(thresholds, centroids, gains)  # type: ignore[arg-type]


def prefix_centroids(table: Table, codes: IntArray, depth: Any) -> FloatArray:
    """Centroids [...] that the first ``depth`` bits of codes name in ``table``; depth 0 gives 0 (AMB-22).

    >>> prefix_centroids(deployed_table(8), np.array([0, 255]), 1).round(4).tolist()
    [-0.7979, 0.7979]
    """
    every = np.concatenate(table.centroids).astype(np.float64)  # depth t begins at 2^t - 1
    depth = np.asarray(depth, dtype=np.int64)
    centroids: FloatArray = np.where(depth == 0, 0.0, every[(1 << depth) - 1 + (codes >> (LEAF_DEPTH - depth))])
    return centroids


def port_order(ask: Ask, d: int) -> IntArray | None:
    """Which of the reference's coordinates each of the port's rotated coordinates is, [d]; None where there is none.

    The port's transform of the unit vectors without signs is compared with the Hadamard matrix (AMB-16).
    """
    own = ask(f"readkv_rotate/basis-{d}") if d in BASIS_WIDTHS else None
    if own is None or np.shape(own["rotated"]) != (d, d):
        return None
    overlap = np.asarray(own["rotated"], dtype=np.float64).T @ hadamard_matrix(d) / np.sqrt(d)  # port's x reference's
    order = np.argmax(overlap, axis=1)
    return order if len(set(order.tolist())) == d else None
