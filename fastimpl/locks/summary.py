"""Build page summaries: centre, Gram matrix, eigenvectors, basis and coefficients, quantised and packed in one pass.

Mirrors `refimpl.locks.summary.locks_build_summary` (and, for records, `locks_quantize_summary`, `locks_pack_basis`).

    grid (programs that fit at once)    one program: tiles of pages, one after the other
      keys [B, d] -> deviations D from the centroid -> Gram D D^T [B, B] -> scratch that stays in cache
      Jacobi (`jacobi.py`): in registers, one lane per token (PTX), or on whole tensors -> r leading vectors -> scratch
      mode k: image D^T u_k [d], its length sigma_k, basis column image / sigma_k, coefficients sigma_k u_k [B]
      -> float32 results, or codes and scales of the record (`record.py`)

Bytes moved per page at B = 16, d = 128, bfloat16: 4096 in, 832 out. Deviations are scaled by a power of two before the
Gram matrix, so that squares neither overflow nor vanish. Modes with sigma <= sqrt(max(B, d) 2^-24) ||page|| are
dropped: columns and coefficients 0 (AMB-10).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, Sizes, whole
from fastimpl.device import INTERPRETED, multiprocessors, padded
from fastimpl.locks.jacobi import jacobi, jacobi_of_lanes, store_leading
from fastimpl.locks.page import centred, mode_of, quantised, store_column, store_packed
from fastimpl.locks.record import Layout, mode_scale_at, store_scale
from fastimpl.paging import Cache

PAGES_PER_PROGRAM = 64 if INTERPRETED.value else 1
"""The interpreter pays per operation, the device per register."""

WARPS = 4
PAGES_AT_ONCE = 2
"""Of the PTX branch: pages whose keys are in registers at once."""

PROGRAMS_PER_MULTIPROCESSOR = 4

PRECISION = "ieee"
"""Of the PTX branch's Gram matrix: "ieee", or "tf32x3", three TF32 products that lose 2^-22 of a product."""

SWEEPS = 12
"""At most; see `jacobi`."""


@triton.jit
def blocks_of(block_table, page, here, TABLE: tl.constexpr):
    """Pool blocks [M] of logical pages."""
    block = page.to(tl.int64)
    if TABLE:
        block = tl.load(block_table + page, mask=here, other=0).to(tl.int64)
    return block


@triton.jit
def finish_pages(
    keys, block, head, here, vectors, lanes, centroids, bases, coefficients, records, stride_kb, stride_ks, stride_kh,
    blocks, M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    RANK: tl.constexpr, R_PAD: tl.constexpr, PACK: tl.constexpr, INT8: tl.constexpr, LEVEL: tl.constexpr,
    HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr, COEFFICIENTS: tl.constexpr,
    QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr, MODES: tl.constexpr,
    QUAD_COUNT: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Summaries of pages [M] whose eigenvectors lie in scratch: ``vectors`` [R_PAD, lanes], page after page."""
    slot, channel, mode = tl.arange(0, B_PAD), tl.arange(0, D_PAD), tl.arange(0, R_PAD)
    centroid, deviation, unit, norm = centred(keys, block, head, here, stride_kb, stride_ks, stride_kh, B, B_PAD, D, D_PAD)
    out = head * blocks + block
    record = records + out * BYTES
    wide = here[:, None] & (channel < D)[None, :]
    coefficient = tl.zeros([M, B_PAD, R_PAD], tl.float32)
    for k in tl.static_range(RANK):
        left = tl.load(vectors + k * lanes + tl.arange(0, M)[:, None] * B_PAD + slot[None, :])
        column, sigma = mode_of(deviation, left, norm, DROP)
        coefficient = tl.where((mode == k)[None, None, :], (left * (sigma * unit)[:, None])[:, :, None], coefficient)
        if PACK:
            code, scale = quantised(column, tl.max(tl.abs(column), 1)[:, None], LEVEL)
            store_column(record, here, code, k, D, D_PAD, INT8)
            store_scale(record + QUADS + mode_scale_at(k, QUAD_BYTES, HALF_SCALES), tl.sum(scale, 1), here, HALF_SCALES)
        else:
            tl.store(bases + (out * D)[:, None] * RANK + channel[None, :] * RANK + k, column, mask=wide)
    if PACK:
        store_packed(record, here, centroid, coefficient, M, D, D_PAD, B_PAD, R_PAD, HALF_SCALES, BYTES, CENTROID,
                     COEFFICIENTS, QUADS, QUAD_BYTES, TOKENS, MODES, QUAD_COUNT)  # fmt: skip
    else:
        tl.store(centroids + (out * D)[:, None] + channel[None, :], centroid, mask=wide)
        at = ((out * B)[:, None] + slot[None, :])[:, :, None] * RANK + mode[None, None, :]
        tl.store(coefficients + at, coefficient,
                 mask=(here[:, None] & (slot < B)[None, :])[:, :, None] & (mode < RANK)[None, None, :])  # fmt: skip


@triton.jit
def build_kernel(
    keys, block_table, tokens, centroids, bases, coefficients, records, grams, vectors,
    stride_kb, stride_ks, stride_kh, stride_table, length_of_all, pages, first_page, blocks, heads, work,
    M: tl.constexpr, TILE: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr,
    RANK: tl.constexpr, R_PAD: tl.constexpr, SWEEPS: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr,
    PACK: tl.constexpr, INT8: tl.constexpr, LEVEL: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr,
    CENTROID: tl.constexpr, COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr,
    TOKENS: tl.constexpr, MODES: tl.constexpr, QUAD_COUNT: tl.constexpr, DROP: tl.constexpr, PTX: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """Summaries of the complete pages first_page.. of every sequence: float32 parts, or records where PACK."""
    program = tl.program_id(0)
    tiles = tl.cdiv(pages, TILE)
    lanes: tl.constexpr = TILE * B_PAD
    grams += program.to(tl.int64) * (lanes * B_PAD)
    vectors += program.to(tl.int64) * (lanes * R_PAD)
    i = tl.arange(0, B_PAD)
    square = i[:, None] * B_PAD + i[None, :]
    for item in range(program, work, tl.num_programs(0)):
        n, head = (item // tiles // heads).to(tl.int64), (item // tiles % heads).to(tl.int64)
        start = first_page + (item % tiles) * TILE
        length = length_of_all
        if LENGTHS:
            length = tl.load(tokens + n).to(tl.int32)
        stop = tl.minimum(length // B, first_page + pages)
        table = block_table + n * stride_table
        for part in range(0, TILE, M):
            page = start + part + tl.arange(0, M)
            block = blocks_of(table, page, page < stop, TABLE)
            _centroid, deviation, _unit, _norm = centred(keys, block, head, page < stop, stride_kb, stride_ks, stride_kh, B,
                                                         B_PAD, D, D_PAD)  # fmt: skip
            gram = tl.dot(deviation, tl.permute(deviation, (0, 2, 1)), input_precision=PRECISION)
            if PTX:
                at = (part + tl.arange(0, M))[:, None, None] * (B_PAD * B_PAD) + square[None]
                tl.store(grams + at, gram)
            else:
                value, vector = jacobi(gram, M, B_PAD, SWEEPS)
                store_leading(vectors, value, vector, M, B_PAD, R_PAD)
        tl.debug_barrier()
        if PTX:
            jacobi_of_lanes(grams, vectors, lanes, R_PAD, SWEEPS)
            tl.debug_barrier()
        for part in range(0, TILE, M):
            page = start + part + tl.arange(0, M)
            block = blocks_of(table, page, page < stop, TABLE)
            finish_pages(
                keys, block, head, page < stop, vectors + part * B_PAD, lanes, centroids, bases, coefficients, records,
                stride_kb, stride_ks, stride_kh, blocks, M, B, B_PAD, D, D_PAD, RANK, R_PAD, PACK, INT8, LEVEL,
                HALF_SCALES, BYTES, CENTROID, COEFFICIENTS, QUADS, QUAD_BYTES, TOKENS, MODES, QUAD_COUNT, DROP,
            )  # fmt: skip
        tl.debug_barrier()


LEVELS = {2: 1.0, 4: 7.0, 8: 127.0}


def build_summaries(cache: Cache, rank: int) -> dict[str, torch.Tensor]:
    """Float32 summaries of all complete pages, by block: centroid [H,M,d], basis [H,M,d,r], coefficients [H,M,B,r].

    Blocks without a complete page are left unwritten.
    """
    H, M, B, d = cache.heads, cache.blocks, cache.page_size, cache.channels

    def make(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.float32, device=cache.keys.device)

    summary = {"centroid": make(H, M, d), "basis": make(H, M, d, rank), "coefficients": make(H, M, B, rank)}
    layout = Layout(B, d, rank, 8, "float32")
    _launch(cache, layout, (summary["centroid"], summary["basis"], summary["coefficients"], cache.keys), False, 0, None)
    return summary


def build_records(
    cache: Cache, layout: Layout, records: torch.Tensor, first_page: int = 0, pages: int | None = None
) -> None:
    """Write the records [H, blocks, bytes] of complete pages first_page.., ``pages`` of them (None: all)."""
    _launch(cache, layout, (records,) * 4, True, first_page, pages)


def takes_ptx(cache: Cache) -> bool:
    """Whether the eigenvectors are found lane by lane: pages of 16 tokens on NVIDIA."""
    device = cache.keys.device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return cache.page_size == 16 and device


def _launch(
    cache: Cache, layout: Layout, out: tuple[torch.Tensor, ...], pack: bool, first_page: int, pages: int | None,
    branch: str = "auto",
) -> None:  # fmt: skip
    B, d, rank, device = cache.page_size, cache.channels, layout.rank, cache.keys.device
    pages = max(cache.longest // B - first_page, 0) if pages is None else pages
    ptx = branch != "plain" and takes_ptx(cache)
    M = PAGES_AT_ONCE if ptx else min(PAGES_PER_PROGRAM, triton.next_power_of_2(max(pages, 1)))
    tile = 2 * WARPS if ptx else M
    work = cache.sequences * cache.heads * -(-pages // tile)
    if work == 0:
        return
    programs = min(work, PROGRAMS_PER_MULTIPROCESSOR * multiprocessors(device) if device.type == "cuda" else 1)
    grams = torch.empty((programs, tile, padded(B), padded(B)) if ptx else 1, dtype=torch.float32, device=device)
    vectors = torch.empty((programs, padded(rank, 2), tile, padded(B)), dtype=torch.float32, device=device)
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    build_kernel[(programs,)](
        cache.keys, table, tokens, *out, grams, vectors, *cache.key_strides, stride_table, length, pages, first_page,
        cache.blocks, cache.heads, work,
        M=M, TILE=tile, B=B, B_PAD=padded(B), D=d, D_PAD=padded(d), RANK=rank, R_PAD=padded(rank, 2), SWEEPS=SWEEPS,
        PACK=pack, LEVEL=LEVELS[layout.basis_bits], DROP=max(B, d) * 2.0**-24, PTX=ptx,
        PRECISION=PRECISION if ptx else "ieee", QUAD_COUNT=triton.next_power_of_2(layout.quads), num_warps=WARPS, **layout.constants, **cache.switches,
    )  # fmt: skip


def locks_build_summary(*, key_pages: Any, rank: int) -> dict[str, torch.Tensor]:
    """Summaries of pages [H,P,B,d]: centroid [H,P,d], basis [H,P,d,r], coefficients [H,P,B,r], float32 (Locks Sec. 4).

    Raises ArgumentError for a dtype, shape, or a rank outside 1..min(B, d).
    """
    sizes = Sizes()
    pages = sizes.bind("key_pages", key_pages, "H P B d", FLOATS)
    H, P, B, d = pages.shape
    rank = whole("rank", rank, 1, min(B, d))
    strides = (pages.stride(1), pages.stride(2), pages.stride(0))
    return build_summaries(Cache(pages, pages, strides, strides, B, H, d, P, P * B, None, P * B), rank)
