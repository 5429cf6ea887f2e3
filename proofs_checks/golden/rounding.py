"""Rounding once: 50 digits to the nearest float64 or float32, bounds upward to three digits."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofs_checks.numbers import FORMATS

NOISE = 1e-12
"""Relative error that float64 may have in a bound on some machine; the files must not depend on it."""


class RoundingError(ValueError):
    """A bound lies so near a step of three digits that float64 noise would show; change the case's inputs."""


def fraction(x: Any) -> Fraction:
    """An mpf, a float or a rational as a Fraction.

    >>> from mpmath import mpf
    >>> fraction(mpf(-0.75)), fraction(0.5)
    (Fraction(-3, 4), Fraction(1, 2))
    """
    if hasattr(x, "man_exp"):
        mantissa, exponent = x.man_exp  # without the sign
        return Fraction(-mantissa if x < 0 else mantissa) * Fraction(2) ** exponent
    return Fraction(x)


def round_once(x: Any, dtype: str = "float64") -> float:
    """The nearest number of ``dtype``, ties to even; infinities stay.

    >>> round_once(Fraction(1, 3), "float32") == float(np.float32(1 / 3))
    True
    """
    if not isinstance(x, Fraction) and x in (math.inf, -math.inf):
        return float(x)
    exact = fraction(x)
    if dtype == "float64":
        return exact.numerator / exact.denominator  # Python rounds a quotient of integers once
    if exact == 0:
        return 0.0
    form = FORMATS[dtype]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent  # now 2^exponent <= size < 2^(exponent + 1)
    unit = Fraction(2) ** (max(exponent, form.smallest_exponent) - form.digits + 1)
    return float(round(exact / unit) * unit)


def rounded(values: Any) -> NDArray[np.float64]:
    """Nested lists of mpf, Fractions or floats, every entry rounded once to float64."""
    exact = np.asarray(values, dtype=object)
    return np.array([round_once(x) for x in exact.ravel()], dtype=np.float64).reshape(exact.shape)


def three_digits_up(bounds: Any) -> NDArray[np.float32]:
    """Bounds rounded up to three decimal digits, then up to float32; 0 and infinity stay.

    Raises RoundingError where noise of float64 could change the result.

    >>> three_digits_up(np.array([0.12301, 0.0, np.inf])).tolist()
    [0.12400000542402267, 0.0, inf]
    """
    bounds = np.asarray(bounds, dtype=np.float64)
    up, other = (_up(bounds * (1 + i * NOISE)) for i in (1, 3))
    if (up != other).any():
        raise RoundingError(f"bound {bounds[up != other][0]!r} lies on a step of three digits")
    return up


def _up(bounds: NDArray[np.float64]) -> NDArray[np.float32]:
    texts = [_three_digits(x) if 0 < x < math.inf else x for x in bounds.ravel().tolist()]
    single = np.array(texts, dtype=np.float64).astype(np.float32)
    low = single.astype(np.float64) < np.array(texts, dtype=np.float64)
    return np.where(low, np.nextafter(single, np.float32(np.inf)), single).reshape(bounds.shape).astype(np.float32)


def _three_digits(x: float) -> float:
    """The least number of three decimal digits that is not below x, and lies at most one float64 step under it."""
    digits, exponent = f"{x:.17e}".split("e")
    steps = math.ceil(Fraction(digits) * 100)
    return float(f"{steps}e{int(exponent) - 2}")
