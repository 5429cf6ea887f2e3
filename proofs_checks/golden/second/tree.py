"""The Gaussian Lloyd tree of ReadKV, from its definition (ReadKV App. D.1).

Every node is an interval of the normal law. It is cut at the point halfway between the conditional means of the two
parts; each part becomes a child and stores its mean. Inside a fixed interval there is exactly one such point, since
t - (mean below t + mean above t) / 2 rises with t for a log-concave law.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import mpmath
from mpmath import mpf

from proofs_checks.golden.second.exact import WORKING_DIGITS, fraction_of, fractions

LEAF_BITS = 8
FLOAT32_BITS = 24


@dataclass(frozen=True)
class Tree:
    """thresholds[l]: 2^l cuts of level l; centroids[t]: 2^t means at depth t; gains[t]: what bit t + 1 removes."""

    thresholds: list[list[mpf]]
    centroids: list[list[mpf]]
    gains: list[mpf]


def mass(low: mpf, high: mpf) -> mpf:
    """Give the probability that a normal variable falls between two points; the tails are taken on the near side."""
    if low > 0:
        return mpmath.ncdf(-low) - mpmath.ncdf(-high)
    return mpmath.ncdf(high) - mpmath.ncdf(low)


def conditional_mean(low: mpf, high: mpf) -> mpf:
    """Give E[Z | low < Z < high] for a normal Z: the density's drop over the interval, divided by its mass."""
    return (mpmath.npdf(low) - mpmath.npdf(high)) / mass(low, high)


def split_point(low: mpf, high: mpf) -> mpf:
    """Solve t = midpoint of the means of (low, t) and (t, high), by Newton's method from the interval's mean.

    A mean moves with the cut at the rate density x distance to the mean / mass, which gives the derivative.
    """
    cut = conditional_mean(low, high)
    for _ in range(WORKING_DIGITS):
        below, above = conditional_mean(low, cut), conditional_mean(cut, high)
        density = mpmath.npdf(cut)
        drift = density * (cut - below) / mass(low, cut) + density * (above - cut) / mass(cut, high)
        step = (cut - (below + above) / 2) / (1 - drift / 2)
        cut -= step
        if not low < cut < high:
            break
        if abs(step) <= mpf(10) ** (5 - WORKING_DIGITS):
            return cut
    raise ArithmeticError(f"no split point found between {low} and {high}")


@cache
def exact_tree() -> Tree:
    """Build the tree to at least 50 digits (ReadKV App. D.1).

    A level's gain is D(t-1) - D(t). With D(t) = 1 - sum of mass x mean^2, that is how much this sum grows.
    """
    with mpmath.workdps(WORKING_DIGITS):
        edges = [-mpmath.inf, mpmath.inf]
        thresholds: list[list[mpf]] = []
        centroids: list[list[mpf]] = [[mpf(0)]]
        explained = [mpf(0)]
        for _ in range(LEAF_BITS):
            cuts = [split_point(low, high) for low, high in pairwise(edges)]
            thresholds.append(cuts)
            edges = sorted([*edges, *cuts])
            cells = list(pairwise(edges))
            centroids.append([conditional_mean(low, high) for low, high in cells])
            explained.append(
                mpmath.fsum(mass(*cell) * mean**2 for cell, mean in zip(cells, centroids[-1], strict=True))
            )
        gains = [after - before for before, after in pairwise(explained)]
    return Tree(thresholds, centroids, gains)


def to_float32(number: mpf) -> Fraction:
    """Round once to the nearest float32 (ties to even), as an exact fraction; for numbers in its normal range."""
    with mpmath.workprec(FLOAT32_BITS):
        return fraction_of(+number)


@dataclass(frozen=True)
class DeployedTree:
    """The float32 tables that readers use, every entry rounded once from the exact tree (Lemma 7)."""

    thresholds: list[list[Fraction]]
    centroids: list[list[Fraction]]
    gains: list[Fraction]


@cache
def deployed_tree() -> DeployedTree:
    """Round the exact tree to float32: thresholds, centroids and gains alike (ReadKV App. D.1, Lemma 7)."""
    exact = exact_tree()
    return DeployedTree(
        [[to_float32(cut) for cut in level] for level in exact.thresholds],
        [[to_float32(mean) for mean in level] for level in exact.centroids],
        [to_float32(gain) for gain in exact.gains],
    )


def encode(z: Any) -> int:
    """Give the 8-bit path of a standardised scalar, first bit most significant (ReadKV Sec. 3.1; AMB-17)."""
    exact = fractions("z", z)
    path = 0
    for level in deployed_tree().thresholds:
        path = 2 * path + (1 if exact >= level[path] else 0)
    return path


def decode(code: int, depth: int) -> Fraction:
    """Reconstruct from the first `depth` bits of a path; no bit gives 0, the calibrated mean (ReadKV Sec. 3.1)."""
    return deployed_tree().centroids[depth][code >> (LEAF_BITS - depth)]
