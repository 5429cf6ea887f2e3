"""Budgets: rates to whole refinements, and the choice of an integer K/V split on development data (App. F.1, F.5)."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

from refimpl.checks import ArgumentError, whole

Rate = int | float | Fraction
"""Mean prefix depth per item, bits per scalar. A float stands for its shortest decimal, 0.29 for 29/100 (AMB-33)."""


def exact_rate(name: str, rate: Rate) -> Fraction:
    """A rate as a fraction; ArgumentError unless it is a finite number that is not negative.

    >>> exact_rate("rate", 0.29)
    Fraction(29, 100)
    """
    if isinstance(rate, bool) or not isinstance(rate, (int, float, Fraction)) or not math.isfinite(rate):
        raise ArgumentError(f"{name}: expected a finite number, got {rate!r}")
    value = Fraction(repr(float(rate))) if isinstance(rate, float) else Fraction(rate)
    if value < 0:
        raise ArgumentError(f"{name}: expected a nonnegative rate, got {rate!r}")
    return value


def budget_of_rate(*, rate: Rate, items: int, stored_depth: int, name: str = "rate") -> int:
    """Whole refinements of a mean depth over N items: floor(rate N) (AMB-25).

    Args:
        rate: mean depth in bits per scalar, 0..stored_depth. items: N, H d or H T when pooled, d or T per head.

    Raises ArgumentError for a rate that is negative, not finite or above the stored depth.

    Source: ReadKV Sec. 3.3, App. F.1.

    >>> budget_of_rate(rate=2.5, items=3, stored_depth=8)
    7
    """
    value = exact_rate(name, rate)
    if value > stored_depth:
        raise ArgumentError(f"{name}: expected at most the stored depth {stored_depth}, got {rate!r}")
    return math.floor(value * whole("items", items, low=0))


def payload_bits(*, key_refinements: int, value_refinements: int, tokens: int, channels: int) -> int:
    """Payload bits that refinements read: T per key refinement, d per value refinement.

    Source: ReadKV Sec. 3.3.

    >>> payload_bits(key_refinements=2, value_refinements=3, tokens=10, channels=4)
    32
    """
    return tokens * key_refinements + channels * value_refinements


def mean_payload_rate(*, key_budget: int, value_budget: int, heads: int, tokens: int, channels: int) -> Fraction:
    """R = (T B_K + d B_V) / (2 H T d), the mean payload read per scalar in bits; equals (R_K + R_V) / 2.

    Source: ReadKV Sec. 3.3.

    Theorem 2's instance has two one-head tokens of m channels: B_K = 1 and B_V = 8 read 2 + 1/(2m) bits.

    >>> mean_payload_rate(key_budget=1, value_budget=8, heads=1, tokens=2, channels=128)
    Fraction(513, 256)
    """
    bits = payload_bits(key_refinements=key_budget, value_refinements=value_budget, tokens=tokens, channels=channels)
    return Fraction(bits, 2 * heads * tokens * channels)


class Split(NamedTuple):
    """Mean depths of the two stages, R_K and R_V, bits per scalar."""

    key_rate: int
    value_rate: int


def integer_splits(*, rate: Rate, stored_depth: int) -> list[Split]:
    """All whole (R_K, R_V) with mean ``rate`` and each within 0..stored_depth, by rising R_K.

    Raises ArgumentError if 2 rate is not whole or the rate is out of range.

    Source: ReadKV App. F.1 (Budget Realization).

    >>> integer_splits(rate=2, stored_depth=8)[2:4]
    [Split(key_rate=2, value_rate=2), Split(key_rate=3, value_rate=1)]
    """
    both = 2 * exact_rate("rate", rate)
    if both.denominator != 1 or both > 2 * stored_depth:
        raise ArgumentError(f"rate: expected a multiple of 1/2 up to the stored depth {stored_depth}, got {rate!r}")
    total = int(both)
    return [Split(k, total - k) for k in range(max(0, total - stored_depth), min(total, stored_depth) + 1)]


def choose_split(*, rate: Rate, stored_depth: int, development_loss: Callable[[Split], float]) -> Split:
    """The integer split of least loss on development data, lower R_K first among equals; frozen before any test.

    Args:
        rate, stored_depth: as `integer_splits`. development_loss: called once per split.

    Raises ArgumentError for a loss that is NaN.

    Source: ReadKV App. F.1, F.5.

    >>> choose_split(rate=2, stored_depth=8, development_loss=lambda s: abs(s.key_rate - 3))
    Split(key_rate=3, value_rate=1)
    """
    splits = integer_splits(rate=rate, stored_depth=stored_depth)
    losses = [float(development_loss(split)) for split in splits]
    if any(math.isnan(loss) for loss in losses):
        raise ArgumentError(f"development_loss: expected numbers, got NaN among {losses}")
    return splits[losses.index(min(losses))]
