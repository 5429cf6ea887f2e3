"""TurboQuant: norm, rotation, one scalar code per coordinate; and its unbiased form with QJL on what is left."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.baselines.qjl import qjl_encode, qjl_estimate, qjl_projection
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, integers, real, whole
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.rotation import rotation_matrix

KINDS = ("haar", "hadamard")


def turboquant_rotation(*, d: int, kind: str, seed: int) -> FloatArray:
    """A random orthogonal matrix [d, d]; a vector x is rotated to ``rotation @ x``.

    Args:
        d: at least 1; a power of two for "hadamard".
        kind: "haar", uniform over all orthogonal matrices: the QR factors of a Gaussian matrix with the signs of R's
            diagonal moved into Q, without which Q is not uniform. "hadamard": H diag(signs) / sqrt(d), random signs.
        seed: 0 or more; the same seed gives the same matrix.

    Raises:
        ArgumentError: a number out of range, another kind, or d not a power of two for "hadamard".

    Source: ReadKV App. F.2 (TurboQuant); AMB-50.

    >>> rotation = turboquant_rotation(d=8, kind="haar", seed=0)
    >>> bool(np.allclose(rotation @ rotation.T, np.eye(8)))
    True
    """
    d, kind = whole("d", d, low=1), choice("kind", kind, KINDS)
    rng = np.random.default_rng(whole("seed", seed, low=0))
    if kind == "hadamard":
        return rotation_matrix(rng.choice([-1.0, 1.0], size=d))
    q, r = np.linalg.qr(rng.normal(size=(d, d)))
    rotation: FloatArray = q * np.where(np.diag(r) < 0, -1.0, 1.0)
    return rotation


def check_levels(levels: Any) -> FloatArray:
    """Levels [2 or more] as float64; ArgumentError unless strictly ascending.

    >>> check_levels([-0.5, 0.5]).tolist()
    [-0.5, 0.5]
    """
    array = real("levels", levels, "levels", Sizes())
    if not 2 <= len(array) <= 256 or (np.diff(array) <= 0).any():
        raise ArgumentError(f"levels: expected 2 to 256 ascending numbers, got {array.tolist()[:8]}")
    return array


def turboquant_encode(*, x: Any, rotation: Any, levels: Any) -> dict[str, Any]:
    """The nearest level of every coordinate of the rotated unit vector, and the vector's norm.

    Args:
        x: [N, d]. rotation: [d, d], orthogonal. levels: [2^bits], ascending, for coordinates of unit vectors.

    Returns:
        ``codes`` [N, d] uint8, of two equally near levels the lower (AMB-48); ``norm`` [N]. A zero vector has norm 0.

    Raises:
        ArgumentError: a shape, a non-finite value, or levels out of order.

    Source: ReadKV App. F.2 (TurboQuant; with a Hadamard rotation and 16 levels, the served K4).

    >>> q = turboquant_encode(x=[[3.0, -4.0]], rotation=np.eye(2), levels=[-0.75, -0.25, 0.25, 0.75])
    >>> q["codes"].tolist(), q["norm"].tolist()
    ([[3, 0]], [5.0])
    """
    sizes = Sizes()
    x, rotation = real("x", x, "N d", sizes), real("rotation", rotation, "d d", sizes)
    levels = check_levels(levels)
    norm = np.linalg.norm(x, axis=-1)  # [N]
    unit = x / np.where(norm > 0, norm, 1.0)[:, None]
    codes = np.searchsorted((levels[1:] + levels[:-1]) / 2, unit @ rotation.T)
    return {"codes": codes.astype(np.uint8), "norm": norm}


def turboquant_decode(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> FloatArray:
    """The vectors that codes stand for: norm times the levels, rotated back; [N, d].

    Args:
        codes: [N, d]. norm: [N]. rotation: [d, d]. levels: [2^bits].
        norm_correction: divide the levels of a vector by their norm, so that the result has the stored norm
            (the served form); the published algorithm does not.

    Raises:
        ArgumentError: a shape, a non-finite value, levels out of order, or a code beyond them.

    Source: ReadKV App. F.2 (TurboQuant).

    >>> levels = [-0.75, -0.25, 0.25, 0.75]
    >>> x = turboquant_decode(codes=[[3, 0]], norm=[5.0], rotation=np.eye(2), levels=levels, norm_correction=False)
    >>> x.tolist()
    [[3.75, -3.75]]
    """
    sizes, levels = Sizes(), check_levels(levels)
    codes = integers("codes", codes, "N d", sizes, low=0, high=len(levels) - 1)
    norm, rotation = real("norm", norm, "N", sizes), real("rotation", rotation, "d d", sizes)
    coordinates = levels[codes]  # [N, d]
    if norm_correction:
        length = np.linalg.norm(coordinates, axis=-1, keepdims=True)
        coordinates = coordinates / np.where(length > 0, length, 1.0)
    decoded: FloatArray = norm[:, None] * coordinates @ rotation
    return decoded


def turboquant_inner_products(*, x: Any, queries: Any, bits: int, seed: int) -> FloatArray:
    """Unbiased estimates [M, N] of queries [M, d] times x [N, d]: bits - 1 for the levels, one QJL sign for the rest.

    Rotation and projection are drawn from ``seed``: over seeds, the mean of an estimate is the inner product.
    Raises ArgumentError for a shape, a non-finite value, or bits outside 2..9.

    Source: ReadKV App. F.2 (TurboQuant's second algorithm); QJL's factor sqrt(pi/2)/d.

    >>> turboquant_inner_products(x=[[0.0] * 4], queries=[[1.0] * 4], bits=3, seed=0).tolist()
    [[0.0]]
    """
    sizes = Sizes()
    x, queries = real("x", x, "N d", sizes), real("queries", queries, "M d", sizes)
    bits, d = whole("bits", bits, low=2, high=9), sizes["d"]
    if d == 0:
        raise ArgumentError("x: expected at least one channel, got d=0")
    book = lloyd_max_codebook(bits=bits - 1, law="sphere" if d >= 4 else "normal", d=d)
    rotation, levels = turboquant_rotation(d=d, kind="haar", seed=seed), book["levels"] / math.sqrt(d)
    coded = turboquant_encode(x=x, rotation=rotation, levels=levels)
    near = turboquant_decode(**coded, rotation=rotation, levels=levels, norm_correction=False)
    projection = qjl_projection(rows=d, d=d, seed=seed + 1)
    rest = qjl_encode(x=x - near, projection=projection)
    estimates: FloatArray = queries @ near.T + qjl_estimate(**rest, projection=projection, queries=queries)
    return estimates
