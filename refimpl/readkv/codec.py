"""Codec: a standardised scalar's path through the tree, and its reconstruction from any prefix (Sec. 3.1, App. D)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.checks import ArgumentError, FloatArray, IntArray, whole
from refimpl.readkv.arrays import integer_array, real_array
from refimpl.readkv.tree import DEEPEST, LEAF_DEPTH, Table, deployed_table


def encode_leaves(z: FloatArray, leaf_depth: int) -> IntArray:
    """Leaf index of every z in the tree of ``leaf_depth`` levels: [...] -> [...] in 0..2^leaf_depth - 1.

    Each level compares with the split of the node reached so far and appends one bit, 1 for the upper child; a value on
    the split goes up (AMB-17).

    >>> encode_leaves(np.array([-3.0, 0.0, 3.0]), 3).tolist()
    [0, 4, 7]
    """
    node = np.zeros(z.shape, dtype=np.int64)
    for thresholds in deployed_table(leaf_depth).thresholds:
        node = 2 * node + (z >= thresholds[node])
    return node


def decode_prefixes(codes: IntArray, depth: IntArray, leaf_depth: int, table: Table | None = None) -> FloatArray:
    """Centroids that the first ``depth`` bits of codes of ``leaf_depth`` bits name; depth broadcasts; 0 gives 0.

    ``table`` is the tree to decode by, the deployed one where it is None.

    >>> decode_prefixes(np.array([0, 7]), np.array(1), 3).round(6).tolist()
    [-0.797885, 0.797885]
    """
    table = table or deployed_table(leaf_depth)
    centroids = np.concatenate(table.centroids).astype(np.float64)  # depth t begins at 2^t - 1
    z_hat: FloatArray = centroids[(1 << depth) - 1 + (codes >> (leaf_depth - depth))]
    return z_hat


def encode(*, z: Any, leaf_depth: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
    """Codes of ``leaf_depth`` bits (1..12): uint8 up to 8 bits, uint16 above. Otherwise as `readkv_encode`.

    >>> encode(z=[0.1], leaf_depth=12).dtype.name
    'uint16'
    """
    z = real_array("z", z)
    leaf_depth = whole("leaf_depth", leaf_depth, low=1, high=DEEPEST)
    leaves = encode_leaves(z, leaf_depth)
    return leaves.astype(np.uint8) if leaf_depth <= LEAF_DEPTH else leaves.astype(np.uint16)


def decode(*, codes: Any, depth: Any, leaf_depth: int) -> FloatArray:
    """Reconstruction of the first ``depth`` bits of codes of ``leaf_depth`` bits. Otherwise as `readkv_decode`.

    >>> decode(codes=[2, 3], depth=2, leaf_depth=2).round(4).tolist()
    [0.4528, 1.5104]
    """
    leaf_depth = whole("leaf_depth", leaf_depth, low=1, high=DEEPEST)
    codes = integer_array("codes", codes, 0, 2**leaf_depth - 1)
    depth = integer_array("depth", depth, 0, leaf_depth)
    try:
        fits = np.broadcast_shapes(codes.shape, depth.shape) == codes.shape
    except ValueError:
        fits = False
    if not fits:
        raise ArgumentError(f"depth: expected a shape that broadcasts to {list(codes.shape)}, got {list(depth.shape)}")
    return decode_prefixes(codes, depth, leaf_depth)


def readkv_encode(*, z: Any) -> NDArray[np.uint8]:
    """The 8-bit path of standardised scalars through the tree, first split in the most significant bit.

    Args:
        z: [...], finite.

    Returns:
        codes [...] uint8. A value exactly on a threshold goes to the upper child (AMB-17).

    Raises:
        ArgumentError: a dtype that is not real, NaN or infinity.

    Source: ReadKV Sec. 3.1, App. D.1.

    >>> readkv_encode(z=[-9.0, -0.0, 9.0]).tolist()
    [0, 128, 255]
    """
    return encode(z=z, leaf_depth=LEAF_DEPTH).astype(np.uint8)


def readkv_decode(*, codes: Any, depth: Any) -> FloatArray:
    """Reconstruct standardised scalars from the first ``depth`` bits of their paths.

    Args:
        codes: [...] in 0..255.
        depth: whole number or array broadcast to codes, 0..8; the bits below are not looked at.

    Returns:
        z_hat [...] float64, exactly the float32 table's centroid; depth 0 gives 0.

    Raises:
        ArgumentError: a code above 255, a depth outside 0..8, or a shape that does not broadcast to codes.

    Source: ReadKV Sec. 3.1, App. D.1.

    >>> readkv_decode(codes=[200, 200, 7], depth=[0, 1, 2]).round(4).tolist()
    [0.0, 0.7979, -1.5104]
    """
    return decode(codes=codes, depth=depth, leaf_depth=LEAF_DEPTH)
