"""How a call's arrays lie in the port's memory: fresh, strided between poison, interleaved, far apart, or reused.

Results must not depend on it. Kernels that rebuild an address from a shape, read past a view, or answer from what an
earlier call left behind do (A1, D12, K4, K6 of the fault list).
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

POISONS = (float("nan"), -3.0e30, 7.0)
"""What results hold before a call: NaN and two finite patterns, since one of them may look like a right answer."""


class Giver(Protocol):
    """Makes an array of the port's framework out of a NumPy array."""

    def give(self, array: Any, dtype: str | None) -> Any:
        """A fresh array; ``dtype`` is the declared input dtype or None."""

    def spread(self, array: Any, dtype: str | None, reach: int) -> Any:
        """The content as a view whose first axis spans ``reach`` elements or more, on a GPU; elsewhere fresh."""


def poisoned(shape: list[int], dtype: str, poison: int) -> Any:
    """A NumPy array of ``shape`` filled with poison pattern number ``poison``; integers get 113."""
    carrier = "float32" if dtype == "bfloat16" else dtype
    value = 113 if np.dtype(carrier).kind in "iu" else min(POISONS[poison % len(POISONS)], float(np.finfo(carrier).max))
    if np.dtype(carrier).kind == "f" and np.isfinite(value):
        value = max(value, float(np.finfo(carrier).min))
    return np.full(shape, value, dtype=carrier)


def _guard(array: Any) -> Any:
    return np.nan if array.dtype.kind == "f" else 113


def plain(giver: Giver, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Every array fresh and contiguous."""
    return {name: giver.give(array, dtypes.get(name)) for name, array in arrays.items()}


def strided(giver: Giver, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Every array a view into a larger buffer of poison: first two axes stored swapped, an edge of poison around them.

    Every other place of the first axis holds poison too, so that its stride is no contiguous one even beside an axis of
    length 1. The last axis of arrays with three axes or more stays contiguous, as kernels may ask.
    """
    views = {}
    for name, array in arrays.items():
        if array.ndim < 2 or array.size == 0:
            storage = np.full(array.size + 5, _guard(array), dtype=array.dtype)
            storage[3 : 3 + array.size] = array.ravel()
            views[name] = giver.give(storage, dtypes.get(name))[3 : 3 + array.size].reshape(array.shape)
            continue
        first, second, *rest = array.shape
        storage = np.full((second + 2, 2 * first + 2, *rest), _guard(array), dtype=array.dtype)
        storage[1:-1, 1:-1:2] = array.swapaxes(0, 1)
        views[name] = giver.give(storage, dtypes.get(name))[1:-1, 1:-1:2].swapaxes(0, 1)
    return views


def interleaved(giver: Giver, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Key and value pools as the two halves of one buffer [blocks, 2, B, H, d]; the rest fresh."""
    views = plain(giver, arrays, dtypes)
    both = giver.give(np.stack([arrays["key_pool"], arrays["value_pool"]], axis=1), dtypes.get("key_pool"))
    return {**views, "key_pool": both[:, 0], "value_pool": both[:, 1]}


REACH = 3 * 2**30
"""Elements between the first block and the last: 32-bit offsets of the last third wrap."""


def far(giver: Giver, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Key and value pools as views whose blocks lie far apart, over more than 2^31 elements; the rest fresh.

    That takes 13 to 26 GB: in a CPU's memory the pools are plain.
    """
    views = plain(giver, arrays, dtypes)
    pools = {name: giver.spread(arrays[name], dtypes.get(name), REACH) for name in ("key_pool", "value_pool")}
    return {**views, **pools}


ORDERED = ("gains", "minimum", "maximum")
"""Arrays that may not be rolled: a port may refuse gains that increase, and a minimum above its maximum."""


def older(name: str, array: Any) -> Any:
    """Other content of the same shape and kind: floats and codes rolled along their last axis.

    Each array by its own number of places: the products of queries and keys that roll together stay the same.
    Indices are rolled along the first: rows of a block table with their lengths and pages, which stay legal together.
    """
    if not array.ndim or name in ORDERED:
        return array
    if array.dtype.kind == "f" or array.dtype.itemsize == 1:
        return np.roll(array, 1 + zlib.crc32(name.encode()) % 7, axis=-1)
    return np.roll(array, 1, axis=0)


def reuse(giver: Giver, arrays: Mapping[str, Any], dtypes: Mapping[str, str]) -> dict[str, Any]:
    """Fresh buffers that first hold other content; the worker calls once, rewrites them, and calls again."""
    return plain(giver, {name: older(name, array) for name, array in arrays.items()}, dtypes)


WAYS: dict[str, Callable[[Giver, Mapping[str, Any], Mapping[str, str]], dict[str, Any]]] = {
    "plain": plain,
    "strided": strided,
    "interleaved": interleaved,
    "far": far,
    "reuse": reuse,
}
