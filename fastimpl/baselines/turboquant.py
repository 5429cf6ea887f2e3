"""TurboQuant's codes and its served slots in Triton; mirrors `refimpl.baselines.turboquant` and `turboquant_slot`.

encode: one program a vector: norm -> rotation @ (x / norm) -> how many midpoints lie below
decode: one program a vector: levels (over their norm) -> rotation^T @ them, times the stored norm
slots:  one program a token: nibbles, norm, nibbles, scale, zero
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, ArgumentError, Sizes
from fastimpl.device import padded

FLOAT, UINT8 = (torch.float32,), (torch.uint8,)


@triton.jit
def turboquant_encode_kernel(
    x, rotation, levels, codes, norms, stride_x, D: tl.constexpr, D_PAD: tl.constexpr, L: tl.constexpr
):
    """Row n of x [N, D]: codes [N, D] and the norm. Of two equally near levels the lower; a zero vector has norm 0."""
    row, channel = tl.program_id(0).to(tl.int64), tl.arange(0, D_PAD)
    live = channel < D
    value = tl.load(x + row * stride_x + channel, mask=live, other=0.0).to(tl.float32)
    norm = tl.sqrt_rn(tl.sum(value * value, 0))
    square = live[:, None] & live[None, :]
    matrix = tl.load(rotation + channel[:, None] * D + channel[None, :], mask=square, other=0.0)
    turned = tl.sum(matrix * (value / tl.where(norm > 0, norm, 1.0))[None, :], 1)
    code = tl.zeros([D_PAD], tl.int32)
    for level in range(L - 1):
        middle = 0.5 * (tl.load(levels + level) + tl.load(levels + level + 1))
        code += (turned > middle).to(tl.int32)
    tl.store(codes + row * D + channel, code.to(tl.uint8), mask=live)
    tl.store(norms + row, norm)


@triton.jit
def turboquant_decode_kernel(
    codes, norms, rotation, levels, x, D: tl.constexpr, D_PAD: tl.constexpr, CORRECT: tl.constexpr
):  # fmt: skip
    """Row n of codes [N, D]: norm times rotation^T @ levels, these over their own norm where CORRECT."""
    row, channel = tl.program_id(0).to(tl.int64), tl.arange(0, D_PAD)
    live = channel < D
    code = tl.load(codes + row * D + channel, mask=live, other=0).to(tl.int32)
    level = tl.where(live, tl.load(levels + code, mask=live, other=0.0), 0.0)
    norm = tl.load(norms + row)
    if CORRECT:
        length = tl.sqrt_rn(tl.sum(level * level, 0))
        level = level / tl.where(length > 0, length, 1.0)
    square = live[:, None] & live[None, :]
    matrix = tl.load(rotation + channel[:, None] * D + channel[None, :], mask=square, other=0.0)
    tl.store(x + row * D + channel, norm * tl.sum(matrix * level[:, None], 0), mask=live)


@triton.jit
def put_half(slot, at, value):
    """Two bytes of float16, the low one first."""
    word = value.to(tl.float16).to(tl.uint16, bitcast=True).to(tl.int32)
    tl.store(slot + at, (word & 255).to(tl.uint8))
    tl.store(slot + at + 1, (word >> 8).to(tl.uint8))


@triton.jit
def half_at(slot, at):
    """The float16 that starts at a byte, as float32."""
    low, high = tl.load(slot + at).to(tl.int32), tl.load(slot + at + 1).to(tl.int32)
    return (low | (high << 8)).to(tl.uint16).to(tl.float16, bitcast=True).to(tl.float32)


@triton.jit
def slot_pack_kernel(keys, norms, values, scales, zeros, slots, D: tl.constexpr, HALF_PAD: tl.constexpr):
    """Token t: slot [D + 6] of codes [T, D] and numbers [T]."""
    token, pair = tl.program_id(0).to(tl.int64), tl.arange(0, HALF_PAD)
    live, slot = pair < D // 2, slots + token * (D + 6)
    for part in tl.static_range(2):
        source = (keys if part == 0 else values) + token * D + 2 * pair
        even = tl.load(source, mask=live, other=0).to(tl.int32)
        odd = tl.load(source + 1, mask=live, other=0).to(tl.int32)
        tl.store(slot + part * (D // 2 + 2) + pair, ((even & 15) | ((odd & 15) << 4)).to(tl.uint8), mask=live)
    put_half(slot, D // 2, tl.load(norms + token))
    put_half(slot, D + 2, tl.load(scales + token))
    put_half(slot, D + 4, tl.load(zeros + token))


@triton.jit
def slot_unpack_kernel(slots, keys, norms, values, scales, zeros, D: tl.constexpr, HALF_PAD: tl.constexpr):
    """The inverse of `slot_pack_kernel`."""
    token, pair = tl.program_id(0).to(tl.int64), tl.arange(0, HALF_PAD)
    live, slot = pair < D // 2, slots + token * (D + 6)
    for part in tl.static_range(2):
        byte = tl.load(slot + part * (D // 2 + 2) + pair, mask=live, other=0)
        target = (keys if part == 0 else values) + token * D + 2 * pair
        tl.store(target, byte & 15, mask=live)
        tl.store(target + 1, byte >> 4, mask=live)
    tl.store(norms + token, half_at(slot, D // 2))
    tl.store(scales + token, half_at(slot, D + 2))
    tl.store(zeros + token, half_at(slot, D + 4))


def _table(sizes: Sizes, rotation: Any, levels: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Rotation [d,d] and 2 to 256 levels, contiguous."""
    rotation = sizes.bind("rotation", rotation, "d d", FLOAT).contiguous()
    levels = sizes.bind("levels", levels, "levels", FLOAT).contiguous()
    if not 2 <= len(levels) <= 256:
        raise ArgumentError(f"levels: expected 2 to 256, got {len(levels)}")
    return rotation, levels


def turboquant_encode(*, x: Any, rotation: Any, levels: Any) -> dict[str, torch.Tensor]:
    """uint8 codes [N,d] of the nearest levels of rotation @ (x / |x|), and float32 norms [N], of x [N,d] (ReadKV
    App. F.2; AMB-48). Levels ascend. Raises ArgumentError.
    """
    sizes = Sizes()
    x = sizes.bind("x", x, "N d", FLOATS)
    rotation, levels = _table(sizes, rotation, levels)
    N, d = x.shape
    codes = torch.empty((N, d), dtype=torch.uint8, device=x.device)
    norm = torch.empty(N, dtype=torch.float32, device=x.device)
    if N:
        turboquant_encode_kernel[(N,)](
            x, rotation, levels, codes, norm, x.stride(0), D=d, D_PAD=padded(d), L=len(levels)
        )
    return {"codes": codes, "norm": norm}


def turboquant_decode(*, codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: bool) -> torch.Tensor:
    """Float32 vectors [N,d]: norm times the levels (of length 1 if corrected), rotated back. Raises ArgumentError."""
    sizes = Sizes()
    codes = sizes.bind("codes", codes, "N d", UINT8).contiguous()
    norm = sizes.bind("norm", norm, "N", FLOAT).contiguous()
    rotation, levels = _table(sizes, rotation, levels)
    x = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
    if len(codes):
        d = codes.shape[1]
        turboquant_decode_kernel[(len(codes),)](
            codes, norm, rotation, levels, x, D=d, D_PAD=padded(d), CORRECT=bool(norm_correction)
        )
    return x


def turboquant_pack_slots(
    *, key_codes: Any, key_norm: Any, value_codes: Any, value_scale: Any, value_zero: Any
) -> torch.Tensor:
    """Slots [T,d+6] uint8 as served: key nibbles, norm, value nibbles, scale, zero (AMB-54); d even. Raises
    ArgumentError.
    """
    sizes = Sizes()
    codes = [
        sizes.bind(name, given, "T d", UINT8).contiguous()
        for name, given in (("key_codes", key_codes), ("value_codes", value_codes))
    ]
    numbers = [
        sizes.bind(name, given, "T", FLOAT).contiguous()
        for name, given in (("key_norm", key_norm), ("value_scale", value_scale), ("value_zero", value_zero))
    ]
    T, d = codes[0].shape
    if d % 2:
        raise ArgumentError(f"key_codes: expected an even number of channels, got {d}")
    slots = torch.empty((T, d + 6), dtype=torch.uint8, device=codes[0].device)
    if T:
        norm, scale, zero = numbers
        slot_pack_kernel[(T,)](codes[0], norm, codes[1], scale, zero, slots, D=d, HALF_PAD=padded(d // 2, 2))
    return slots


def turboquant_unpack_slots(*, slots: Any) -> dict[str, torch.Tensor]:
    """What slots [T,d+6] hold: codes uint8 [T,d], norm, scale and zero float32 [T]. Raises ArgumentError."""
    slots = Sizes().bind("slots", slots, "T bytes", UINT8).contiguous()
    T, d = slots.shape[0], slots.shape[1] - 6
    if d < 2 or d % 2:
        raise ArgumentError(f"slots: expected d + 6 bytes of an even d, got {slots.shape[1]}")
    keys, values = torch.empty((2, T, d), dtype=torch.uint8, device=slots.device).unbind()
    norm, scale, zero = torch.empty((3, T), dtype=torch.float32, device=slots.device).unbind()
    if T:
        slot_unpack_kernel[(T,)](slots, keys, norm, values, scale, zero, D=d, HALF_PAD=padded(d // 2, 2))
    return {"key_codes": keys, "key_norm": norm, "value_codes": values, "value_scale": scale, "value_zero": zero}
