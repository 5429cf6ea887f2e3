"""Judging trees and codebooks by what defines them: stationary splits, levels at their cells' means, distortion.

A port need not have the reference's digits. A tree is right where every split is the stationary one of its own parent's
interval and every centroid its cell's mean, within 1/1000 of the gap between siblings. A codebook is right where its
distortion is at most 1.001 of the optimum, thresholds lie within 1% of the gap of the midpoint and levels within 3% of
their cell's mean: right public tables differ from each other by that much, faulty ones by far more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.judge.judgement import Call, Fault, Judgement, compare
from refimpl.checks import FloatArray
from refimpl.readkv.codebooks import positive_codebook
from refimpl.readkv.laws import Cell, Law, Normal, Sphere
from refimpl.readkv.tree import lloyd_tree, split_points

OF_TREE_GAP = 1e-3
OF_THRESHOLD_GAP = 1e-2
OF_LEVEL_GAP = 3e-2
EXCESS = 1e-3
"""Of the optimum's distortion."""


def cells_of(law: Law, edges: FloatArray) -> Cell:
    """Mass, mean and variance of the cells between ascending ``edges`` [n + 1] of a symmetric law, which span 0 or not.

    >>> cells_of(Normal(), np.array([-np.inf, 0.0, np.inf])).mean.round(6).tolist()
    [-0.797885, 0.797885]
    """
    low, high = edges[:-1], edges[1:]
    right = _positive(law, np.maximum(low, 0.0), np.maximum(high, 0.0))
    left = _positive(law, np.maximum(-high, 0.0), np.maximum(-low, 0.0))
    mass = right.mass + left.mass
    share = np.divide(right.mass, mass, out=np.zeros_like(mass), where=mass > 0)
    mean = share * right.mean - (1 - share) * left.mean
    square = share * (right.variance + right.mean**2) + (1 - share) * (left.variance + left.mean**2)
    return Cell(mass, mean, square - mean**2)


def _positive(law: Law, low: FloatArray, high: FloatArray) -> Cell:
    """Cells 0 <= low <= high in x; an empty cell has mass 0."""
    real = high > low
    safe_low, safe_high = np.where(real, low, 0.0), np.where(real, high, 1.0)
    cell = law.cell(law.position(safe_low), law.position(safe_high))
    return Cell(*(np.where(real, part, 0.0) for part in cell))


def stationary_splits(edges: FloatArray) -> FloatArray:
    """The split of each interval between ascending ``edges`` [n + 1] that its two halves' means are equally far from.

    >>> stationary_splits(np.array([-np.inf, 0.0, np.inf])).round(5).tolist()
    [-0.9816, 0.9816]
    """
    low, high = edges[:-1], edges[1:]
    if len(low) == 1:
        return np.zeros(1)
    positive = low + high > 0
    near = np.maximum(np.where(positive, low, -high), 0.0)
    splits = split_points(near, np.where(positive, high, -low))
    return np.where(positive, splits, -splits)


def tree_judged(call: Call) -> Judgement:
    """`readkv_tree`: order, stationary splits, centroids at cell means, the exact gains within 1/1000."""
    judgement, law, edges = Judgement(), Normal(), np.array([-np.inf, np.inf])
    root = np.asarray(call.answer["centroids"][0], dtype=np.float64)
    compare(judgement, "centroids[0]", root, np.zeros(1), 0.0)
    for level, given in enumerate(call.answer["thresholds"]):
        thresholds = np.asarray(given, dtype=np.float64)
        inner = np.insert(edges, np.arange(1, len(edges)), thresholds)
        if (np.diff(inner) <= 0).any():
            text = f"thresholds[{level}]: expected one ascending split inside every interval of the level above"
            judgement.faults.append(Fault("thresholds", (level,), text))
            return judgement
        splits = stationary_splits(edges)
        exact = cells_of(law, np.insert(edges, np.arange(1, len(edges)), splits)).mean
        compare(judgement, f"thresholds[{level}]", thresholds, splits, OF_TREE_GAP * (exact[1::2] - exact[0::2]))
        edges, own = inner, cells_of(law, inner).mean
        gap = np.repeat(own[1::2] - own[0::2], 2)
        compare(judgement, f"centroids[{level + 1}]", call.answer["centroids"][level + 1], own, OF_TREE_GAP * gap)
        if judgement.faults:
            return judgement
    exact_gains = lloyd_tree(int(call.inputs["depth"])).gains
    compare(judgement, "gains", call.answer["gains"], exact_gains, OF_TREE_GAP * exact_gains)
    return judgement


def codebook_judged(call: Call) -> Judgement:
    """`lloyd_max_codebook`: order, symmetry, midpoints, cell means, and distortion against the optimum of its law."""
    judgement = Judgement()
    law: Law = Normal() if call.inputs["law"] == "normal" else Sphere(int(call.inputs["d"]))
    levels = np.asarray(call.answer["levels"], dtype=np.float64)
    thresholds = np.asarray(call.answer["thresholds"], dtype=np.float64)
    edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
    merged = np.insert(edges, np.arange(1, len(edges)), levels)
    if (np.diff(merged) <= 0).any():
        text = "levels: expected ascending levels with one threshold between neighbours"
        judgement.faults.append(Fault("levels", None, text))
        return judgement
    gap = np.diff(levels)
    wide = np.minimum(np.append(gap, gap[-1]), np.insert(gap, 0, gap[0]))  # to the nearer neighbour
    limit = np.sqrt(law.d) if isinstance(law, Sphere) else np.inf
    cells = cells_of(law, np.clip(edges, -limit, limit))
    _judge_distortion(judgement, law, int(call.inputs["bits"]), levels, cells)
    compare(judgement, "thresholds", thresholds, (levels[:-1] + levels[1:]) / 2, OF_THRESHOLD_GAP * gap)
    compare(judgement, "levels", levels, cells.mean, OF_LEVEL_GAP * wide)
    compare(judgement, "levels", levels, -levels[::-1], OF_LEVEL_GAP * wide)
    return judgement


def _judge_distortion(judgement: Judgement, law: Law, bits: int, levels: FloatArray, cells: Cell) -> None:
    best: Any = positive_codebook(law, bits)
    optimum = cells_of(law, np.concatenate([-best[1][:0:-1], best[1]]))
    least = float(np.sum(optimum.mass * optimum.variance))
    own = float(np.sum(cells.mass * (cells.variance + (cells.mean - levels) ** 2)))
    ratio = max(own / least - 1, 0.0) / EXCESS
    judgement.see(ratio)
    if ratio > 1:
        text = f"levels: mean squared error {own:.6g}, {own / least:.6g} times the optimum {least:.6g} of the law"
        judgement.faults.append(Fault("levels", None, text, ratio))
