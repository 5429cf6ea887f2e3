"""The slot of one token and KV head as TurboQuant K4/V4 is served: nibbles, norm, nibbles, scale and zero."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, integers, real, whole


def turboquant_slot_bytes(d: int) -> int:
    """Bytes of a slot: d/2 + 2 of the key, d/2 + 4 of the value; d even.

    >>> turboquant_slot_bytes(128)
    134
    """
    if whole("d", d, low=2) % 2:
        raise ArgumentError(f"d: expected an even number of channels, got {d}")
    return d + 6


def turboquant_pack_slots(*, key_codes: Any, key_norm: Any, value_codes: Any, value_scale: Any, value_zero: Any) -> Any:
    """Slots [T, d + 6] uint8: key nibbles, norm, value nibbles, scale, zero (AMB-54).

    Two codes a byte, the even channel in the low nibble; norm, scale and zero float16, little-endian.

    Args:
        key_codes, value_codes: [T, d], 0..15, d even. key_norm, value_scale, value_zero: [T], within float16.

    Raises:
        ArgumentError: a shape, a code beyond 15, or a number that float16 cannot hold.

    Source: ReadKV App. F.2 (TurboQuant K4/V4 as served).

    >>> slots = turboquant_pack_slots(key_codes=[[1, 2]], key_norm=[1.0], value_codes=[[15, 0]], value_scale=[2.0],
    ...                               value_zero=[-1.0])
    >>> slots.tolist() == [[0x21, 0x00, 0x3C, 0x0F, 0x00, 0x40, 0x00, 0xBC]]
    True
    """
    sizes = Sizes()
    key_codes = integers("key_codes", key_codes, "T d", sizes, low=0, high=15)
    value_codes = integers("value_codes", value_codes, "T d", sizes, low=0, high=15)
    if sizes["d"] == 0 or sizes["d"] % 2:
        raise ArgumentError(f"key_codes: expected an even number of channels, got d={sizes['d']}")
    norm = _half_bytes("key_norm", real("key_norm", key_norm, "T", sizes))
    scale = _half_bytes("value_scale", real("value_scale", value_scale, "T", sizes))
    zero = _half_bytes("value_zero", real("value_zero", value_zero, "T", sizes))
    return np.concatenate([_nibbles(key_codes), norm, _nibbles(value_codes), scale, zero], axis=1)


def turboquant_unpack_slots(*, slots: Any) -> dict[str, Any]:
    """What slots [T, d + 6] hold, as `turboquant_pack_slots` takes it. Raises ArgumentError for an odd or short slot.

    Source: ReadKV App. F.2 (TurboQuant K4/V4 as served).

    >>> turboquant_unpack_slots(slots=[[0x21, 0x00, 0x3C, 0x0F, 0x00, 0x40, 0x00, 0xBC]])["value_codes"].tolist()
    [[15, 0]]
    """
    slots = integers("slots", slots, "T bytes", Sizes(), low=0, high=255).astype(np.uint8)
    half = (slots.shape[1] - 6) // 2
    if half < 1 or slots.shape[1] % 2:
        raise ArgumentError(f"slots: expected d + 6 bytes of an even d, got {list(slots.shape)}")
    key, norm, value, scale, zero, _ = np.split(slots, np.cumsum([half, 2, half, 2, 2]), axis=1)
    return {
        "key_codes": _codes(key),
        "key_norm": _half(norm),
        "value_codes": _codes(value),
        "value_scale": _half(scale),
        "value_zero": _half(zero),
    }


def _nibbles(codes: Any) -> Any:
    return (codes[:, 0::2] | codes[:, 1::2] << 4).astype(np.uint8)


def _codes(packed: Any) -> Any:
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), 2 * packed.shape[1])


def _half_bytes(name: str, numbers: FloatArray) -> Any:
    with np.errstate(over="ignore"):
        half = numbers.astype("<f2")
    if not np.isfinite(half).all():
        raise ArgumentError(f"{name}: expected numbers within float16, got {np.abs(numbers).max():g}")
    return half[:, None].view(np.uint8)


def _half(two_bytes: Any) -> FloatArray:
    numbers: FloatArray = np.ascontiguousarray(two_bytes).view("<f2")[:, 0].astype(np.float64)
    return numbers
