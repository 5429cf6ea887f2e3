"""The Gaussian Lloyd tree in ball arithmetic, and its float32 table with every rounding proven (ReadKV App. D.1).

Each threshold is the unique t with t = (E[Z | a<Z<t] + E[Z | t<Z<b]) / 2 inside its fixed parent interval: the
difference F(t) increases, because the normal law is log-concave. A sign change of F between t - delta and t + delta,
evaluated over the parents' balls, therefore encloses it.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from proofs_checks.statements.rigorous import ball, precision
from refimpl.readkv.tree import lloyd_tree

BITS = 448
DEPTH = 8


@dataclass(frozen=True)
class CertifiedTable:
    """The float32 entries as exact floats, positive half only: every one is the unique rounding of its ball."""

    thresholds: tuple[tuple[float, ...], ...]  # level l = 1..7: 2^(l-1) positive splits; level 0 is 0 by symmetry
    centroids: tuple[tuple[float, ...], ...]  # depth t = 1..8: 2^(t-1) positive means
    gains: tuple[float, ...]  # 8 entries
    widest: float  # the largest radius of any enclosure
    closest_tie: float  # least distance of any entry to a float32 rounding tie, in float32 ulps


class Cells:
    """Mass and mean of standard normal cells (a, b) with 0 <= a < b, b None for infinity, as balls."""

    def __init__(self) -> None:
        import flint

        self.root_two = flint.arb(2).sqrt()
        self.density_scale = 1 / (2 * flint.arb.pi()).sqrt()

    def density(self, x: Any) -> Any:
        """Normal density, 0 at infinity."""
        return 0 if x is None else self.density_scale * (-x * x / 2).exp()

    def tail(self, x: Any) -> Any:
        """P(Z > x), 0 at infinity."""
        return 0 if x is None else (x / self.root_two).erfc() / 2

    def mass(self, a: Any, b: Any) -> Any:
        """P(a < Z < b)."""
        return self.tail(a) - self.tail(b)

    def mean(self, a: Any, b: Any) -> Any:
        """E[Z | a < Z < b]."""
        return (self.density(a) - self.density(b)) / self.mass(a, b)

    def imbalance(self, a: Any, b: Any, t: Any) -> Any:
        """F(t) = t - (mean(a, t) + mean(t, b)) / 2, increasing in t."""
        return t - (self.mean(a, t) + self.mean(t, b)) / 2


def middle(x: Any) -> Any:
    """The exact midpoint of a ball; None stays None."""
    return None if x is None else x.mid()


def enclose_split(cells: Cells, a: Any, b: Any, guess: float, level: int) -> Any:
    """A ball around the split of (a, b), proven by a sign change over the balls a and b."""
    import flint

    low, high, t = middle(a), middle(b), ball(guess)
    step = ball(2.0**-40)
    for _ in range(8):  # secant steps at the midpoints: only a guess, so rounding there is harmless
        here, there = cells.imbalance(low, high, t), cells.imbalance(low, high, t + step)
        slope = (there - here) / step
        t = (t - here / slope).mid()
        step = flint.arb(2) ** -150
    width = flint.arb(2) ** (14 * level - BITS + 20)  # parents enter with their radius over a narrow cell
    below, above = cells.imbalance(a, b, t - width), cells.imbalance(a, b, t + width)
    if not (below < 0 and above > 0):
        raise ArithmeticError(f"no sign change around the split near {guess} at level {level}")
    return flint.arb(t, width)


def nearest_float32(x: Any) -> tuple[float, float]:
    """The float32 that every point of the ball rounds to, and the ball's distance to a tie in ulps."""
    rounded = np.float32(float(x.mid()))
    up, down = np.nextafter(rounded, np.float32(np.inf)), np.nextafter(rounded, np.float32(-np.inf))
    high, low = (ball(float(rounded)) + ball(float(up))) / 2, (ball(float(rounded)) + ball(float(down))) / 2
    if not (low < x and x < high):
        raise ArithmeticError(f"{x} does not round to one float32")
    ulp = float(up) - float(rounded)
    return float(rounded), min(float((high - x).mid()), float((x - low).mid())) / ulp


@lru_cache(maxsize=1)
def certified_table() -> CertifiedTable:
    """Build the tree in 448-bit balls and round it to float32 once.

    >>> table = certified_table()
    >>> table.centroids[0][0], [len(level) for level in table.centroids]
    (0.7978845834732056, [1, 2, 4, 8, 16, 32, 64, 128])
    """
    with precision(BITS):
        return _build()


def _build() -> CertifiedTable:
    cells, guesses = Cells(), lloyd_tree(DEPTH)
    edges: list[Any] = [ball(0.0), None]
    thresholds: list[tuple[float, ...]] = []
    centroids: list[tuple[float, ...]] = []
    gains: list[float] = []
    radii: list[float] = []
    ties: list[float] = []

    def settle(entries: list[Any]) -> tuple[float, ...]:
        pairs = [nearest_float32(x) for x in entries]
        radii.extend(float(x.rad()) for x in entries)
        ties.extend(tie for _, tie in pairs)
        return tuple(value for value, _ in pairs)

    for depth in range(1, DEPTH + 1):
        if depth > 1:
            half = guesses.thresholds[depth - 1][2 ** (depth - 2) :]
            splits = [
                enclose_split(cells, a, b, float(g), depth) for a, b, g in zip(edges[:-1], edges[1:], half, strict=True)
            ]
            thresholds.append(settle(splits))
            edges = [edge for pair in zip(edges[:-1], splits, strict=True) for edge in pair] + [None]
        means = [cells.mean(a, b) for a, b in pairwise(edges)]
        masses = [cells.mass(a, b) for a, b in pairwise(edges)]
        centroids.append(settle(means))
        gains.extend(settle([gain_of(means, masses)]))
    return CertifiedTable(tuple(thresholds), tuple(centroids), tuple(gains), max(radii), min(ties))


def gain_of(means: list[Any], masses: list[Any]) -> Any:
    """D(t-1) - D(t): twice the sum over sibling pairs of the positive half of their between-variance.

    At depth 1 the siblings are the two halves of the line, +-c_1 with mass 1/2 each: c_1^2.
    """
    if len(means) == 1:
        return means[0] * means[0]
    pairs = zip(means[::2], means[1::2], masses[::2], masses[1::2], strict=True)
    return 2 * sum(((n - m) * (n - m) * p * q / (p + q) for m, n, p, q in pairs), start=ball(0.0))


def exact(value: float) -> Fraction:
    """A float's exact rational value.

    >>> exact(0.5)
    Fraction(1, 2)
    """
    return Fraction(value)
