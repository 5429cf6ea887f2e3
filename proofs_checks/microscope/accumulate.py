"""Accumulators of fixed size: they take any number of observations, merge, and travel between processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np

from refimpl.checks import FloatArray, IntArray

WAITING = 1 << 18
"""Observations of a histogram that wait to be counted; with the filled bins they bound its memory."""


class Accumulator(Protocol):
    """What every accumulator can do: swallow another one of its kind."""

    def merge(self, other: Any) -> None:
        """Add the observations of ``other``."""


@dataclass
class Mean:
    """A running mean.

    >>> mean = Mean()
    >>> mean.add(np.array([1.0, 2.0])); mean.add(np.array([6.0]))
    >>> mean.value, mean.count
    (3.0, 3)
    """

    total: float = 0.0
    count: int = 0

    def add(self, observations: FloatArray) -> None:
        """Take in all entries of an array."""
        self.total += float(np.sum(observations))
        self.count += int(np.size(observations))

    def merge(self, other: Mean) -> None:
        """Add the observations of ``other``."""
        self.total += other.total
        self.count += other.count

    @property
    def value(self) -> float | None:
        """The mean, None without observations."""
        return self.total / self.count if self.count else None


@dataclass
class Values:
    """Keeps every observation: only for populations that grow with pages, not with steps."""

    parts: list[FloatArray] = field(default_factory=list)

    def add(self, observations: FloatArray) -> None:
        """Take in all entries of an array."""
        self.parts.append(np.ravel(observations))

    def merge(self, other: Values) -> None:
        """Add the observations of ``other``."""
        self.parts.extend(other.parts)

    @property
    def array(self) -> FloatArray:
        """All observations in one array."""
        return np.concatenate(self.parts) if self.parts else np.zeros(0)


class Histogram:
    """Percentiles of a stream in bounded memory: equal bins over ``low..high`` and the exact extremes.

    A percentile is off by at most half a bin (``resolution``), which is why it can be quoted to fixed digits. Values
    outside the span are counted in the end bins.

    >>> h = Histogram(0.0, 1.0, 1000)
    >>> h.add(np.arange(101) / 100)
    >>> bool(abs(h.percentile(50) - 0.5) < 2 * h.resolution), h.largest
    (True, 1.0)
    """

    def __init__(self, low: float, high: float, bins: int) -> None:
        self.low, self.high, self.bins = low, high, bins
        self.largest, self.smallest = -np.inf, np.inf
        self._filled, self._counts = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
        self._waiting: list[IntArray] = []
        self._waiting_size = 0

    @property
    def resolution(self) -> float:
        """Half a bin."""
        return (self.high - self.low) / self.bins / 2

    @property
    def count(self) -> int:
        """How many observations came."""
        return int(self._counts.sum()) + self._waiting_size

    @property
    def counts(self) -> IntArray:
        """Observations of every bin, [bins]."""
        self._settle()
        dense = np.zeros(self.bins, dtype=np.int64)
        dense[self._filled] = self._counts
        return dense

    def add(self, observations: FloatArray) -> None:
        """Take in all entries of an array."""
        x = np.ravel(observations)
        if x.size == 0:
            return
        self.largest, self.smallest = max(self.largest, float(x.max())), min(self.smallest, float(x.min()))
        index = ((np.clip(x, self.low, self.high) - self.low) * (self.bins / (self.high - self.low))).astype(np.int64)
        self._waiting.append(np.minimum(index, self.bins - 1))
        self._waiting_size += x.size
        if self._waiting_size > WAITING:
            self._settle()

    def merge(self, other: Histogram) -> None:
        """Add the observations of ``other``, which must have the same bins."""
        self._settle()
        other._settle()
        self._take(other._filled, other._counts)
        self.largest, self.smallest = max(self.largest, other.largest), min(self.smallest, other.smallest)

    def percentile(self, percent: float) -> float | None:
        """The order statistic at ``percent``, interpolated linearly between neighbours; None without observations."""
        if not self.count:
            return None
        rank = percent / 100 * (self.count - 1)
        low, high = (self._order_statistic(r) for r in (math.floor(rank), math.ceil(rank)))
        return low + (rank - math.floor(rank)) * (high - low)

    def _order_statistic(self, rank: int) -> float:
        self._settle()
        index = int(self._filled[np.searchsorted(np.cumsum(self._counts), rank, side="right")])
        return self.low + (2 * index + 1) * self.resolution

    def _settle(self) -> None:
        """Count the bins that wait."""
        if self._waiting:
            bins, counts = np.unique(np.concatenate(self._waiting), return_counts=True)
            self._waiting, self._waiting_size = [], 0
            self._take(bins, counts)

    def _take(self, bins: IntArray, counts: IntArray) -> None:
        self._filled, place = np.unique(np.concatenate([self._filled, bins]), return_inverse=True)
        both = np.concatenate([self._counts, counts])
        self._counts = np.zeros(len(self._filled), dtype=np.int64)
        np.add.at(self._counts, place, both)

    def __getstate__(self) -> dict[str, Any]:
        """Only filled bins travel."""
        self._settle()
        return self.__dict__


class LogHistogram(Histogram):
    """Percentiles of magnitudes: bins of 1e-5 decades from 1e-12 to 1e3, so within 1.2e-5 of the value itself.

    The paper used 0.01-decade bins; ours are finer so that four digits can be compared.

    >>> h = LogHistogram()
    >>> h.add(np.array([0.1, 1.0, 10.0]))
    >>> round(h.percentile(50), 3), h.largest_magnitude
    (1.0, 10.0)
    """

    def __init__(self) -> None:
        super().__init__(-12.0, 3.0, 1_500_000)
        self.largest_magnitude = 0.0

    def add(self, observations: FloatArray) -> None:
        """Take in the magnitudes of an array."""
        x = np.abs(np.ravel(observations))
        if x.size:
            largest = max(self.largest_magnitude, float(x.max()))
            super().add(np.log10(np.maximum(x, 1e-12)))
            self.largest_magnitude = largest

    def merge(self, other: Histogram) -> None:
        """Add the observations of ``other``."""
        super().merge(other)
        if isinstance(other, LogHistogram):
            self.largest_magnitude = max(self.largest_magnitude, other.largest_magnitude)

    def _order_statistic(self, rank: int) -> float:
        return float(10.0 ** super()._order_statistic(rank))


class Results(dict[tuple[Any, ...], Any]):
    """Accumulators under keys such as ("frontier", "share_average", 256, "Locks r8i4", "mass")."""

    def at(self, kind: Callable[[], Any], *key: Any) -> Any:
        """The accumulator under ``key``, made with ``kind()`` when it is new."""
        if key not in self:
            self[key] = kind()
        return self[key]

    def merge(self, other: Results) -> Self:
        """Add the observations of ``other`` key by key."""
        for key, accumulator in other.items():
            if key in self:
                self[key].merge(accumulator)
            else:
                self[key] = accumulator
        return self
