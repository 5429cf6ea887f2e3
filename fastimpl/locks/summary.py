"""Build page summaries: centre, Gram matrix, eigenvectors, basis and coefficients, quantised and packed in one pass.

Mirrors `refimpl.locks.summary.locks_build_summary` (and, for records, `locks_quantize_summary`, `locks_pack_basis`).

    grid (N * ceil(P / M), H)       one program: M pages of one KV head, their keys read once
      keys [M, B, d] -> centroid [M, d], deviations D [M, B, d] -> Gram D D^T [M, B, B] -> Jacobi in registers
      mode k by falling eigenvalue: image D^T u_k [M, d], its length sigma_k, basis column image / sigma_k,
      coefficients sigma_k u_k [M, B] -> float32 results, or codes and scales of the record (`record.py`)

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
from fastimpl.device import INTERPRETED, padded, round_to_even
from fastimpl.locks.jacobi import jacobi
from fastimpl.locks.record import Layout, coefficient_at, mode_scale_at, store_scale, token_scale_at
from fastimpl.paging import Cache

PAGES_PER_PROGRAM = 64 if INTERPRETED.value else 1
"""The interpreter pays per operation, the device per register."""

SWEEPS = 12
"""At most; see `jacobi`."""


@triton.jit
def quantised(x, largest, level):
    """Codes (float32 integers) of ``x`` and the float32 scale largest / level; a zero line has scale 0 and codes 0."""
    scale = tl.div_rn(largest, largest * 0.0 + level)
    ratio = tl.div_rn(x, tl.broadcast_to(tl.where(scale > 0, scale, 1.0), x.shape))
    return tl.minimum(tl.maximum(round_to_even(ratio), -level), level), scale


@triton.jit
def build_kernel(
    keys, block_table, tokens, centroids, bases, coefficients, records,
    stride_kb, stride_ks, stride_kh, stride_table, length_of_all, pages, first_page, blocks,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr,
    R_PAD: tl.constexpr, SWEEPS: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, PACK: tl.constexpr,
    INT8: tl.constexpr, LEVEL: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr,
    COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr,
    MODES: tl.constexpr, QUAD_COUNT: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Summaries of the complete pages first_page.. of every sequence: float32 parts, or records where PACK."""
    tiles = tl.cdiv(pages, M)
    n, head = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(1).to(tl.int64)
    page = first_page + (tl.program_id(0) % tiles) * M + tl.arange(0, M)
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n).to(tl.int32)
    here = (page < length // B) & (page < first_page + pages)
    block = page.to(tl.int64)
    if TABLE:
        block = tl.load(block_table + n * stride_table + page, mask=here, other=0).to(tl.int64)
    slot, channel, mode = tl.arange(0, B_PAD), tl.arange(0, D_PAD), tl.arange(0, R_PAD)
    token = here[:, None] & (slot < B)[None, :]
    live = token[:, :, None] & (channel < D)[None, None, :]
    at = (block * stride_kb + head * stride_kh)[:, None] + (slot * stride_ks)[None, :]
    key = tl.load(keys + at[:, :, None] + channel[None, None, :], mask=live, other=0.0).to(tl.float32)
    centroid = tl.sum(key, 1) / B  # [M, D]
    deviation = tl.where(live, key - centroid[:, None, :], 0.0)
    peak = tl.max(tl.max(tl.abs(key), 2), 1)  # [M]
    exponent = (tl.maximum(peak, 1e-30).to(tl.int32, bitcast=True) >> 23) & 255
    unit = ((254 - exponent) << 23).to(tl.float32, bitcast=True)  # a power of two: unit * peak lies in [1, 2)
    unscale = (exponent << 23).to(tl.float32, bitcast=True)
    deviation = deviation * unit[:, None, None]
    norm = tl.sum(tl.sum((key * unit[:, None, None]) * (key * unit[:, None, None]), 2), 1)  # [M], ||page||^2
    gram = tl.dot(deviation, tl.permute(deviation, (0, 2, 1)), input_precision="ieee")
    value, vector = jacobi(gram, M, B_PAD, SWEEPS)
    other = tl.arange(0, B_PAD)
    ahead = (value[:, None, :] > value[:, :, None]) | (
        (value[:, None, :] == value[:, :, None]) & (other[None, :] < other[:, None])[None]
    )
    rank = tl.sum(ahead.to(tl.int32), 2)  # [M, B]: position by falling eigenvalue
    out = head * blocks + block  # [M]
    record = records + out * BYTES
    coefficient = tl.zeros([M, B_PAD, R_PAD], tl.float32)
    for k in tl.static_range(RANK):
        left = tl.sum(tl.where((rank == k)[:, :, None], vector, 0.0), 1)  # [M, B]
        image = tl.sum(deviation * left[:, :, None], 1)  # [M, D]
        square = tl.sum(image * image, 1)
        kept = square > DROP * norm
        sigma = tl.where(kept, tl.sqrt(square), 0.0)
        column = tl.where(kept[:, None], image / tl.where(kept, sigma, 1.0)[:, None], 0.0)
        left = left * (sigma * unscale)[:, None]
        coefficient = tl.where((mode == k)[None, None, :], left[:, :, None], coefficient)
        if PACK:
            largest = tl.max(tl.abs(column), 1)
            code, scale = quantised(column, largest[:, None], LEVEL)
            store_column(record, here, code, k, D, D_PAD, INT8)
            store_scale(record + QUADS + mode_scale_at(k, QUAD_BYTES, HALF_SCALES), tl.sum(scale, 1), here, HALF_SCALES)
        else:
            tl.store(bases + (out * D)[:, None] * RANK + channel[None, :] * RANK + k, column,
                     mask=here[:, None] & (channel < D)[None, :])  # fmt: skip
    if PACK:
        largest = tl.max(tl.abs(centroid), 1)
        code, scale = quantised(centroid, largest[:, None], 127.0)
        tl.store(record[:, None] + CENTROID + channel[None, :], byte(code), mask=here[:, None] & (channel < D)[None, :])
        quad = tl.arange(0, QUAD_COUNT)
        spot = QUADS + quad * QUAD_BYTES + (12 if HALF_SCALES else 24)
        store_scale(record[:, None] + spot[None, :], tl.broadcast_to(scale, [M, QUAD_COUNT]),
                    here[:, None] & (quad < (BYTES - QUADS) // QUAD_BYTES)[None, :], False)  # fmt: skip
        largest = tl.max(tl.abs(coefficient), 2)
        code, scale = quantised(coefficient, largest[:, :, None], 127.0)
        spot = COEFFICIENTS + coefficient_at(slot[:, None], mode[None, :], TOKENS, MODES)
        tl.store(record[:, None, None] + spot[None], byte(code),
                 mask=here[:, None, None] & (slot < TOKENS)[None, :, None] & (mode < MODES)[None, None, :])  # fmt: skip
        spot = QUADS + token_scale_at(slot, QUAD_BYTES, TOKENS, HALF_SCALES)
        store_scale(record[:, None] + spot[None, :], tl.sum(scale, 2), here[:, None] & (slot < TOKENS)[None, :], HALF_SCALES)
    else:
        tl.store(centroids + (out * D)[:, None] + channel[None, :], centroid,
                 mask=here[:, None] & (channel < D)[None, :])  # fmt: skip
        tl.store(coefficients + ((out * B)[:, None] + slot[None, :])[:, :, None] * RANK + mode[None, None, :], coefficient,
                 mask=token[:, :, None] & (mode < RANK)[None, None, :])  # fmt: skip


@triton.jit
def byte(code):
    """float32 integers of -128..127 as bytes, two's complement."""
    return (code.to(tl.int32) & 255).to(tl.uint8)


@triton.jit
def store_column(record, here, code, k, D: tl.constexpr, D_PAD: tl.constexpr, INT8: tl.constexpr):
    """Write basis column ``k`` of records [M]: codes [M, D_PAD] as bytes, or two channels to a byte."""
    if INT8:
        channel = tl.arange(0, D_PAD)
        tl.store(record[:, None] + k * D + channel[None, :], byte(code), mask=here[:, None] & (channel < D)[None, :])
    else:
        even, odd = tl.split(tl.reshape(code.to(tl.int32), [code.shape[0], D_PAD // 2, 2]))
        pair = tl.arange(0, D_PAD // 2)
        tl.store(record[:, None] + k * ((D + 1) // 2) + pair[None, :], ((even & 15) | ((odd & 15) << 4)).to(tl.uint8),
                 mask=here[:, None] & (pair < (D + 1) // 2)[None, :])  # fmt: skip


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


def _launch(
    cache: Cache, layout: Layout, out: tuple[torch.Tensor, ...], pack: bool, first_page: int, pages: int | None
) -> None:
    B, d, rank = cache.page_size, cache.channels, layout.rank
    pages = max(cache.longest // B - first_page, 0) if pages is None else pages
    M = min(PAGES_PER_PROGRAM, triton.next_power_of_2(max(pages, 1)))
    grid = (cache.sequences * -(-pages // M), cache.heads)
    if 0 in grid:
        return
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    build_kernel[grid](
        cache.keys, table, tokens, *out, *cache.key_strides, stride_table, length, pages, first_page, cache.blocks,
        M=M, B=B, B_PAD=padded(B), D=d, D_PAD=padded(d), RANK=rank, R_PAD=padded(rank, 2), SWEEPS=SWEEPS, PACK=pack,
        LEVEL=LEVELS[layout.basis_bits], DROP=max(B, d) * 2.0**-24, QUAD_COUNT=triton.next_power_of_2(layout.quads),
        num_warps=4, **layout.constants, **cache.switches,
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
