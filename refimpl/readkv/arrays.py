"""Arguments of any number of axes: the checks of `refimpl.checks` with axes named by their place."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import FloatArray, IntArray, Sizes, integers, real


def _axes(value: Any) -> str:
    return " ".join(f"axis{i}" for i in range(np.ndim(value)))


def real_array(name: str, value: Any) -> FloatArray:
    """``value`` as float64 of whatever shape; ArgumentError for a dtype that is not real, NaN or infinity.

    >>> real_array("x", [[1, 2]]).dtype.name
    'float64'
    """
    return real(name, value, _axes(value), Sizes())


def integer_array(name: str, value: Any, low: int, high: int) -> IntArray:
    """``value`` as int64 of whatever shape with entries in ``low..high``; ArgumentError otherwise.

    >>> integer_array("codes", 3, 0, 255).tolist()
    3
    """
    return integers(name, value, _axes(value), Sizes(), low=low, high=high)
