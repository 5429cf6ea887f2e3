"""Build page summaries: centre, Gram matrix, eigenvectors, basis and coefficients, quantised and packed.

Mirrors `refimpl.locks.summary.locks_build_summary` (and, for records, `locks_quantize_summary`, `locks_pack_basis`).

    build_kernel   grid (pages / 8)    everything, one warp for eight pages: centroids and Gram matrices (`build_gram.py`),
                                       eigenvectors with four lanes to a page (`jacobi_quads.py`), images of the modes
                                       as one matrix product, quantised and packed in registers (`build_finish.py`)

That is the branch for NVIDIA at B = 16, d = 64, 128 or 256 and ranks up to 8, in PTX. Other shapes and devices take three
kernels, in portions whose matrices stay in the L2 cache:

    gram_kernel    grid (pages / M)    keys [B, d] -> deviations D from the centroid -> D D^T [B, B]
    jacobi_kernel  grid (pages / M)    eigenvectors by falling eigenvalue (`jacobi.py`)
    finish_kernel  grid (pages / M)    mode k: image D^T u_k [d], its length sigma_k, column image / sigma_k,
                                       coefficients sigma_k u_k [B] -> float32 results, or a record's codes and scales

Bytes moved per page at B = 16, d = 128, bfloat16: 4096 in, twice, 832 out. Deviations are scaled by a power of two
before the Gram matrix, so that squares neither overflow nor vanish. Modes with sigma <= sqrt(max(B, d) 2^-24) ||page||
are dropped: columns and coefficients 0 (AMB-10).
"""

from __future__ import annotations

import functools
from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, Sizes, whole
from fastimpl.device import INTERPRETED, padded
from fastimpl.locks.build_finish import COLUMNS, OPERANDS, build_text
from fastimpl.locks.build_gram import PAGES, Pages
from fastimpl.locks.jacobi import SWEEPS, eigenvectors
from fastimpl.locks.page import centred, mode_of, quantised, store_column, store_packed
from fastimpl.locks.record import Layout, mode_scale_at, store_scale
from fastimpl.paging import Cache

PAGES_PER_PROGRAM = 64 if INTERPRETED.value else 1
"""The interpreter pays per operation, the device per register."""

WARPS = 4 if INTERPRETED.value else 1
"""One page to a warp: its reductions need no barrier."""

REGISTERS = 168
"""Of a thread of `build_kernel`: the most with which twelve warps fit a multiprocessor."""

ITEMS = 16384
"""Pages per portion: 16 MB of matrices and as much of vectors."""


@triton.jit
def page_of(
    item, block_table, tokens, stride_table, length_of_all, pages, first_page, heads, items, B: tl.constexpr,
    TABLE: tl.constexpr, LENGTHS: tl.constexpr,
):  # fmt: skip
    """Pool block, KV head and validity of work items [M]: sequence by sequence, head by head, page by page."""
    row, page = item // pages, first_page + item % pages
    n = (row // heads).to(tl.int64)
    inside = item < items
    length = length_of_all
    if LENGTHS:
        length = tl.load(tokens + n, mask=inside, other=0).to(tl.int32)
    here = inside & (page < length // B)
    block = page.to(tl.int64)
    if TABLE:
        block = tl.load(block_table + n * stride_table + page, mask=here, other=0).to(tl.int64)
    return block, (row % heads).to(tl.int64), here


@triton.jit(do_not_specialize=["length_of_all", "pages", "first_page", "heads", "first_item", "items"])
def gram_kernel(
    keys, block_table, tokens, grams, stride_kb, stride_ks, stride_kh, stride_table, length_of_all, pages, first_page,
    heads, first_item, items, M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr,
    D_PAD: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Gram matrices [M, B, B] of the deviations of the items' pages; 0 for a page that is not there."""
    local = tl.program_id(0) * M + tl.arange(0, M)
    block, head, here = page_of(first_item + local, block_table, tokens, stride_table, length_of_all, pages, first_page,
                                heads, items, B, TABLE, LENGTHS)  # fmt: skip
    _centroid, deviation, _unit, _norm = centred(
        keys, block, head, here, stride_kb, stride_ks, stride_kh, B, B_PAD, D, D_PAD
    )
    gram = tl.dot(deviation, tl.permute(deviation, (0, 2, 1)), input_precision=PRECISION)
    i = tl.arange(0, B_PAD)
    at = local.to(tl.int64)[:, None, None] * (B_PAD * B_PAD) + (i[:, None] * B_PAD + i[None, :])[None]
    tl.store(grams + at, gram)


@triton.jit(do_not_specialize=["length_of_all", "pages", "first_page", "blocks", "heads", "first_item", "items"])
def finish_kernel(
    keys, block_table, tokens, vectors, centroids, bases, coefficients, records, stride_kb, stride_ks, stride_kh,
    stride_table, length_of_all, pages, first_page, blocks, heads, first_item, items,
    M: tl.constexpr, B: tl.constexpr, B_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, RANK: tl.constexpr,
    R_PAD: tl.constexpr, V_PAD: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, PACK: tl.constexpr,
    INT8: tl.constexpr, LEVEL: tl.constexpr, HALF_SCALES: tl.constexpr, BYTES: tl.constexpr, CENTROID: tl.constexpr,
    COEFFICIENTS: tl.constexpr, QUADS: tl.constexpr, QUAD_BYTES: tl.constexpr, TOKENS: tl.constexpr,
    MODES: tl.constexpr, QUAD_COUNT: tl.constexpr, DROP: tl.constexpr,
):  # fmt: skip
    """Summaries of the items' pages from their eigenvectors [items, V_PAD, B]: float32 parts, or records where PACK."""
    local = tl.program_id(0) * M + tl.arange(0, M)
    block, head, here = page_of(first_item + local, block_table, tokens, stride_table, length_of_all, pages, first_page,
                                heads, items, B, TABLE, LENGTHS)  # fmt: skip
    slot, channel, mode = tl.arange(0, B_PAD), tl.arange(0, D_PAD), tl.arange(0, R_PAD)
    centroid, deviation, unit, norm = centred(
        keys, block, head, here, stride_kb, stride_ks, stride_kh, B, B_PAD, D, D_PAD
    )
    out = head * blocks + block
    record = records + out * BYTES
    wide = here[:, None] & (channel < D)[None, :]
    coefficient = tl.zeros([M, B_PAD, R_PAD], tl.float32)
    for k in tl.static_range(RANK):
        left = tl.load(vectors + (local.to(tl.int64) * V_PAD + k)[:, None] * B_PAD + slot[None, :])
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


@triton.jit(do_not_specialize=["length_of_all", "pages", "first_page", "blocks", "heads", "first_item", "items"])
def build_kernel(
    keys, block_table, tokens, centroids, bases, coefficients, records, stride_kb, stride_ks, stride_kh, stride_table,
    length_of_all, pages, first_page, blocks, heads, first_item, items, B: tl.constexpr, D: tl.constexpr,
    RANK: tl.constexpr, TABLE: tl.constexpr, LENGTHS: tl.constexpr, PACK: tl.constexpr, BYTES: tl.constexpr,
    KEY_BYTES: tl.constexpr, TEXT: tl.constexpr, OPERANDS: tl.constexpr,
):  # fmt: skip
    """Summaries of eight items by one warp, from keys to records or float32 parts (NVIDIA; `build_finish.py`)."""
    local = tl.program_id(0) * 8 + tl.arange(0, 32) // 4
    block, head, here = page_of(first_item + local, block_table, tokens, stride_table, length_of_all, pages, first_page,
                                heads, items, B, TABLE, LENGTHS)  # fmt: skip
    block, head = tl.where(here, block, 0), tl.where(here, head, 0)  # some page that can be read
    out = head * blocks + block
    if PACK:
        centroid = (records + out * BYTES).to(tl.int64)
        basis, coefficient = centroid, centroid
    else:
        centroid = (centroids + out * D).to(tl.int64)
        basis = (bases + out * (D * RANK)).to(tl.int64)
        coefficient = (coefficients + out * (B * RANK)).to(tl.int64)
    key = (keys + block * stride_kb + head * stride_kh).to(tl.int64)
    row = local * 0 + (stride_ks * KEY_BYTES).to(tl.int32)
    tl.inline_asm_elementwise(TEXT, OPERANDS, [key, centroid, basis, coefficient, row, here.to(tl.int32)],
                              dtype=tl.int32, is_pure=False, pack=1)  # fmt: skip


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
    cache: Cache, layout: Layout, out: tuple[torch.Tensor, ...], pack: bool, first_page: int, pages: int | None,
    branch: str = "auto",
) -> None:  # fmt: skip
    """Gram matrices, eigenvectors and summaries of all pages, ITEMS at a time."""
    B, d, rank, device = cache.page_size, cache.channels, layout.rank, cache.keys.device
    pages = max(cache.longest // B - first_page, 0) if pages is None else pages
    items = cache.sequences * cache.heads * pages
    if items == 0:
        return
    if branch != "plain" and takes_ptx(cache, rank):
        _launch_warps(cache, layout, out, pack, first_page, pages)
        return
    M = min(PAGES_PER_PROGRAM, triton.next_power_of_2(items))
    at_once = -(-min(items, ITEMS) // M) * M
    B_pad = padded(B)
    grams = torch.empty((at_once, B_pad, B_pad), dtype=torch.float32, device=device)
    vectors = torch.empty((at_once, B_pad, B_pad), dtype=torch.float32, device=device)
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    shape = {"M": M, "B": B, "B_PAD": B_pad, "D": d, "D_PAD": padded(d), "num_warps": WARPS, **cache.switches}
    # three TF32 products of high and low parts lose 2^-22 of a product and spare the registers of float32's own
    precision = "tf32x3" if device.type == "cuda" and torch.version.hip is None else "ieee"
    for first in range(0, items, at_once):
        programs = -(-min(items - first, at_once) // M)
        gram_kernel[(programs,)](
            cache.keys, table, tokens, grams, *cache.key_strides, stride_table, length, pages, first_page, cache.heads,
            first, items, PRECISION=precision, **shape,
        )  # fmt: skip
        eigenvectors(grams[: programs * M], vectors, branch)
        finish_kernel[(programs,)](
            cache.keys, table, tokens, vectors, *out, *cache.key_strides, stride_table, length, pages, first_page,
            cache.blocks, cache.heads, first, items,
            RANK=rank, R_PAD=padded(rank, 2), V_PAD=B_pad, PACK=pack, LEVEL=LEVELS[layout.basis_bits],
            DROP=max(B, d) * 2.0**-24, QUAD_COUNT=triton.next_power_of_2(layout.quads), **shape, **layout.constants,
        )  # fmt: skip


def takes_ptx(cache: Cache, rank: int) -> bool:
    """Whether one warp can build eight summaries: the branch for NVIDIA from compute capability 8.0 on."""
    keys = cache.keys
    if keys.device.type != "cuda" or torch.version.hip is not None or INTERPRETED.value:
        return False
    # keys are read 16 bytes at a time
    aligned = all(step * keys.element_size() % 16 == 0 for step in (*cache.key_strides, keys.data_ptr()))
    shape = cache.page_size == 16 and cache.channels in (64, 128, 256) and rank <= COLUMNS
    return shape and aligned and torch.cuda.get_device_capability(keys.device)[0] >= 8


@functools.cache
def build_text_of(dtype: str, layout: Layout, pack: bool) -> str:
    """The program of `build_kernel` for keys of a type."""
    drop, level = max(layout.page_size, layout.channels) * 2.0**-24, LEVELS[layout.basis_bits]
    return build_text(Pages(dtype, layout.channels, layout.rank, SWEEPS, drop, level, pack, layout.constants))


def _launch_warps(
    cache: Cache, layout: Layout, out: tuple[torch.Tensor, ...], pack: bool, first_page: int, pages: int
) -> None:
    """All pages in one launch, eight to a warp."""
    items = cache.sequences * cache.heads * pages
    (table, stride_table), (tokens, length) = cache.table, cache.lengths
    build_kernel[(-(-items // PAGES),)](
        cache.keys, table, tokens, *out, *cache.key_strides, stride_table, length, pages, first_page, cache.blocks,
        cache.heads, 0, items, B=cache.page_size, D=cache.channels, RANK=layout.rank, PACK=pack, BYTES=layout.bytes,
        KEY_BYTES=cache.keys.element_size(), TEXT=build_text_of(str(cache.keys.dtype).removeprefix("torch."), layout, pack),
        OPERANDS=OPERANDS, num_warps=1, maxnreg=REGISTERS, **cache.switches,
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
