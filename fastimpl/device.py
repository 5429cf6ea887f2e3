"""What kernels need to know of the machine, and the small device functions that they share."""

from __future__ import annotations

import functools
import os

import torch
import triton
import triton.language as tl

INTERPRETED = tl.constexpr(os.environ.get("TRITON_INTERPRET") == "1")
"""Whether kernels run in Triton's interpreter, on the CPU."""

LOG2E = tl.constexpr(1.4426950408889634)
LN2 = tl.constexpr(0.6931471805599453)


@functools.cache
def dependent_launch(device: torch.device) -> dict[str, bool]:
    """Launch options of kernels that begin with `follow`: on Hopper and later the next is set up while one runs."""
    able = has_bulk_copies(device) and not INTERPRETED.value
    return {"DEPENDENT": True, "launch_pdl": True} if able else {"DEPENDENT": False}


@functools.cache
def register_limit(device: torch.device, registers: int) -> dict[str, int]:
    """Launch options that hold a kernel to so many registers per thread, where the compiler takes that (NVIDIA)."""
    able = device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return {"maxnreg": registers} if able else {}


@functools.cache
def has_bulk_copies(device: torch.device) -> bool:
    """Whether the device copies runs of memory by one instruction (Hopper and later)."""
    return device.type == "cuda" and torch.version.hip is None and torch.cuda.get_device_capability(device)[0] >= 9


@functools.cache
def multiprocessors(device: torch.device) -> int:
    """How many programs run side by side; 2 in the interpreter, where more only cost time."""
    if device.type != "cuda":
        return 2
    return torch.cuda.get_device_properties(device).multi_processor_count


def padded(n: int, low: int = 16) -> int:
    """The power of two that holds ``n``, at least ``low``.

    >>> padded(80), padded(7), padded(16)
    (128, 16, 16)
    """
    return max(low, triton.next_power_of_2(max(n, 1)))


@triton.jit
def dot(a, b):
    """Matrix product with float32 accumulation and exact products: no TF32.

    Triton's interpreter multiplies the raw bits of bfloat16 operands, so there they are widened; no value changes.
    """
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def follow(DEPENDENT: tl.constexpr):
    """Wait for the results of the kernel before, and let the next one be launched meanwhile (Hopper and later)."""
    if DEPENDENT:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def round_to_even(x):
    """Nearest integer, ties to even, for |x| < 2^22: adding 1.5 * 2^23 leaves no bit below the unit."""
    return (x + 12582912.0) - 12582912.0


@triton.jit
def finite_or_zero(x):
    """``x``, and 0 where it is -inf: what may be subtracted from -inf without making NaN."""
    return tl.where(x == float("-inf"), 0.0, x)


@triton.jit
def narrowed(x, dtype: tl.constexpr):
    """Float32 ``x`` rounded to ``dtype``, to nearest even: the interpreter cuts bfloat16 off."""
    if INTERPRETED and dtype == tl.bfloat16:
        bits = x.to(tl.int32, bitcast=True)
        x = (bits + 0x7FFF + ((bits >> 16) & 1)).to(tl.float32, bitcast=True)
    return x.to(dtype)
