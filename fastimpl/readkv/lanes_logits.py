"""The last steps of the fast reader's key pass: from sums of integers to logits of two heads per word, and their masses."""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.readkv.lanes import effect, half_of, load_four, log_of_two, pack_half, power_of_two, word_of

CLAMP = tl.constexpr(
    "{.reg .b32 m; mov.b32 m, 0x7B537B53; min.f16x2 $0, $1, m; mov.b32 m, 0xFB53FB53; max.f16x2 $0, $0, m;}"
)
"""Logits are kept within 60000, a float16."""

HIGHER = tl.constexpr("max.f16x2 $0, $1, $2;")
ACROSS = tl.constexpr([f"shfl.sync.bfly.b32 $0, $1, {step}, 0x1f, 0xffffffff;" for step in (4, 8, 16)])
KEEP = tl.constexpr("st.shared.b32 [$1], $2; mov.b32 $0, 0;")
SYNC = tl.constexpr("bar.sync 0; mov.b32 $0, 0;")
FETCH = tl.constexpr("ld.shared.b32 $0, [$1];")


@triton.jit
def sum_of_bit(sums, place: tl.constexpr, BIT: tl.constexpr):
    """2^BIT times the sum of weights over one bit, as float32."""
    high, low = sums[4 * BIT + place], sums[32 + 4 * BIT + place]
    if BIT == 7:  # of the whole byte, less the other seven
        for b in tl.static_range(7):
            high -= sums[4 * b + place]
            low -= sums[32 + 4 * b + place]
    return high.to(tl.float32) * 256.0 + low.to(tl.float32)


@triton.jit
def packed_logits(sums, even, odd, even_rest, odd_rest):
    """16 words of two heads' float16 logits: of bit b and row half r at 2 b + r."""
    found = ()
    for i in tl.static_range(16):
        first = sum_of_bit(sums, 2 * (i % 2), i // 2) * (even * 0.5 ** (i // 2)) - even_rest
        second = sum_of_bit(sums, 2 * (i % 2) + 1, i // 2) * (odd * 0.5 ** (i // 2)) - odd_rest
        found = found + (word_of(CLAMP, "=&r,r", (pack_half(first, second),)),)
    return found


@triton.jit
def inside(found, room):
    """The same words, -inf for tokens from ``room`` on, counted from the lane's first."""
    kept = ()
    for i in tl.static_range(16):
        kept = kept + (tl.where(8 * (i // 2) + 64 * (i % 2) < room, found[i], -0x3FF0400),)  # -inf twice
    return kept


@triton.jit
def across(x, STEP: tl.constexpr):
    """A word of the lane that differs in one bit of its number: 4, 8 or 16 for STEP 0, 1, 2."""
    return tl.inline_asm_elementwise(ACROSS[STEP], "=r,r", [x], dtype=tl.int32, is_pure=True, pack=1)


@triton.jit
def log_mass(found):
    """Base-2 log-masses of a warp's tokens, of two heads, on every lane of a quad."""
    top = found[0]
    for i in tl.static_range(1, 16):
        top = word_of(HIGHER, "=r,r,r", (top, found[i]))
    for i in tl.static_range(3):
        top = word_of(HIGHER, "=r,r,r", (top, across(top, i)))
    even, odd = tl.maximum(half_of(top, 0), -60001.0), tl.maximum(half_of(top, 1), -60001.0)  # no token: finite
    first, second = even * 0.0, odd * 0.0
    for i in tl.static_range(16):
        first += power_of_two(half_of(found[i], 0) - even)
        second += power_of_two(half_of(found[i], 1) - odd)
    for i in tl.static_range(3):
        first += across(first.to(tl.int32, bitcast=True), i).to(tl.float32, bitcast=True)
        second += across(second.to(tl.int32, bitcast=True), i).to(tl.float32, bitcast=True)
    return even + log_of_two(first), odd + log_of_two(second)


@triton.jit
def store_mass(found, at, masses, thread):
    """The log-mass of both warps' tokens, one thread per head; 34 words of shared memory at ``at``."""
    even, odd = log_mass(found)
    lane, own = thread & 31, at + (thread >> 5) * 64
    own = own + tl.where(lane < 4, lane * 8, 32)  # words that nobody reads, for lanes of other groups
    effect(KEEP, "=r,r,f", (own, even))
    effect(KEEP, "=r,r,f", (own + 4, odd))
    effect(SYNC, "=r,r", (thread,))
    first = effect(FETCH, "=r,r", (at + (thread & 7) * 4,)).to(tl.float32, bitcast=True)
    second = effect(FETCH, "=r,r", (at + 64 + (thread & 7) * 4,)).to(tl.float32, bitcast=True)
    top = tl.maximum(first, second)
    mass = top + log_of_two(power_of_two(first - top) + power_of_two(second - top))
    tl.store(masses + thread, mass, mask=thread < 8)


@triton.jit
def offsets_of(sums_of_weights, units, row, quad, scale_log2, PARTS: tl.constexpr):
    """Of two heads: what a weight of 1 is worth, and of all weights, which their signs take off; base 2."""
    own = sums_of_weights + (row * 8 + quad * 2) * PARTS
    even, odd = quad * 0, quad * 0
    for part in tl.static_range(0, PARTS, 4):
        first, second = load_four(own + part), load_four(own + PARTS + part)
        even += first[0] + first[1] + first[2] + first[3]
        odd += second[0] + second[1] + second[2] + second[3]
    even_unit = tl.load(units + row * 8 + quad * 2) * scale_log2
    odd_unit = tl.load(units + row * 8 + quad * 2 + 1) * scale_log2
    return even_unit, odd_unit, even.to(tl.float32) * even_unit, odd.to(tl.float32) * odd_unit
