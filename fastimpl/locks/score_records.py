"""Page scores from packed records: what a decode step reads of every page. Mirrors `refimpl.locks.score`.

    grid (tiles + 1, N * H)         one program: M consecutive pages of one KV head against its G queries
      for every mode k:   q . v_k [G, M]  times  c_k [M, B]
      plus q . mu [G, M]  -->  logits [G, M, B]  -->  log-sum-exp over B  -->  scores [G, M]
      and the tile's largest score and sum of exponentials per head, so that shares need no second reading
    the last program of a row       the open page, exactly, from its keys (AMB-01)

Codes up to 127 are exact in bfloat16 and float16, so products with the query are exact and sums are float32; scales
multiply afterwards. Bytes moved per page: the record (832 or 896) and 4 G out.

The branch PTX (NVIDIA, B = 16, d = 128, r = 8, int4, half-precision queries, G <= 8) is `score_ring.py`: a warp takes
eight pages at a time out of shared memory, into which the next are copied meanwhile. The query is scaled by a power of two to at most 2 so that it is
exact in float16. The other branch serves every shape, the interpreter and AMD.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
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
    has_bulk_copies,
    multiprocessors,
    padded,
)
from fastimpl.locks.record import Layout, coefficient_at, load_scale, mode_scale_at, token_scale_at
from fastimpl.locks.score import load_queries, log_sum_exp_of_tokens
from fastimpl.locks.score_lanes import score_by_lanes
from fastimpl.locks.score_ptx import PAGES_PER_WARP
from fastimpl.locks.score_ring import MAIN_OPERANDS, START_OPERANDS, Ring
from fastimpl.paging import Cache


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


@triton.jit(do_not_specialize=["length_of_all", "heads", "blocks", "row_pages", "steps"])
def score_records_kernel(
    queries, records, keys, block_table, tokens, scores, largests, totals, stride_qn, stride_qh, stride_qg, stride_kb,
    stride_ks, stride_kh, stride_table, length_of_all, heads, blocks, row_pages, steps, scale_log2,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr,
    G: tl.constexpr, G_PAD: tl.constexpr, ROWS: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr,
    INT8: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr,
    COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr,
    MODES: tl.constexpr, WARPS: tl.constexpr, PTX: tl.constexpr, WIDE: tl.constexpr,
    START: tl.constexpr, START_OPERANDS: tl.constexpr, MAIN: tl.constexpr, MAIN_OPERANDS: tl.constexpr,
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
        key = tl.load(keys + (block * stride_kb + head * stride_kh + slot * stride_ks)[:, None] + channel[None, :],
                      mask=filled[:, None] & (channel < D)[None, :], other=0.0).to(tl.float32)  # fmt: skip
        for g in range(ROWS):  # a matrix product would take shared memory from every program
            query = tl.load(own + g * stride_qg + channel, mask=(channel < D) & (g < G), other=0.0).to(tl.float32)
            logits = tl.where(filled, tl.sum(key * query[None, :], 1) * scale_log2, float("-inf"))
            top = tl.max(logits, 0)
            total = tl.sum(tl.exp2(logits - finite_or_zero(top)), 0)
            tl.store(largests + at + g, top)
            tl.store(totals + at + g, total)
            score = (top + tl.log2(tl.where(total > 0, total, 1.0))) * LN2
            tl.store(scores + (row * G + g) * row_pages + complete, score, mask=(top > float("-inf")) & (g < G))
    else:
        if PTX:
            lane_top, lane_total = score_by_lanes(
                own, records + head * blocks * BYTES, table, scores + row * G * row_pages, tile, steps, length,
                row_pages, scale_log2, stride_qg, G, WARPS, WIDE, START, START_OPERANDS, MAIN, MAIN_OPERANDS,
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
                own, records + (head * blocks + blocks_here) * BYTES, here, scale_log2, stride_qg, M, B, B_PAD, D,
                D_PAD, RANK, G, G_PAD, INT8, HALF_SCALES, CENTROID, COEFFICIENTS, QUADS, QUAD_BYTES, TOKENS, MODES,
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
def ptx_of(layout: Layout, used: bool, table_bytes: int, warps: int, stages: int, copy: str) -> dict[str, Any]:
    """The PTX of a layout as the kernel's constants; stand-ins where the branch is not used."""
    if not used:
        return {"START": "", "START_OPERANDS": "", "MAIN": "", "MAIN_OPERANDS": ""}
    ring = Ring(layout.constants, warps, stages, table_bytes, copy)
    return {
        "START": ring.start(),
        "START_OPERANDS": START_OPERANDS,
        "MAIN": ring.main(),
        "MAIN_OPERANDS": MAIN_OPERANDS,
    }


def takes_ptx(queries: torch.Tensor, layout: Layout) -> bool:
    """Whether the PTX branch serves this call."""
    shape = (layout.page_size, layout.channels, layout.rank, layout.basis_bits) == (16, 128, 8, 4)
    half = queries.dtype in (torch.bfloat16, torch.float16) and queries.shape[2] <= 8
    nvidia = queries.device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return shape and half and nvidia


@dataclass(frozen=True)
class RingShape:
    """How the PTX branch shares out its work: warps of a program, slots of a warp's ring, warps per multiprocessor."""

    warps: int = 2
    stages: int = 2
    resident: int = 12
    copy: str = ""
    """"bulk" or "async"; empty: what the device can."""

    def steps(self, complete: int, rows: int, device: torch.device) -> int:
        """Groups of eight pages per warp: the fewest with which all programs of all rows run at once."""
        groups = -(-complete // PAGES_PER_WARP)
        tiles = self.resident * multiprocessors(device) // self.warps // rows - 1  # one is for the open page
        return -(-groups // (self.warps * max(tiles, 1)))


FEW_STEPS = 6
"""Up to so many groups per warp, waiting for the one copy costs less than a second slot saves."""


def ring_shape(complete: int, rows: int, device: torch.device) -> RingShape:
    """Long rows: two slots per warp, as many programs as fit. Short ones: one slot, and programs for a third more warps
    than fit, so that one program's start passes beside another's work."""
    long = RingShape()
    return long if long.steps(complete, rows, device) > FEW_STEPS else RingShape(stages=1, resident=16)


class RecordScores:
    """Scores [N, H, G, P] (nats) of every page and masses per tile, with buffers; `run` allocates nothing.

    ``branch`` "auto" takes PTX where it can; "plain" never does.
    """

    def __init__(
        self, queries: torch.Tensor, records: torch.Tensor, layout: Layout, cache: Cache, scale: float,
        branch: str = "auto", shape: RingShape | None = None,
    ) -> None:  # fmt: skip
        N, H, G, _ = queries.shape
        self.queries, self.records, self.layout, self.cache, self.scale = queries, records, layout, cache, scale
        complete = max(cache.longest // cache.page_size, 1)
        self.ptx = branch != "plain" and takes_ptx(queries, layout)
        self.shape = shape or ring_shape(complete, N * H, queries.device)
        self.warps = self.shape.warps if self.ptx else 4
        self.steps = self.shape.steps(complete, N * H, queries.device) if self.ptx else 1
        self.tile = PAGES_PER_WARP * self.warps * self.steps if self.ptx else 16
        self.tiles = -(-complete // self.tile) + 1
        self.rows = padded(G, 1)
        self.scores = torch.empty((N, H, G, cache.pages), dtype=torch.float32, device=queries.device)
        self.largests = torch.empty((N * H, self.tiles, self.rows), dtype=torch.float32, device=queries.device)
        self.totals = torch.empty_like(self.largests)
        table_bytes = 0 if cache.block_table is None else cache.block_table.element_size()
        copy = self.shape.copy or ("bulk" if has_bulk_copies(queries.device) else "async")
        self.constants = {**ptx_of(layout, self.ptx, table_bytes, self.warps, self.shape.stages, copy), "PTX": self.ptx,
                          "M": 16, "WARPS": self.warps,
                          "WIDE": all(step * queries.element_size() % 16 == 0 for step in queries.stride()[:3])
                          and queries.data_ptr() % 16 == 0}  # fmt: skip

    def run(self) -> torch.Tensor:
        """Launch."""
        queries, cache, layout = self.queries, self.cache, self.layout
        N, H, G, d = queries.shape
        (table, stride_table), (tokens, length) = cache.table, cache.lengths
        score_records_kernel[(self.tiles, N * H)](
            queries, self.records, cache.keys, table, tokens, self.scores, self.largests, self.totals,
            *queries.stride()[:3], *cache.key_strides, stride_table, length, H, cache.blocks, self.scores.shape[3],
            self.steps, self.scale * LOG2E.value, B=cache.page_size, B_PAD=padded(cache.page_size), D=d,
            D_PAD=padded(d), RANK=layout.rank, G=G, G_PAD=padded(G), ROWS=self.rows, num_warps=self.warps,
            **self.constants, **layout.constants, **dependent_launch(queries.device), **cache.switches,
        )  # fmt: skip
        return self.scores
