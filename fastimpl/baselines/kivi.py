"""KIVI's groups in Triton; mirrors `refimpl.baselines.kivi`.

keys [H, T, d] as [H T/g, g, d], values as [H T d/g, g, 1]: one line of g values, `inner` apart
  minimum, (maximum - minimum) / levels, both rounded to the input's format -> codes by the rounded ones
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import FLOATS, ArgumentError, Sizes, whole
from fastimpl.device import INTERPRETED, padded, round_to_even

FLOAT, UINT8 = (torch.float32,), (torch.uint8,)
LINES = 256 if INTERPRETED.value else 4
BLOCK = 1 << 16 if INTERPRETED.value else 1024


@triton.jit
def kivi_group_kernel(
    x, codes, scales, zeros, lines, inner, levels, N: tl.constexpr, N_PAD: tl.constexpr, LINES: tl.constexpr,
):  # fmt: skip
    """Lines of N values ``inner`` elements apart, storage [outer, N, inner]; a constant line: scale and codes 0."""
    line = tl.program_id(0) * LINES + tl.arange(0, LINES)
    item = tl.arange(0, N_PAD)
    at = (line // inner).to(tl.int64)[:, None] * (N * inner) + (line % inner)[:, None] + (item * inner)[None, :]
    live = (line < lines)[:, None] & (item < N)[None, :]
    stored = tl.load(x + at, mask=live, other=0.0)
    value = stored.to(tl.float32)
    low = tl.min(tl.where(live, value, float("inf")), 1)[:, None]
    high = tl.max(tl.where(live, value, float("-inf")), 1)[:, None]
    # rounded as the input is stored, then used; padding lines hold infinities that no one stores
    scale = tl.div_rn(high - low, low * 0.0 + levels).to(stored.dtype).to(tl.float32)
    steps = tl.div_rn(value - low, tl.broadcast_to(tl.where(scale > 0, scale, 1.0), value.shape))
    code = tl.where(scale > 0, tl.minimum(tl.maximum(round_to_even(steps), 0.0), levels), 0.0)
    tl.store(codes + at, code.to(tl.uint8), mask=live)
    tl.store(scales + line, tl.sum(scale, 1), mask=line < lines)
    tl.store(zeros + line, tl.sum(low, 1), mask=line < lines)


@triton.jit
def kivi_ungroup_kernel(codes, scales, zeros, x, count, inner, N: tl.constexpr, BLOCK: tl.constexpr):
    """Code times scale plus zero of its line, storage as in `kivi_group_kernel`."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    line = at // (N * inner) * inner + at % inner
    live = at < count
    value = tl.load(codes + at, mask=live, other=0).to(tl.float32) * tl.load(scales + line, mask=live, other=0.0)
    tl.store(x + at, value + tl.load(zeros + line, mask=live, other=0.0), mask=live)


def kivi_quantize(*, keys: Any, values: Any, bits: int, group_size: int = 32) -> dict[str, torch.Tensor]:
    """uint8 codes [H,T,d], float32 scales and zeros of complete groups: keys over tokens [H,T/group,d], values over
    channels [H,T,d/group] (ReadKV App. F.2; AMB-46). T and d are multiples of the group. Raises ArgumentError.
    """
    sizes, group = Sizes(), whole("group_size", group_size, 1)
    keys, values = sizes.bind("keys", keys, "H T d", FLOATS), sizes.bind("values", values, "H T d", FLOATS)
    for name in ("T", "d"):
        if sizes[name] % group:
            raise ArgumentError(f"group_size: expected a divisor of {name}={sizes[name]}, got {group}")
    levels, (H, T, d) = 2 ** whole("bits", bits, 1, 8) - 1, keys.shape
    result = {}
    for name, x, inner, shape in (("key", keys, d, (H, T // group, d)), ("value", values, 1, (H, T, d // group))):
        x = x.contiguous()
        codes = torch.empty(x.shape, dtype=torch.uint8, device=x.device)
        scales, zeros = torch.empty((2, *shape), dtype=torch.float32, device=x.device).unbind()
        if x.numel():
            lines = scales.numel()
            kivi_group_kernel[(-(-lines // LINES),)](
                x, codes, scales, zeros, lines, inner, levels, N=group, N_PAD=padded(group, 2), LINES=LINES
            )
        result |= {f"{name}_codes": codes, f"{name}_scale": scales, f"{name}_zero": zeros}
    return result


def kivi_dequantize(
    *, key_codes: Any, key_scale: Any, key_zero: Any, value_codes: Any, value_scale: Any, value_zero: Any
) -> dict[str, torch.Tensor]:
    """Float32 keys and values [H,T,d] out of the results of `kivi_quantize`. Raises ArgumentError."""
    sizes = Sizes()
    parts = {
        "keys": (key_codes, key_scale, key_zero, "key", "H groups d", 1),
        "values": (value_codes, value_scale, value_zero, "value", "H T parts", 2),
    }
    result = {}
    for name, (codes, scale, zero, word, axes, axis) in parts.items():
        codes = sizes.bind(f"{word}_codes", codes, "H T d", UINT8).contiguous()
        scale = sizes.bind(f"{word}_scale", scale, axes, FLOAT).contiguous()
        zero = sizes.bind(f"{word}_zero", zero, axes, FLOAT).contiguous()
        groups, along = scale.shape[axis], codes.shape[axis]
        if along and (not groups or along % groups):
            raise ArgumentError(f"{word}_scale: expected a number of groups that divides {along}, got {groups}")
        x = torch.empty(codes.shape, dtype=torch.float32, device=codes.device)
        if codes.numel():
            inner = codes.shape[2] if axis == 1 else 1
            kivi_ungroup_kernel[(-(-codes.numel() // BLOCK),)](
                codes, scale, zero, x, codes.numel(), inner, N=along // groups, BLOCK=BLOCK
            )
        result[name] = x
    return result
