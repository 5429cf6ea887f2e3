"""What may come out of quantising values that are known to a little less than exactly (Locks Sec. 4, AMB-07)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from refimpl.checks import FloatArray


@dataclass(frozen=True)
class Storage:
    """How scales are kept: not below ``floor``, and rounded after the codes were computed with the exact ones."""

    rounded: Callable[[FloatArray], FloatArray] = lambda scale: scale
    """Must not fall where its argument rises."""
    relative: float = 0.0
    """The largest relative change by ``rounded``."""
    floor: float = 0.0
    smallest_mode: float = 0.0
    """Singular values below it are raised to it: such modes have coefficients of their own size."""


EXACT = Storage()
"""Scales as the paper has them."""


@dataclass(frozen=True)
class Requantized:
    """A line quantised by one scale, and what another honest quantisation of nearly the same line may give."""

    value: FloatArray
    """The reference's dequantised values, of the line's shape."""
    steps: FloatArray
    """How many codes each may be off, of the line's shape."""
    step: FloatArray
    """Largest scale that the line may have, stored or not, lines only."""
    stretch: FloatArray
    """Relative change of the scale, lines only; infinite where the line may be all zeros."""


def requantized(
    x: FloatArray,
    moved: FloatArray,
    axis: int,
    level: int,
    u: float,
    unresolved: FloatArray | None = None,
    storage: Storage = EXACT,
) -> Requantized:
    """Codes and scales that lines of ``x`` along ``axis`` may get when every entry moves by up to ``moved``.

    A code changes by the number of half steps that x / scale can cross: it moves by moved / scale, by its own size
    where the scale changes (an entry below the line's maximum can move that only as far as it reaches above it), and
    by the rounding of scale and quotient. ``unresolved`` gives the largest magnitude of entries of which nothing else
    is known, NaN elsewhere.

    >>> line = requantized(np.array([7.0, 2.4]), np.array([0.0, 0.2]), 0, 7, 0.0)
    >>> line.value.tolist(), line.steps.tolist(), float(line.stretch)
    ([7.0, 2.0], [0.0, 1.0], 0.0)
    """
    size = np.abs(x)
    high, low = size + moved, np.maximum(size - moved, 0.0)
    if unresolved is not None:
        known = np.isnan(unresolved)
        high, low = np.where(known, high, unresolved), np.where(known, low, 0.0)
        moved = np.where(known, moved, size + unresolved)
    largest, top, bottom = (np.max(a, axis=axis, keepdims=True) for a in (size, high, low))
    scale, wide, narrow = (np.maximum(a / level, storage.floor) for a in (largest, top, bottom))
    live = narrow > 0
    ratio = np.divide(size, scale, out=np.zeros_like(size), where=scale > 0)
    below = np.divide(1.0, narrow, out=np.full(narrow.shape, np.inf), where=live)
    shrunk = np.where(
        live, np.maximum(scale / np.where(live, narrow, 1.0) - 1, 1 - scale / np.maximum(wide, 1e-300)), np.inf
    )
    with np.errstate(invalid="ignore"):
        reach = np.where(moved > 0, moved * below, 0.0) + np.where(ratio > 0, ratio * shrunk, 0.0) + 4 * u * ratio
    distance = np.abs(ratio - np.floor(ratio) - 0.5)
    steps = np.where(distance <= reach, np.floor(np.minimum(reach, 2.0 * level) - distance) + 1, 0.0)
    peak = (size == largest) & (largest >= level * scale)  # its code is the level; below the floor it is as any other
    steps = np.where(peak, np.where(np.isfinite(shrunk), steps, 2.0 * level), steps)
    kept, highest, lowest = (storage.rounded(a) for a in (scale, wide * (1 + 2 * u), narrow * (1 - 2 * u)))
    value = np.sign(x) * np.rint(ratio) * kept
    safe = np.where(live, kept, 1.0)
    stretch = np.where(live, np.maximum(highest / safe - 1, 1 - lowest / safe), np.inf)
    stretch = np.where(wide > 0, stretch, 0.0)
    step = np.squeeze(np.maximum(highest, wide), axis)
    return Requantized(value, np.minimum(steps, 2.0 * level), step, np.squeeze(stretch, axis))
