"""What the fast reader's kernels share: bits as operands of matrix instructions, one warp at a time (NVIDIA).

`lanes_keys.py`, `middle.py` (or `lanes_weigh.py`) and `lanes_values.py` are the passes, `prefix.py` and `weigh.py` their
plain twins; `lanes_ptx.py` explains and writes the texts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv import lanes_ptx as ptx
from fastimpl.readkv import value_ptx

ONES, ONES_OPERANDS = tl.constexpr(ptx.bits_text()), tl.constexpr(ptx.bits_constraints())
SUMS = tl.constexpr([tl.float32] * 32)
SUMS_AND_ONES = tl.constexpr([tl.float32] * 36)
LAST = tl.constexpr([ptx.last_factor(i) for i in range(32)])
FOUR = tl.constexpr([tl.int32] * 4)
LOAD_FOUR = tl.constexpr("ld.global.v4.b32 {$0,$1,$2,$3}, [$4];")
LOAD_SHARED = tl.constexpr(value_ptx.LOAD_SHARED)
POWER = tl.constexpr("ex2.approx.ftz.f32 $0, $1;")
LOGARITHM = tl.constexpr("lg2.approx.ftz.f32 $0, $1;")
HALVES = tl.constexpr(["{.reg .b16 l,h; mov.b32 {l,h}, $1; cvt.f32.f16 $0, " + part + ";}" for part in "lh"])
"""The float16 in the low half of a word, and that in the high half, as float32."""


@triton.jit
def effect(text: tl.constexpr, operands: tl.constexpr, arguments):
    """A word out of a text that is run where it stands."""
    return tl.inline_asm_elementwise(text, operands, arguments, dtype=tl.int32, is_pure=False, pack=1)


@triton.jit
def word_of(text: tl.constexpr, operands: tl.constexpr, arguments):
    """A word out of a text without effects."""
    return tl.inline_asm_elementwise(text, operands, arguments, dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def load_four(at):
    """Four words of 16 bytes of global memory."""
    return tl.inline_asm_elementwise(LOAD_FOUR, "=r,=r,=r,=r,l", [at.to(tl.int64)], dtype=FOUR, is_pure=False, pack=1)


@triton.jit
def load_shared(at):
    """Four words of shared memory."""
    return tl.inline_asm_elementwise(LOAD_SHARED, "=r,=r,=r,=r,r", [at], dtype=FOUR, is_pure=False, pack=1)


@triton.jit
def low_halves(a, b):
    """The low 16 bits of two words in one."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def high_halves(a, b):
    """The high 16 bits of two words in one."""
    return tl.inline_asm_elementwise("prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def pack_half(low, high):
    """Two float32 as float16 in one word."""
    return tl.inline_asm_elementwise("cvt.rn.f16x2.f32 $0, $2, $1;", "=r,f,f", [low, high], dtype=tl.int32,
                                     is_pure=True, pack=1)  # fmt: skip


@triton.jit
def times_half(a, b):
    """Products of two pairs of float16."""
    return tl.inline_asm_elementwise("mul.rn.f16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True,
                                     pack=1)  # fmt: skip


@triton.jit
def half_of(word, HIGH: tl.constexpr):
    """The float16 in the low or the high half of a word, as float32."""
    return tl.inline_asm_elementwise(HALVES[HIGH], "=f,r", [word], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def power_of_two(x):
    """2^x, 0 below the normal numbers."""
    return tl.inline_asm_elementwise(POWER, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def log_of_two(x):
    """Base-2 logarithm within 2^-22."""
    return tl.inline_asm_elementwise(LOGARITHM, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def zero_sums(zero, COUNT: tl.constexpr):
    """COUNT accumulators."""
    sums = ()
    for _ in tl.static_range(COUNT):
        sums = sums + (zero,)
    return sums


@triton.jit
def add_bits_and_ones(x0, x1, w0, w1, sums):
    """32 sums after 16 items' bits, and 4 of their weights."""
    return tl.inline_asm_elementwise(ONES, ONES_OPERANDS, (x0, x1, w0, w1) + sums, dtype=SUMS_AND_ONES, is_pure=True,
                                     pack=1)  # fmt: skip
