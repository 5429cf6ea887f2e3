"""The scoring kernel's PTX branch: what one program does with it, lane by lane (NVIDIA). See `score_ptx.py`."""

from __future__ import annotations

import triton
import triton.language as tl

SWAP_1 = tl.constexpr("shfl.sync.bfly.b32 $0, $1, 1, 0x1f, 0xffffffff;")
SWAP_2 = tl.constexpr("shfl.sync.bfly.b32 $0, $1, 2, 0x1f, 0xffffffff;")


@triton.jit
def quad_swap(x, lanes: tl.constexpr):
    """The value of the lane whose number differs in bit ``lanes`` (1 or 2); the tensor has one element per thread."""
    code: tl.constexpr = SWAP_1 if lanes == 1 else SWAP_2
    return tl.inline_asm_elementwise(code, "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)


@triton.jit
def pack_two(low, high):
    """Two float16 in one word, and their float32 sum."""
    low, high = low.to(tl.float16), high.to(tl.float16)
    word = (low.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF) | (high.to(tl.int16, bitcast=True).to(tl.int32) << 16)
    return word, low.to(tl.float32) + high.to(tl.float32)


@triton.jit
def read_queries(queries, head, quad, live, stride_qg, WIDE: tl.constexpr):
    """A lane's 32 channels of its head's query, float32; WIDE: rows are aligned to 16 bytes, so four reads suffice.

    Reading them one by one kept the first-level cache busy for 512 cycles per warp, all warps of a multiprocessor
    at once.
    """
    values = ()
    if WIDE:
        for i in tl.static_range(4):
            row = queries + tl.where(live, head, 0) * stride_qg + quad * 32 + 8 * i
            four = tl.inline_asm_elementwise(
                "ld.global.v4.b32 {$0,$1,$2,$3}, [$4];", "=r,=r,=r,=r,l", [row],
                dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=False, pack=1,
            )  # fmt: skip
            for j in tl.static_range(4):
                low, high = two_of(tl.where(live, four[j], 0), queries.dtype.element_ty)
                values = values + (low, high)
    else:
        for c in tl.static_range(32):
            read = tl.load(queries + head * stride_qg + quad * 32 + c, mask=live, other=0.0)
            values = values + (read.to(tl.float32),)
    return values


@triton.jit
def two_of(word, dtype: tl.constexpr):
    """The two half-precision numbers of a word, as float32."""
    if dtype == tl.bfloat16:
        low, high = (word << 16).to(tl.float32, bitcast=True), (word & -65536).to(tl.float32, bitcast=True)
    else:
        low = word.to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
        high = (word >> 16).to(tl.int16).to(tl.float16, bitcast=True).to(tl.float32)
    return low, high


@triton.jit
def lane_queries(read, quad):
    """What `read_queries` gave as 16 words of float16 pairs, their sum over the head, their unit.

    Scaled by a power of two to at most 2, so that bfloat16 is exact in float16.
    """
    values = ()
    peak = quad.to(tl.float32) * 0.0
    for c in tl.static_range(32):
        value = read[c]
        peak = tl.maximum(peak, tl.abs(value))
        values = values + (value,)
    peak = tl.maximum(peak, quad_swap(peak, 1))
    peak = tl.maximum(peak, quad_swap(peak, 2))
    exponent = (tl.maximum(peak, 1e-30).to(tl.int32, bitcast=True) >> 23) & 255
    unit = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    words = ()
    total = peak * 0.0
    for i in tl.static_range(4):
        for c in tl.static_range(4):
            word, two = pack_two(values[8 * i + c] * unit, values[8 * i + c + 4] * unit)
            words = words + (word,)
            total += two
    total = total + quad_swap(total, 1)
    return words, total + quad_swap(total, 2), (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def score_by_lanes(
    queries, records, block_table, scores, tile, steps, length, row_pages, scale_log2, stride_qg,
    G: tl.constexpr, WARPS: tl.constexpr, WIDE: tl.constexpr, START: tl.constexpr, START_OPERANDS: tl.constexpr, MAIN: tl.constexpr,
    MAIN_OPERANDS: tl.constexpr,
):  # fmt: skip
    """Store the scores of 8 * WARPS * steps pages; each head's largest and sum of exponentials, [8] (NVIDIA).

    At every step the programs of a row read one run of memory together: runs of their own, far apart, met in the same
    memory channels and took up to twice as long.
    """
    thread = tl.arange(0, 32 * WARPS)
    lane, warp = thread & 31, thread >> 5
    head, quad = lane >> 2, lane & 3
    live = head < G
    first = (tile * WARPS + warp) * 8
    zero = first * 0
    stride = zero + (tl.num_programs(0) - 1) * (8 * WARPS)
    places = (zero.to(tl.int64) + records.to(tl.int64), zero.to(tl.int64) + block_table.to(tl.int64))
    pages = (zero + length, zero + row_pages)
    read = read_queries(
        queries, head, quad, live, stride_qg, WIDE
    )  # before the copies: behind them it would wait for them
    ring = tl.inline_asm_elementwise(
        START, START_OPERANDS, places + (first, stride) + pages,
        dtype=(tl.int32, tl.int32, tl.int32, tl.int32),
        is_pure=False, pack=1,
    )  # fmt: skip
    query, total, unit = lane_queries(read, quad)
    counts = (first, stride, zero + steps) + pages + (live.to(tl.int32),)
    largest, amount = tl.inline_asm_elementwise(
        MAIN, MAIN_OPERANDS,
        places + ((scores + head * row_pages).to(tl.int64),) + counts + ring + query
        + (total * -24.0, unit * scale_log2),
        dtype=(tl.float32, tl.float32), is_pure=False, pack=1,
    )  # fmt: skip
    return mass_of_lanes(largest, amount, WARPS)


@triton.jit
def mass_of_lanes(largest, amount, WARPS: tl.constexpr):
    """Each head's largest score and sum of exponentials, [8], out of one number per thread."""
    other = tl.maximum(largest, quad_swap(largest, 1))
    other = tl.maximum(other, quad_swap(other, 2))
    amount = amount * tl.exp2(largest - other)
    amount = amount + quad_swap(amount, 1)
    amount = amount + quad_swap(amount, 2)
    per_lane = tl.reshape(other, [WARPS, 8, 4])
    top = tl.max(tl.max(per_lane, 0), 1)  # [8]
    amounts = tl.reshape(amount, [WARPS, 8, 4]) * tl.exp2(per_lane - top[None, :, None])
    total = tl.sum(tl.max(amounts, 2), 0)
    empty = top < -1e29
    return tl.where(empty, float("-inf"), top), tl.where(empty, 0.0, total)
