"""Page scores from packed records: what a decode step reads of every page. Mirrors `refimpl.locks.score`.

    grid (tiles + 1, N * H)         one program: M consecutive pages of one KV head against its G queries
      for every mode k:   q . v_k [G, M]  times  c_k [M, B]
      plus q . mu [G, M]  -->  logits [G, M, B]  -->  log-sum-exp over B  -->  scores [G, M]
      and the tile's largest score and sum of exponentials per head, so that shares need no second reading
    the last program of a row       the open page, exactly, from its keys (AMB-01)

Codes up to 127 are exact in bfloat16 and float16, so products with the query are exact and sums are float32; scales
multiply afterwards. Bytes moved per page: the record (832 or 896) and 4 G out.

The branch PTX (NVIDIA, B = 16, d = 128, r = 8, int4, half-precision queries, G <= 8) is `score_ptx.py`: a warp takes
eight pages at a time, its next block ids in flight. The query is scaled by a power of two to at most 2 so that it is
exact in float16. The other branch serves every shape, the interpreter and AMD.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.device import (
    INTERPRETED,
    LN2,
    LOG2E,
    dependent_launch,
    dot,
    finite_or_zero,
    follow,
    multiprocessors,
    padded,
)
from fastimpl.locks import score_ptx as ptx
from fastimpl.locks.record import Layout, coefficient_at, load_scale, mode_scale_at, token_scale_at
from fastimpl.locks.score import load_queries, log_sum_exp_of_tokens
from fastimpl.paging import Cache

SWAP_1 = tl.constexpr("shfl.sync.bfly.b32 $0, $1, 1, 0x1f, 0xffffffff;")
SWAP_2 = tl.constexpr("shfl.sync.bfly.b32 $0, $1, 2, 0x1f, 0xffffffff;")


COMPACT_WORDS = tl.constexpr([tl.int32] * 74)
WIDE_WORDS = tl.constexpr([tl.int32] * 98)
"""Types of what a lane loads for eight pages: `score_ptx.word_count` with float16 and with float32 scales."""

WARPS_PER_MULTIPROCESSOR = {"float16": 10, "float32": 8}
"""How many warps of the PTX branch a multiprocessor holds: one group's words in registers, and two groups'."""


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
def load_group(base, block_table, first, complete, BYTES: tl.constexpr, TABLE: tl.constexpr, WORDS: tl.constexpr, LOAD: tl.constexpr, LOAD_OPERANDS: tl.constexpr):  # fmt: skip
    """Start the loads of eight pages from ``first`` [threads]: the words of `score_ptx.load_text`, one per thread."""
    page = first + (tl.arange(0, first.shape[0]) & 7)
    block = page
    if TABLE:
        block = tl.load(block_table + page, mask=page < complete, other=0).to(tl.int32)
    block = tl.where(page < complete, block, 0)
    kinds: tl.constexpr = COMPACT_WORDS if WORDS == 74 else WIDE_WORDS
    return tl.inline_asm_elementwise(LOAD, LOAD_OPERANDS, [base, block], dtype=kinds, is_pure=True, pack=1)


@triton.jit
def score_group(words, query, bias, scale, first, complete, scores, live, largest, amount, COMPUTE: tl.constexpr, OPERANDS: tl.constexpr):  # fmt: skip
    """Store the scores of the eight pages whose words are given; the running largest and sum of exponentials after."""
    a, b = tl.inline_asm_elementwise(COMPUTE, OPERANDS, words + query + (bias, scale), dtype=(tl.float32, tl.float32),
                                     is_pure=True, pack=1)  # fmt: skip
    page = first + (tl.arange(0, first.shape[0]) & 3) * 2
    a = tl.where(page < complete, a, -1e30)
    b = tl.where(page + 1 < complete, b, -1e30)
    tl.store(scores + page, a * LN2, mask=live & (page < complete))
    tl.store(scores + page + 1, b * LN2, mask=live & (page + 1 < complete))
    higher = tl.maximum(tl.maximum(a, b), largest)
    return higher, amount * tl.exp2(largest - higher) + tl.exp2(a - higher) + tl.exp2(b - higher)


@triton.jit
def lane_queries(queries, head, quad, live, stride_qg):
    """A lane's 32 channels of its head's query as 16 words of float16 pairs, their sum over the head, their unit.

    Scaled by a power of two to at most 2, so that bfloat16 is exact in float16.
    """
    values = ()
    peak = quad.to(tl.float32) * 0.0
    for c in tl.static_range(32):
        value = tl.load(queries + head * stride_qg + quad * 32 + c, mask=live, other=0.0).to(tl.float32)
        peak = tl.maximum(peak, tl.abs(value))
        values = values + (value,)  # noqa: RUF005
    peak = tl.maximum(peak, quad_swap(peak, 1))
    peak = tl.maximum(peak, quad_swap(peak, 2))
    exponent = (tl.maximum(peak, 1e-30).to(tl.int32, bitcast=True) >> 23) & 255
    unit = ((254 - exponent) << 23).to(tl.float32, bitcast=True)
    words = ()
    total = peak * 0.0
    for i in tl.static_range(4):
        for c in tl.static_range(4):
            word, two = pack_two(values[8 * i + c] * unit, values[8 * i + c + 4] * unit)
            words = words + (word,)  # noqa: RUF005
            total += two
    total = total + quad_swap(total, 1)
    return words, total + quad_swap(total, 2), (exponent << 23).to(tl.float32, bitcast=True)


@triton.jit
def score_by_lanes(
    queries, records, block_table, scores, tile, complete, row_pages, scale_log2, stride_qg,
    G: tl.constexpr, BYTES: tl.constexpr, TABLE: tl.constexpr, WARPS: tl.constexpr, STEPS: tl.constexpr,
    AHEAD: tl.constexpr, WORDS: tl.constexpr, LOAD: tl.constexpr, LOAD_OPERANDS: tl.constexpr, COMPUTE: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Scores of 8 * WARPS * STEPS pages, and each head's largest and sum, [8] (NVIDIA).

    AHEAD (STEPS even): two groups per turn, so that the words of one are in flight while the other's are used. At every
    step the programs of a row read one run of memory together: runs of their own, far apart, met in the same memory
    channels and took twice as long.
    """
    thread = tl.arange(0, 32 * WARPS)
    lane, warp = thread & 31, thread >> 5
    head, quad = lane >> 2, lane & 3
    live = head < G
    base = records.to(tl.int64)
    first = (tile * WARPS + warp) * 8
    stride = (tl.num_programs(0) - 1) * (8 * WARPS)
    words = load_group(base, block_table, first, complete, BYTES, TABLE, WORDS, LOAD, LOAD_OPERANDS)
    query, total, unit = lane_queries(queries, head, quad, live, stride_qg)
    bias, scale = total * -24.0, unit * scale_log2
    own = scores + head * row_pages
    largest, amount = total * 0.0 - 1e30, total * 0.0
    if not AHEAD:
        largest, amount = score_group(words, query, bias, scale, first, complete, own, live, largest, amount, COMPUTE,
                                      OPERANDS)  # fmt: skip
        for _ in range(1, STEPS):
            first += stride
            again = load_group(base, block_table, first, complete, BYTES, TABLE, WORDS, LOAD, LOAD_OPERANDS)
            largest, amount = score_group(again, query, bias, scale, first, complete, own, live, largest, amount,
                                          COMPUTE, OPERANDS)  # fmt: skip
    else:
        for _ in range(0, STEPS, 2):
            second = first + stride
            ahead = load_group(base, block_table, second, complete, BYTES, TABLE, WORDS, LOAD, LOAD_OPERANDS)
            largest, amount = score_group(words, query, bias, scale, first, complete, own, live, largest, amount,
                                          COMPUTE, OPERANDS)  # fmt: skip
            first = second + stride
            words = load_group(base, block_table, first, complete, BYTES, TABLE, WORDS, LOAD, LOAD_OPERANDS)
            largest, amount = score_group(ahead, query, bias, scale, second, complete, own, live, largest, amount,
                                          COMPUTE, OPERANDS)  # fmt: skip
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


@triton.jit
def tile_logits(
    queries, record, here, scale_log2, stride_qg, M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr,
    D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr, G: tl.constexpr, G_PAD: tl.constexpr, INT8: tl.constexpr,
    HALF_SCALES: tl.constexpr, CENTROID: tl.constexpr, COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr,
    QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr, MODES: tl.constexpr,
):  # fmt: skip
    """Base-2 logits [G, M, B] of the tokens of the records at ``record`` [M]."""
    channel, slot, pair = tl.arange(0, D_PAD), tl.arange(0, B_PAD), tl.arange(0, D_PAD // 2)
    live = here[:, None] & (channel < D)[None, :]
    filled = here[:, None] & (slot < B)[None, :]
    query = load_queries(queries, G, G_PAD, D, D_PAD, 0, 1, stride_qg)
    even = load_queries(queries, G, G_PAD, D, D_PAD // 2, 0, 2, stride_qg)
    odd = load_queries(queries, G, G_PAD, D, D_PAD // 2, 1, 2, stride_qg)
    code = tl.load(record[:, None] + CENTROID + channel[None, :], mask=live, other=0).to(tl.int8, bitcast=True)
    scale = load_scale(record + QUADS + (12 if HALF_SCALES else 24), here, False)
    centre = dot(query, tl.trans(code.to(tl.float32).to(query.dtype))) * scale[None, :]
    spread = tl.zeros([G_PAD, M, B_PAD], tl.float32)
    for k in tl.static_range(RANK):
        if INT8:
            code = tl.load(record[:, None] + k * D + channel[None, :], mask=live, other=0).to(tl.int8, bitcast=True)
            along = dot(query, tl.trans(code.to(tl.float32).to(query.dtype)))
        else:
            byte = tl.load(record[:, None] + k * ((D + 1) // 2) + pair[None, :],
                           mask=here[:, None] & (pair < (D + 1) // 2)[None, :], other=0)  # fmt: skip
            low, high = (byte & 15).to(tl.int32), (byte >> 4).to(tl.int32)
            along = dot(even, tl.trans(((low ^ 8) - 8).to(tl.float32).to(query.dtype)))
            along += dot(odd, tl.trans(((high ^ 8) - 8).to(tl.float32).to(query.dtype)))
        along *= load_scale(record + QUADS + mode_scale_at(k, QUAD_BYTES, HALF_SCALES), here, HALF_SCALES)[None, :]
        spot = COEFFICIENTS + coefficient_at(slot, k, TOKENS, MODES)
        code = tl.load(record[:, None] + spot[None, :], mask=filled, other=0).to(tl.int8, bitcast=True)
        spread += along[:, :, None] * code.to(tl.float32)[None]
    spot = QUADS + token_scale_at(slot, QUAD_BYTES, TOKENS, HALF_SCALES)
    scale = load_scale(record[:, None] + spot[None, :], filled, HALF_SCALES)
    return (centre[:, :, None] + spread * scale[None]) * scale_log2, filled


@triton.jit
def score_records_kernel(
    queries, records, keys, block_table, tokens, scores, largests, totals, stride_qn, stride_qh, stride_qg, stride_kb,
    stride_ks, stride_kh, stride_table, length_of_all, heads, blocks, row_pages, scale_log2,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr,
    G: tl.constexpr, G_PAD: tl.constexpr, ROWS: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr,
    INT8: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr,
    COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr,
    MODES: tl.constexpr, WARPS: tl.constexpr, STEPS: tl.constexpr, AHEAD: tl.constexpr,
    PTX: tl.constexpr, WORDS: tl.constexpr,
    LOAD: tl.constexpr, LOAD_OPERANDS: tl.constexpr, COMPUTE: tl.constexpr, OPERANDS: tl.constexpr,
    DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Scores of one tile of complete pages, or of the open page, and the tile's mass per query head."""
    follow(DEPENDENT)
    tile, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n, head = row // heads, row % heads
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    complete = length // B
    own = queries + n * stride_qn + head * stride_qh
    table = block_table + n * stride_table
    at = (row * tl.num_programs(0) + tile) * ROWS
    group = tl.arange(0, G_PAD)
    if tile == tl.num_programs(0) - 1:
        slot, channel = tl.arange(0, B_PAD), tl.arange(0, D_PAD)
        block = complete.to(tl.int64)
        filled = complete * B + slot < length
        if TABLE:
            block = tl.load(table + complete, mask=complete * B < length, other=0).to(tl.int64)
        query = load_queries(own, G, G_PAD, D, D_PAD, 0, 1, stride_qg)
        key = tl.load(keys + (block * stride_kb + head * stride_kh + slot * stride_ks)[:, None] + channel[None, :],
                      mask=filled[:, None] & (channel < D)[None, :], other=0.0)  # fmt: skip
        logits = tl.where(filled[None, :], dot(query, tl.trans(key)) * scale_log2, float("-inf"))
        store_mass(largests + at, totals + at, logits, ROWS)
        top = tl.max(logits, 1)
        alive = top > float("-inf")
        total = tl.sum(tl.exp2(logits - tl.where(alive, top, 0.0)[:, None]), 1)
        score = (top + tl.log2(tl.where(alive, total, 1.0))) * LN2
        tl.store(scores + (row * G + group) * row_pages + complete, score, mask=(group < G) & alive)
    else:
        if PTX:
            lane_top, lane_total = score_by_lanes(
                own, records + head * blocks * BYTES, table, scores + row * G * row_pages, tile, complete, row_pages,
                scale_log2, stride_qg, G, BYTES, TABLE, WARPS, STEPS, AHEAD, WORDS, LOAD, LOAD_OPERANDS, COMPUTE, OPERANDS,
            )  # fmt: skip
            lane = tl.arange(0, 8)
            tl.store(largests + at + lane, lane_top, mask=lane < ROWS)
            tl.store(totals + at + lane, lane_total, mask=lane < ROWS)
        else:
            page = tile * M + tl.arange(0, M)
            here = page < complete
            blocks_here = page.to(tl.int64)
            if TABLE:
                blocks_here = tl.load(table + page, mask=here, other=0).to(tl.int64)
            tile_of_logits, slots = tile_logits(
                own, records + (head * blocks + blocks_here) * BYTES, here, scale_log2, stride_qg, M, B, B_PAD, D, D_PAD,
                RANK, G, G_PAD, INT8, HALF_SCALES, CENTROID, COEFFICIENTS, QUADS, QUAD_BYTES, TOKENS, MODES,
            )  # fmt: skip
            page_score = log_sum_exp_of_tokens(tile_of_logits, slots)  # [G, M]
            tl.store(scores + (row * G + group)[:, None] * row_pages + page[None, :], page_score,
                     mask=(group < G)[:, None] & here[None, :])  # fmt: skip
            store_mass(largests + at, totals + at, tl.where(here[None, :], page_score * LOG2E, float("-inf")), ROWS)


@triton.jit
def store_mass(largests, totals, score, ROWS: tl.constexpr):
    """Base-2 maximum and sum of exponentials of every row of ``score`` [G_PAD, n]."""
    group = tl.arange(0, score.shape[0])
    top = tl.max(score, 1)
    total = tl.sum(tl.exp2(score - finite_or_zero(top)[:, None]), 1)
    tl.store(largests + group, top, mask=group < ROWS)
    tl.store(totals + group, total, mask=group < ROWS)


@functools.cache
def ptx_of(layout: Layout, used: bool) -> dict[str, Any]:
    """The PTX of a layout as the kernel's constants; stand-ins where the branch is not used."""
    if not used:
        return {"WORDS": 0, "LOAD": "", "LOAD_OPERANDS": "", "COMPUTE": "", "OPERANDS": ""}
    c = layout.constants
    texts = {"LOAD": ptx.load_text(c), "LOAD_OPERANDS": ptx.load_constraints(c), "COMPUTE": ptx.compute_text(c)}
    return {"WORDS": ptx.word_count(c), "OPERANDS": ptx.compute_constraints(c), **texts}


def takes_ptx(queries: torch.Tensor, layout: Layout) -> bool:
    """Whether the PTX branch serves this call."""
    shape = (layout.page_size, layout.channels, layout.rank, layout.basis_bits) == (16, 128, 8, 4)
    half = queries.dtype in (torch.bfloat16, torch.float16) and queries.shape[2] <= 8
    nvidia = queries.device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return shape and half and nvidia


class RecordScores:
    """Scores [N, H, G, P] (nats) of every page and masses per tile, with buffers; `run` allocates nothing.

    ``branch`` "auto" takes PTX where it can; "plain" never does.
    """

    def __init__(
        self, queries: torch.Tensor, records: torch.Tensor, layout: Layout, cache: Cache, scale: float,
        branch: str = "auto", steps: int | None = None,
    ) -> None:  # fmt: skip
        N, H, G, _ = queries.shape
        self.queries, self.records, self.layout, self.cache, self.scale = queries, records, layout, cache, scale
        self.ptx = branch != "plain" and takes_ptx(queries, layout)
        complete = max(cache.longest // cache.page_size, 1)
        wide = layout.scales == "float32"
        self.warps = 2 if self.ptx else 4
        self.steps = steps or self._steps(complete, N * H, queries.device)
        self.ahead = wide and self.steps > 1
        self.tile = ptx.PAGES_PER_WARP * self.warps * self.steps if self.ptx else 16
        self.tiles = -(-complete // self.tile) + 1
        self.rows = padded(G, 1)
        self.scores = torch.empty((N, H, G, cache.pages), dtype=torch.float32, device=queries.device)
        self.largests = torch.empty((N * H, self.tiles, self.rows), dtype=torch.float32, device=queries.device)
        self.totals = torch.empty_like(self.largests)

    def _steps(self, complete: int, rows: int, device: torch.device) -> int:
        """Groups of eight pages per warp: all programs run at once. A power of two with loads ahead, where a number of
        turns that does not divide leaves a loop that the assembler serialises."""
        groups = -(-complete // ptx.PAGES_PER_WARP) * rows
        steps = -(-groups // (WARPS_PER_MULTIPROCESSOR[self.layout.scales] * multiprocessors(device)))
        return triton.next_power_of_2(steps) if self.layout.scales == "float32" else steps

    def run(self) -> torch.Tensor:
        """Launch."""
        queries, cache, layout = self.queries, self.cache, self.layout
        N, H, G, d = queries.shape
        (table, stride_table), (tokens, length) = cache.table, cache.lengths
        score_records_kernel[(self.tiles, N * H)](
            queries, self.records, cache.keys, table, tokens, self.scores, self.largests, self.totals,
            *queries.stride()[:3], *cache.key_strides, stride_table, length, H, cache.blocks, self.scores.shape[3],
            self.scale * LOG2E.value, M=self.tile, B=cache.page_size, B_PAD=padded(cache.page_size), D=d,
            D_PAD=padded(d), RANK=layout.rank, G=G, G_PAD=padded(G), ROWS=self.rows, WARPS=self.warps,
            STEPS=self.steps, AHEAD=self.ahead, PTX=self.ptx, num_warps=self.warps, **ptx_of(layout, self.ptx), **layout.constants,
            **dependent_launch(queries.device),
            **cache.switches,
        )  # fmt: skip
        return self.scores
