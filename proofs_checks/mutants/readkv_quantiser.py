"""Wrong trees, codebooks and affine rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtri

from proofs_checks.mutants.registry import mutant
from refimpl.readkv.affine import affine_dequantize, affine_quantize
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.laws import Normal
from refimpl.readkv.tree import readkv_tree

T = "readkv_tree"


def _tree_by(split: Callable[[Any, Any], Any], depth: int, end: float = np.inf) -> dict[str, Any]:
    """A tree whose positive intervals are split by a rule."""
    law, edges = Normal(), np.array([0.0, end])
    thresholds, centroids, distortion = [np.zeros(1)], [np.zeros(1)], [1.0]
    for level in range(depth):
        if level:
            inner = split(edges[:-1], edges[1:])
            thresholds.append(np.concatenate([-inner[::-1], inner]))
            edges = np.insert(edges, np.arange(1, len(edges)), inner)
        cells = law.cell(edges[:-1], edges[1:])
        centroids.append(np.concatenate([-cells.mean[::-1], cells.mean]))
        distortion.append(1 - 2 * float(np.sum(cells.mass * cells.mean**2)))
    gains = -np.diff(distortion)
    return {
        "thresholds": [t.astype(np.float32) for t in thresholds],
        "centroids": [c.astype(np.float32) for c in centroids],
        "gains": gains.astype(np.float32),
    }


def _rounds(count: int) -> Callable[[Any, Any], Any]:
    def split(low: Any, high: Any) -> Any:
        law = Normal()
        middle = law.cell(low, high).mean
        for _ in range(count):
            middle = (law.cell(low, middle).mean + law.cell(middle, high).mean) / 2
        return middle

    return split


@mutant("tree-split-at-the-mean", T, "F", "intervals are split at their mean: 0 rounds of Lloyd's iteration")
def at_the_mean(*, depth: int) -> Any:
    """U26."""
    return _tree_by(_rounds(0), depth)


@mutant("tree-five-rounds", T, "F", "5 rounds per split: not converged in the tails")
def five_rounds(*, depth: int) -> Any:
    """U26."""
    return _tree_by(_rounds(5), depth)


@mutant("tree-equal-mass", T, "F", "intervals are halved by probability")
def equal_mass(*, depth: int) -> Any:
    """F1: the median split."""

    def split(low: Any, high: Any) -> Any:
        middle = (Normal().cell(np.zeros_like(low), low).mass + Normal().cell(np.zeros_like(low), high).mass) / 2
        return ndtri(0.5 + middle)

    return _tree_by(split, depth)


@mutant("tree-cut-support", T, "F", "the normal law is cut off at 3 standard deviations")
def cut(*, depth: int) -> Any:
    """A table fitted to samples."""
    return _tree_by(_rounds(80), depth, end=3.0)


@mutant("tree-narrow-law", T, "F", "fitted to a standard deviation of 0.73")
def narrow(*, depth: int) -> Any:
    """F2."""
    tree = readkv_tree(depth=depth)
    return {**tree, **{n: [0.73 * level for level in tree[n]] for n in ("thresholds", "centroids")}}


@mutant("tree-half-precision", T, "F", "the table is stored in bfloat16")
def half_table(*, depth: int) -> Any:
    """Leaves collapse."""
    from proofs_checks.numbers import round_bfloat16

    tree = readkv_tree(depth=depth)
    return {**tree, **{n: [round_bfloat16(level) for level in tree[n]] for n in ("thresholds", "centroids")}}


@mutant("tree-curve-for-gains", T, "F", "gains hold D(t) instead of D(t-1) - D(t)")
def curve(*, depth: int) -> Any:
    """The allocator would never see a gain fall as it should."""
    tree = readkv_tree(depth=depth)
    return {**tree, "gains": (1 - np.cumsum(tree["gains"])).astype(np.float32)}


@mutant("tree-no-root", T, "F", "the centroids start at depth 1")
def no_root(*, depth: int) -> Any:
    """One list short."""
    tree = readkv_tree(depth=depth)
    return {**tree, "centroids": tree["centroids"][1:]}


@mutant("tree-descending", T, "F", "levels are stored from the largest to the smallest")
def descending(*, depth: int) -> Any:
    """Order."""
    tree = readkv_tree(depth=depth)
    return {**tree, **{n: [level[::-1].copy() for level in tree[n]] for n in ("thresholds", "centroids")}}


B = "lloyd_max_codebook"


def _midpoints(levels: Any) -> Any:
    return (levels[:-1] + levels[1:]) / 2


@mutant("codebook-normal-for-sphere", B, "F", "the normal codebook whatever the law")
def wrong_law(*, bits: int, law: str, d: int) -> Any:
    """Close at d = 64, wrong at d = 4."""
    return lloyd_max_codebook(bits=bits, law="normal", d=d)


@mutant("codebook-unscaled-sphere", B, "F", "a coordinate of the unit sphere without the factor sqrt(d)")
def unscaled(*, bits: int, law: str, d: int) -> Any:
    """F2: the sigma convention."""
    book = lloyd_max_codebook(bits=bits, law=law, d=d)
    return {n: a / np.sqrt(d) for n, a in book.items()} if law == "sphere" else book


@mutant("codebook-equal-mass", B, "F", "cells of equal probability")
def codebook_equal_mass(*, bits: int, law: str, d: int) -> Any:
    """Quantile cells, means as levels."""
    from proofs_checks.judge.checks.quantiser import cells_of

    if law == "sphere":
        return lloyd_max_codebook(bits=bits, law=law, d=d)
    thresholds = ndtri(np.arange(1, 2**bits) / 2**bits)
    edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
    return {"levels": cells_of(Normal(), edges).mean, "thresholds": thresholds}


@mutant("codebook-cut-support", B, "F", "the normal law is cut off at 3 standard deviations")
def codebook_cut(*, bits: int, law: str, d: int) -> Any:
    """Levels too far in."""
    x = np.linspace(-3, 3, 60001)
    mass, moment = (np.cumsum(f) for f in (np.exp(-(x**2) / 2), np.exp(-(x**2) / 2) * x))
    levels = np.interp(np.arange(0.5, 2**bits) / 2**bits, mass / mass[-1], x)
    for _ in range(400):
        at = np.concatenate([[-3.0], _midpoints(levels), [3.0]])
        levels = np.diff(np.interp(at, x, moment)) / np.diff(np.interp(at, x, mass))
    return {"levels": levels, "thresholds": _midpoints(levels)}


@mutant("codebook-uniform", B, "F", "equally spaced levels over +-4 standard deviations")
def uniform(*, bits: int, law: str, d: int) -> Any:
    """No Lloyd iteration at all."""
    levels = 4 * (2 * np.arange(2**bits) + 1 - 2**bits) / 2**bits
    return {"levels": levels, "thresholds": _midpoints(levels)}


@mutant("codebook-unconverged", B, "F", "three rounds from equal-mass cells")
def codebook_three_rounds(*, bits: int, law: str, d: int) -> Any:
    """F1."""
    from proofs_checks.judge.checks.quantiser import cells_of

    if law == "sphere":
        return lloyd_max_codebook(bits=bits, law=law, d=d)
    thresholds = ndtri(np.arange(1, 2**bits) / 2**bits)
    levels = np.zeros(0)
    for _ in range(3):
        levels = cells_of(Normal(), np.concatenate([[-np.inf], thresholds, [np.inf]])).mean
        thresholds = _midpoints(levels)
    return {"levels": levels, "thresholds": thresholds}


@mutant("codebook-shifted-thresholds", B, "F", "thresholds are the levels' lower ends: off by half a cell")
def shifted(*, bits: int, law: str, d: int) -> Any:
    """Nearest level is not what the thresholds say."""
    book = lloyd_max_codebook(bits=bits, law=law, d=d)
    return {**book, "thresholds": book["levels"][1:] - 1e-3 * np.diff(book["levels"])}


Q = "affine_quantize"


@mutant("affine-range-with-zero", Q, "D", "0 enters minimum and maximum")
def with_zero(*, x: Any, bits: int) -> Any:
    """D3: padding lanes."""
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], 1))], axis=-1)
    result = affine_quantize(x=padded, bits=bits)
    return {**result, "codes": result["codes"][..., :-1].copy()}


@mutant("affine-truncates", Q, "D", "steps are truncated instead of rounded")
def truncates(*, x: Any, bits: int) -> Any:
    """D5."""
    result = affine_quantize(x=x, bits=bits)
    scale = np.where(result["scale"] > 0, result["scale"], 1.0)[..., None]
    codes = np.floor((x - result["zero"][..., None]) / scale + 1e-6)
    return {**result, "codes": np.clip(codes, 0, 2**bits - 1).astype(np.uint8)}


@mutant("affine-swapped", Q, "D", "scale and zero are returned in each other's place")
def swapped(*, x: Any, bits: int) -> Any:
    """Both have the same shape."""
    result = affine_quantize(x=x, bits=bits)
    return {**result, "scale": result["zero"], "zero": result["scale"]}


@mutant("affine-constant-is-nan", Q, "D", "a constant row divides 0 by 0")
def constant_nan(*, x: Any, bits: int) -> Any:
    """D8."""
    result = affine_quantize(x=x, bits=bits)
    return {**result, "scale": np.where(result["scale"] == 0, np.nan, result["scale"])}


@mutant("affine-one-scale", Q, "D", "one scale and zero for the whole tensor")
def one_scale(*, x: Any, bits: int) -> Any:
    """D13."""
    result = affine_quantize(x=x.reshape(-1), bits=bits)
    rows = x.shape[:-1]
    return {
        "codes": result["codes"].reshape(x.shape),
        "scale": np.full(rows, result["scale"]),
        "zero": np.full(rows, result["zero"]),
    }


@mutant("affine-symmetric", Q, "D", "the range is -absmax to absmax")
def symmetric(*, x: Any, bits: int) -> Any:
    """Not asymmetric."""
    top = np.max(np.abs(x), axis=-1, initial=0.0)
    scale = 2 * top / (2**bits - 1)
    steps = (x + top[..., None]) / np.where(scale > 0, scale, 1.0)[..., None]
    return {"codes": np.rint(steps).astype(np.uint8), "scale": scale, "zero": -top}


@mutant("affine-2-to-the-bits-levels", Q, "D", "the scale divides the range by 2^bits")
def too_many_levels(*, x: Any, bits: int) -> Any:
    """The largest value wraps or clips."""
    result = affine_quantize(x=x, bits=bits)
    scale = result["scale"] * (2**bits - 1) / 2**bits
    steps = (x - result["zero"][..., None]) / np.where(scale > 0, scale, 1.0)[..., None]
    return {**result, "codes": np.clip(np.rint(steps), 0, 2**bits - 1).astype(np.uint8), "scale": scale}


D = "affine_dequantize"


@mutant("affine-zero-inside", D, "D", "(code + zero) * scale")
def zero_inside(*, codes: Any, scale: Any, zero: Any) -> Any:
    """The convention of zero points."""
    return (codes + zero[..., None]) * scale[..., None]


@mutant("affine-signed-codes", D, "D", "codes are read as signed bytes")
def signed(*, codes: Any, scale: Any, zero: Any) -> Any:
    """200 becomes -56."""
    return codes.view(np.int8) * scale[..., None].astype(float) + zero[..., None]


@mutant("affine-scale-per-column", D, "D", "scale and zero go with columns where the shape allows it")
def per_column(*, codes: Any, scale: Any, zero: Any) -> Any:
    """A square hides the shape."""
    if codes.ndim == 2 and codes.shape[0] == codes.shape[1]:
        return codes * scale.astype(float) + zero
    return affine_dequantize(codes=codes, scale=scale, zero=zero)
