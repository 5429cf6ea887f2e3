"""Number formats: unit roundoffs, rounding to a declared dtype, and the precision that a port declares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Format:
    """A binary floating-point format: significand ``digits``, exponent of its smallest normal, NumPy carrier."""

    digits: int
    smallest_exponent: int
    carrier: Any

    @property
    def unit_roundoff(self) -> float:
        """Largest relative error of rounding to nearest, 2^-digits."""
        return 2.0**-self.digits

    @property
    def smallest_normal(self) -> float:
        """Smallest positive normal number."""
        return 2.0**self.smallest_exponent


FORMATS = {
    "bfloat16": Format(8, -126, np.float32),  # NumPy ports get float32 arrays that hold bf16 values
    "float16": Format(11, -14, np.float16),
    "float32": Format(24, -126, np.float32),
    "float64": Format(53, -1022, np.float64),
}


def round_bfloat16(array: Any) -> NDArray[np.float32]:
    """Round float32 values to bf16, to nearest, ties to even; the result is float32. NaN stays NaN.

    The bit form is used because judging must need no more than NumPy on a machine without ml_dtypes.

    >>> round_bfloat16([1.0, 1.00390625, 1.01171875]).tolist()
    [1.0, 1.0, 1.015625]
    """
    values = np.ascontiguousarray(array, dtype=np.float32)
    bits = values.view(np.uint32)
    half = np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    rounded = ((bits + half) & np.uint32(0xFFFF0000)).view(np.float32)  # only NaNs wrap around
    return np.where(np.isnan(values), values, rounded).reshape(np.shape(array))


def bfloat16_from_bits(bits: Any) -> NDArray[np.float32]:
    """float32 values of bf16 bit patterns held in uint16.

    >>> bfloat16_from_bits(np.array([0x3F80, 0xC000], dtype=np.uint16)).tolist()
    [1.0, -2.0]
    """
    return (np.asarray(bits, dtype=np.uint32) << 16).view(np.float32)


def round_to(array: Any, dtype: str) -> NDArray[Any]:
    """``array`` rounded to ``dtype``, in the carrier that NumPy ports receive.

    >>> round_to(np.array([1 / 3]), "float16").dtype, float(round_to(np.array([1 / 3]), "bfloat16")[0])
    (dtype('float16'), 0.333984375)
    """
    if dtype == "bfloat16":
        return round_bfloat16(array)
    with np.errstate(over="ignore"):
        return np.asarray(array).astype(FORMATS[dtype].carrier)


@dataclass(frozen=True)
class Precision:
    """The dtypes that a port declares, and the roundoffs that bounds are made of.

    ``roundoff`` is the error of one arithmetic operation in the accumulation dtype: twice its unit roundoff, since
    tensor cores truncate instead of rounding to nearest.
    """

    input: str = "float32"
    accumulate: str = "float32"
    output: str = "float32"

    @property
    def roundoff(self) -> float:
        """u of one operation in the accumulation dtype, truncation allowed for."""
        return 2.0 * FORMATS[self.accumulate].unit_roundoff

    @property
    def output_roundoff(self) -> float:
        """u of the rounding of a result to the output dtype."""
        return FORMATS[self.output].unit_roundoff

    @property
    def weight_roundoff(self) -> float:
        """u of casting softmax weights to the input dtype for the product with the values; 0 for float32 inputs.

        Kernels with half-precision inputs do so to use tensor cores; with float32 inputs nobody may.
        """
        return FORMATS[self.input].unit_roundoff if self.input in ("bfloat16", "float16") else 0.0

    @property
    def weight_floor(self) -> float:
        """Absolute error of such a cast near zero: flush of everything below the smallest normal."""
        return FORMATS[self.input].smallest_normal if self.input in ("bfloat16", "float16") else 0.0

    @property
    def tiny(self) -> float:
        """Smallest normal of the accumulation dtype: what flush-to-zero may lose in one operation."""
        return FORMATS[self.accumulate].smallest_normal

    @property
    def output_tiny(self) -> float:
        """Smallest normal of the output dtype."""
        return FORMATS[self.output].smallest_normal


REFERENCE = Precision("float64", "float64", "float64")
"""The reference's own precision: its bounds against exact arithmetic are the ports' bounds at these roundoffs."""
