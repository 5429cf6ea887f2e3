"""Lloyd-Max codebooks in mpmath with 50 digits: midpoints of means, solved for both laws."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits_readkv import conditional_mean
from refimpl.readkv.codebooks import lloyd_max_codebook as in_float64

ENOUGH = mpf(10) ** -40


def sphere_mean(d: int) -> Callable[[Any, Any], Any]:
    """E[X | low < X < high], 0 <= low < high, of sqrt(d) times a coordinate of a uniform unit vector of R^d.

    The density is c (1 - x^2/d)^((d-3)/2); X^2/d has the law Beta(1/2, (d-1)/2).
    """
    c = mp.gamma(mpf(d) / 2) / (mp.sqrt(mp.pi * d) * mp.gamma(mpf(d - 1) / 2))

    def tail(x: Any) -> Any:
        return c * d / (d - 1) * (1 - mpf(x) ** 2 / d) ** (mpf(d - 1) / 2)

    def mass(low: Any, high: Any) -> Any:
        squares = mpf(low) ** 2 / d, mpf(high) ** 2 / d
        return mp.betainc(mpf(1) / 2, mpf(d - 1) / 2, squares[0], squares[1], regularized=True) / 2

    return lambda low, high: (tail(low) - tail(high)) / mass(low, high)


def lloyd_max_codebook(bits: Any, law: Any, d: Any) -> Any:
    """`lloyd_max_codebook`; the search starts at the reference's codebook, and only the equations decide."""
    mean, end = (conditional_mean, mp.inf) if law == "normal" else (sphere_mean(int(d)), mp.sqrt(d))
    cells = 2 ** (int(bits) - 1)
    start = [mpf(float(t)) for t in in_float64(bits=int(bits), law=law, d=int(d))["thresholds"][cells:]]

    def means(inner: Any) -> Any:
        return [mean(a, b) for a, b in pairwise([mpf(0), *inner, end])]

    def off(*inner: Any) -> Any:
        return [t - (a + b) / 2 for t, (a, b) in zip(inner, pairwise(means(inner)), strict=True)]

    inner = list(mp.findroot(off, start, tol=ENOUGH)) if start else []
    levels = means(inner)
    return {
        "levels": [-x for x in reversed(levels)] + levels,
        "thresholds": [*(-t for t in reversed(inner)), mpf(0), *inner],
    }
