"""Kinds of arguments: a valid value, spoilt ones that must be refused by name, limits that must be accepted."""

from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

SIZES = {"H": 2, "G": 3, "P": 4, "B": 5, "S": 6, "r": 7, "d": 8, "T": 18, "N": 2, "M": 9, "C": 4, "K": 1}
"""Sizes of the axis letters in all valid calls: T = 18 tokens are P = 4 pages of B = 5; a number is its own size."""


def shape_of(axes):
    return tuple(int(a) if a.isdigit() else SIZES[a] for a in axes.split())


class Kind:
    """``value`` is valid; ``spoilt()`` yields (value, text that the refusal must hold); ``accepted()`` valid limits."""

    axes: str | None = None
    value: Any = None

    def spoilt(self):
        return ()

    def accepted(self):
        return ()


@dataclass(eq=False)
class Free(Kind):
    """An argument that is not checked, such as an object or a callable; ``axes`` are those that it binds."""

    value: Any
    axes: str | None = None


class ArrayKind(Kind):
    """What floats and integers share: number of axes, wrong types, one bad entry at ``at`` (the last one if None)."""

    def array(self, fill):
        made = np.full(shape_of(self.axes), fill) if np.ndim(fill) == 0 else np.array(fill)
        return made.reshape(shape_of(self.axes))

    def place(self):
        return (-1,) * self.value.ndim if self.at is None else self.at

    def where(self):
        return [i % n for i, n in zip(self.place(), self.value.shape, strict=True)]

    def with_entry(self, entry, dtype):
        array = self.value.astype(dtype)
        array[self.place()] = entry
        return array

    def wrong_axes(self):
        if not self.rank_free:
            wrong = [self.value[None], *([self.value[0], self.value.ravel()[0]] if self.value.ndim else [])]
            yield from ((a, f"got {list(np.shape(a))}") for a in wrong)

    def wrong_types(self, *dtypes):
        yield from ((self.value.astype(t), f"got dtype {self.value.astype(t).dtype}") for t in dtypes)


class Reals(ArrayKind):
    """Finite floats of shape ``axes``, at least ``low``, above ``above``.

    ``read_later``: only a part is checked to be finite, so that the place of a bad entry is named otherwise.
    """

    def __init__(self, axes, fill=None, *, low=None, above=None, at=None, rank_free=False, optional=False, **rest):
        self.axes, self.low, self.above, self.at, self.rank_free = axes, low, above, at, rank_free
        self.optional = optional
        self.minus_infinity, self.read_later = rest.pop("minus_infinity", False), rest.pop("read_later", False)
        assert not rest
        drawn = np.random.default_rng(len(axes)).uniform(0.5, 1.5, shape_of(axes))
        self.value = drawn if fill is None else self.array(fill).astype(np.float64)

    def spoilt(self):
        yield from self.wrong_axes()
        yield from self.wrong_types(complex, bool, str, object, np.longdouble)
        for bad in (np.nan, np.inf, -np.inf):
            if not (self.minus_infinity and bad < 0):
                yield self.with_entry(bad, np.float64), f"got {bad}" + (f" at {self.where()}") * (not self.read_later)
        if self.low is not None:
            yield self.with_entry(np.nextafter(self.low, -np.inf), np.float64), "got "
        if self.above is not None:
            yield from ((self.with_entry(bad, np.float64), "got ") for bad in (self.above, self.above - 1.0))

    def accepted(self):
        yield self.value.tolist()
        yield self.value.astype(np.float32)
        if self.optional:
            yield None
        if self.minus_infinity:
            yield self.with_entry(-np.inf, np.float64)
        if self.low is not None:
            yield self.with_entry(self.low, np.float64)
        if self.above is not None:
            yield self.with_entry(self.above + 1e-3, np.float64)


class Integers(ArrayKind):
    """Integers of shape ``axes`` in ``low..high``; ``fill`` is the valid entry (``low`` if None)."""

    def __init__(self, axes, low, high, fill=None, *, at=None, rank_free=False, limits=True):
        self.axes, self.low, self.high, self.at, self.rank_free, self.limits = axes, low, high, at, rank_free, limits
        self.value = self.array((0 if low is None else low) if fill is None else fill).astype(np.int64)

    def spoilt(self):
        yield from self.wrong_axes()
        yield from self.wrong_types(np.float64, complex, bool, str)
        for bad in (None if self.low is None else self.low - 1, None if self.high is None else self.high + 1):
            if bad is not None:
                yield self.with_entry(bad, np.int64), "got "

    def accepted(self):
        yield self.value.tolist()
        for limit in (self.low, self.high) if self.limits else ():
            if limit is not None:
                yield self.with_entry(limit, np.int64)


@dataclass(eq=False)
class Whole(Kind):
    """A whole number in ``low..high``; ``accept`` are the limits that other arguments allow (all if None)."""

    value: int
    low: int | None = None
    high: int | None = None
    accept: tuple[int, ...] | None = None

    def spoilt(self):
        for bad in (float(self.value), str(self.value), None, True, [self.value], 1j):
            yield bad, f"expected a whole number, got {bad!r}"
        low = () if self.low is None else (self.low - 1, self.low - 2)
        yield from ((bad, f"got {bad}") for bad in low)
        if self.high is not None:
            yield self.high + 1, f" {self.high + 1}"  # perhaps as a factor: "got 2 items x 3 = 6 > 5"

    def accepted(self):
        yield np.int64(self.value)
        yield from (limit for limit in (self.accept or (self.low, self.high)) if limit is not None)


@dataclass(eq=False)
class Wholes(Kind):
    """Whole numbers, each at least ``low``."""

    value: list[int]
    low: int = 0

    def spoilt(self):
        for bad in (self.low - 1, 2.0, "2", None):
            yield [*self.value, bad], f"got {bad!r}"
        yield [], "got none"

    def accepted(self):
        yield [self.low]


class Choice(Kind):
    """One of ``allowed``, of the same type; the first is the value of the valid call."""

    def __init__(self, *allowed):
        self.value, self.allowed = allowed[0], allowed

    def spoilt(self):
        near = [float(a) for a in self.allowed if type(a) is int] + [str(a).upper() + "s" for a in self.allowed]
        for bad in ("nothing", None, 3, 3.0, [self.value], *near):
            if not any(type(bad) is type(a) and bad == a for a in self.allowed):
                yield bad, f"got {bad!r}"

    def accepted(self):
        yield from self.allowed


@dataclass(eq=False)
class Number(Kind):
    """A finite number, at least ``low``, above ``above``, at most ``high``; ``optional``: None is accepted."""

    value: Any
    low: float | None = None
    above: float | None = None
    high: float | None = None
    optional: bool = False
    accept: tuple[Any, ...] = ()

    def spoilt(self):
        for bad in (float("nan"), float("inf"), -float("inf"), str(self.value), [self.value], True, 1j):
            yield bad, f"got {bad!r}"
        if not self.optional:
            yield None, "got None"
        if self.low is not None:
            yield np.nextafter(self.low, -np.inf).item(), "got "
        if self.above is not None:
            yield from ((self.above, "got "), (-1.0, "got "))
        if self.high is not None:
            yield np.nextafter(self.high, np.inf).item(), "got "

    def accepted(self):
        yield from self.accept
        yield from (limit for limit in (self.low, self.high) if limit is not None)
        yield from () if self.above is None else (self.above + 1e-3,)
        yield from (None,) if self.optional else ()


Rate = partial(Number, low=0)
Scale = partial(Number, None, optional=True, accept=(0.0, -0.5, 2, Fraction(1, 2), np.float32(0.5)))
