"""Bit planes of codes in the layout of the stages: plane 0 holds the first bit. Mirrors `refimpl.readkv.planes`.

    key planes   [8, d, ceil(T/8)]   bit i of byte j of a row is token 8j + i of one channel
    value planes [8, T, ceil(d/8)]   bit i of byte j of a row is channel 8j + i of one token

    grid (rows * bytes / BLOCK)      a program packs or unpacks all eight planes of BLOCK bytes

Bytes: 8 codes in, 8 plane bytes out, or back. `cache.py` has the layouts that the reader is served from.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, Sizes, whole
from fastimpl.device import INTERPRETED

BYTES = (torch.uint8,)
BLOCK = 8192 if INTERPRETED.value else 256


@triton.jit(do_not_specialize=["rows", "items", "row_bytes"])
def pack_planes_kernel(codes, planes, rows, items, row_bytes, stride_row, stride_item, BLOCK: tl.constexpr):
    """Planes of rows of ``items`` codes: code (row, item) at row * stride_row + item * stride_item."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < rows.to(tl.int64) * row_bytes
    row, first = at // row_bytes, at % row_bytes * 8
    i = tl.arange(0, 8)
    item = first[:, None] + i[None, :]
    code = tl.load(codes + row[:, None] * stride_row + item * stride_item,
                   mask=live[:, None] & (item < items), other=0).to(tl.int32)  # fmt: skip
    for plane in tl.static_range(8):
        byte = tl.sum(((code >> (7 - plane)) & 1) << i[None, :], 1)
        tl.store(planes + rows.to(tl.int64) * row_bytes * plane + at, byte.to(tl.uint8), mask=live)


@triton.jit(do_not_specialize=["rows", "items", "row_bytes"])
def unpack_planes_kernel(planes, codes, rows, items, row_bytes, stride_row, stride_item, BLOCK: tl.constexpr):
    """The inverse; padding bits are not looked at."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < rows.to(tl.int64) * row_bytes
    row, first = at // row_bytes, at % row_bytes * 8
    i = tl.arange(0, 8)
    item = first[:, None] + i[None, :]
    code = tl.zeros([BLOCK, 8], tl.int32)
    for plane in tl.static_range(8):
        byte = tl.load(planes + rows.to(tl.int64) * row_bytes * plane + at, mask=live, other=0).to(tl.int32)
        code = code | (((byte[:, None] >> i[None, :]) & 1) << (7 - plane))
    tl.store(codes + row[:, None] * stride_row + item * stride_item, code.to(tl.uint8),
             mask=live[:, None] & (item < items))  # fmt: skip


def _pack(codes: Any, along_tokens: bool) -> torch.Tensor:
    codes = Sizes().bind("codes", codes, "T d", BYTES).contiguous()
    T, d = codes.shape
    rows, items, strides = (d, T, (1, d)) if along_tokens else (T, d, (d, 1))
    planes = torch.empty((8, rows, -(-items // 8)), dtype=torch.uint8, device=codes.device)
    if planes.numel():
        grid = (-(-planes[0].numel() // BLOCK),)
        pack_planes_kernel[grid](codes, planes, rows, items, planes.shape[2], *strides, BLOCK=BLOCK)
    return planes


def _unpack(planes: Any, name: str, count: Any, along_tokens: bool) -> torch.Tensor:
    planes = Sizes().bind("planes", planes, "planes rows bytes", BYTES).contiguous()
    items = whole(name, count, 0)
    if planes.shape[0] != 8 or planes.shape[2] != -(-items // 8):
        expected = f"[8, .., {-(-items // 8)}] for {name}={items}"
        raise ArgumentError(f"planes: expected {expected}, got {list(planes.shape)}")
    rows = planes.shape[1]
    T, d, strides = (items, rows, (1, rows)) if along_tokens else (rows, items, (items, 1))
    codes = torch.empty((T, d), dtype=torch.uint8, device=planes.device)
    if codes.numel():
        grid = (-(-planes[0].numel() // BLOCK),)
        unpack_planes_kernel[grid](planes, codes, rows, items, planes.shape[2], *strides, BLOCK=BLOCK)
    return codes


def readkv_pack_key_planes(*, codes: Any) -> torch.Tensor:
    """Key planes [8, d, ceil(T/8)] of codes uint8 [T, d]; padding bits are 0 (ReadKV Alg. 1)."""
    return _pack(codes, True)


def readkv_unpack_key_planes(*, planes: Any, tokens: int) -> torch.Tensor:
    """Codes uint8 [T, d] of key planes; padding bits are ignored (ReadKV Alg. 1)."""
    return _unpack(planes, "tokens", tokens, True)


def readkv_pack_value_planes(*, codes: Any) -> torch.Tensor:
    """Value planes [8, T, ceil(d/8)] of codes uint8 [T, d]; padding bits are 0 (ReadKV Alg. 1)."""
    return _pack(codes, False)


def readkv_unpack_value_planes(*, planes: Any, channels: int) -> torch.Tensor:
    """Codes uint8 [T, d] of value planes; padding bits are ignored (ReadKV Alg. 1)."""
    return _unpack(planes, "channels", channels, False)
