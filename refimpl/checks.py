"""Reading arguments: float64 arrays of shapes in the project's letters, and errors that name the argument."""

from __future__ import annotations

import math
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


class ArgumentError(ValueError):
    """An argument of a reference function is unusable; the message names it, what was expected and what came."""


class Sizes(dict[str, int]):
    """The sizes that a call's axis letters are bound to so far, such as ``{"H": 2, "d": 64}``."""

    def bind(self, name: str, shape: tuple[int, ...], axes: str) -> None:
        """Match ``shape`` against letters or numbers like ``"H G d"``; a letter seen before must keep its size."""
        letters = axes.split()
        bound = dict(self)
        fits = len(shape) == len(letters) and all(
            size == (int(letter) if letter.isdigit() else bound.setdefault(letter, size))
            for letter, size in zip(letters, shape, strict=True)
        )
        if not fits:
            known = ", ".join(f"{k}={self[k]}" for k in dict.fromkeys(letters) if k in self)
            wanted = f"[{', '.join(letters)}]" + (f" with {known}" if known else "")
            raise ArgumentError(f"{name}: expected shape {wanted}, got {list(shape)}")
        self.update(bound)


def real(
    name: str, value: Any, axes: str, sizes: Sizes, *, minus_infinity: bool = False, read_later: bool = False
) -> FloatArray:
    """Return ``value`` as float64 of shape ``axes``.

    ``minus_infinity`` allows -inf (log-masses of empty sets); ``read_later`` leaves finiteness to be checked on the
    part that is read, since what lies outside may hold anything. Raises ArgumentError for another shape, a type that is
    not numeric, NaN or infinity, with the first bad index (AMB-26).
    """
    array = np.asarray(value)
    if array.dtype.kind not in "fiu" or array.dtype.itemsize > 8:
        raise ArgumentError(f"{name}: expected real numbers, got dtype {array.dtype}")
    sizes.bind(name, array.shape, axes)
    array = array.astype(np.float64)
    bad = ~np.isfinite(array) & (not read_later)
    if minus_infinity:
        bad &= array != -np.inf
    if bad.any():
        index = [int(i) for i in np.argwhere(bad)[0]]
        raise ArgumentError(f"{name}: expected finite values, got {array[tuple(index)]} at {index}")
    return array


def integers(
    name: str, value: Any, axes: str, sizes: Sizes, *, low: int | None = None, high: int | None = None
) -> IntArray:
    """Return ``value`` as int64 of shape ``axes`` with every entry in ``low..high`` (inclusive, None: unbounded).

    Raises ArgumentError for another shape, a type that is not integer, or an entry out of range.
    """
    array = np.asarray(value)
    if array.dtype.kind not in "iu" and array.size:
        raise ArgumentError(f"{name}: expected integers, got dtype {array.dtype}")
    sizes.bind(name, array.shape, axes)
    array = array.astype(np.int64)
    bad = np.zeros(array.shape, dtype=bool)
    if low is not None:
        bad |= array < low
    if high is not None:
        bad |= array > high
    if bad.any():
        index = [int(i) for i in np.argwhere(bad)[0]]
        raise ArgumentError(f"{name}: expected values in {low}..{high}, got {array[tuple(index)]} at {index}")
    return array


def whole(name: str, value: Any, *, low: int | None = None, high: int | None = None) -> int:
    """Return ``value`` as an int in ``low..high``; raises ArgumentError for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise ArgumentError(f"{name}: expected a whole number, got {value!r}")
    if (low is not None and value < low) or (high is not None and value > high):
        span = f"at least {low}" if high is None else f"at most {high}" if low is None else f"in {low}..{high}"
        raise ArgumentError(f"{name}: expected {span}, got {value}")
    return int(value)


def number(name: str, value: Any, *, low: float | None = None, above: float | None = None) -> float:
    """Return ``value`` as a float, at least ``low`` and above ``above``; raises ArgumentError for anything else.

    >>> number("floor", 1, above=0)
    1.0
    """
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ArgumentError(f"{name}: expected a finite number, got {value!r}")
    if low is not None and value < low:
        raise ArgumentError(f"{name}: expected a number of at least {low}, got {value!r}")
    if above is not None and value <= above:
        raise ArgumentError(f"{name}: expected a number above {above}, got {value!r}")
    return float(value)


def choice(name: str, value: Any, allowed: tuple[Any, ...]) -> Any:
    """Return ``value`` if it is one of ``allowed``; raises ArgumentError that lists them otherwise."""
    for item in allowed:
        if type(item) is type(value) and item == value:
            return value
    raise ArgumentError(f"{name}: expected one of {', '.join(map(repr, allowed))}, got {value!r}")
