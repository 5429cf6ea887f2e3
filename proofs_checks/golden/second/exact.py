"""The numbers of the second reference: fractions as far as they reach, long floats behind a root or an exponential."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from mpmath import mpf
from mpmath.libmp import to_rational

RESULT_DIGITS = 50  # what a result is good for
WORKING_DIGITS = 70  # what it is computed with


def fractions(name: str, values: Any) -> Any:
    """Turn nested lists of numbers into the same lists of exact fractions.

    `name` is the argument's name, for the ValueError that NaN or an infinity raises (AMB-26).
    """
    if isinstance(values, list | tuple):
        return [fractions(f"{name}[{index}]", value) for index, value in enumerate(values)]
    if isinstance(values, mpf):
        return fraction_of(values)
    try:
        return Fraction(values)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{name}: expected a finite number, got {values!r}") from error


def fraction_of(number: mpf) -> Fraction:
    """Give the exact value of a binary float of any length."""
    numerator, denominator = to_rational(number._mpf_)
    return Fraction(int(numerator), int(denominator))


def real(number: Fraction) -> mpf:
    """Round a fraction to the working precision."""
    return mpf(number.numerator) / mpf(number.denominator)


def dot(left: Iterable[Any], right: Iterable[Any]) -> Any:
    """Sum the products of two lists; exact for fractions."""
    return sum((a * b for a, b in zip(left, right, strict=True)), Fraction(0))


def transposed(matrix: list[list[Any]]) -> list[list[Any]]:
    """Swap rows and columns of a matrix with at least one row."""
    return [list(column) for column in zip(*matrix, strict=True)]
