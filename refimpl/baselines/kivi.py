"""KIVI: keys quantised per channel over groups of tokens, values per token over groups of channels."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, integers, real, whole
from refimpl.readkv.affine import affine_dequantize

FORMATS = {"float16": np.float16, "float32": np.float32, "float64": np.float64}
"""What scales and offsets may be stored in."""

RULES = ("readkv", "prefill")


def kivi_quantize(
    *, keys: Any, values: Any, bits: int, group_size: int = 32, scale_format: str = "float16"
) -> dict[str, Any]:
    """Codes of complete groups: keys over ``group_size`` tokens of a channel, values over as many channels of a token.

    Scale and offset (the group's minimum) are rounded to ``scale_format`` first; codes are computed with the rounded
    ones (AMB-46). The residual stays outside: T is a multiple of the group.

    Args:
        keys, values: [H, T, d], T and d multiples of ``group_size``.
        bits: 1..8 (the papers use 2 and 4). scale_format: a key of `FORMATS`.

    Returns:
        ``key_codes``, ``value_codes`` [H, T, d] uint8; ``key_scale``, ``key_zero`` [H, T/group, d];
        ``value_scale``, ``value_zero`` [H, T, d/group].

    Raises:
        ArgumentError: a shape, a non-finite value, or a minimum that ``scale_format`` cannot hold.

    Source: ReadKV App. F.2 (KIVI).

    >>> q = kivi_quantize(keys=[[[0.0], [3.0]]], values=[[[1.0], [5.0]]], bits=2, group_size=1)
    >>> q["key_codes"].tolist(), q["key_zero"].tolist(), q["value_scale"].tolist()
    ([[[0], [0]]], [[[0.0], [3.0]]], [[[0.0], [0.0]]])
    """
    sizes = Sizes()
    keys, values = real("keys", keys, "H T d", sizes), real("values", values, "H T d", sizes)
    group = whole("group_size", group_size, low=1)
    for name in ("T", "d"):
        if sizes[name] % group:
            raise ArgumentError(f"group_size: expected a divisor of {name}={sizes[name]}, got {group}")
    levels = 2 ** whole("bits", bits, low=1, high=8) - 1
    stored = FORMATS[choice("scale_format", scale_format, tuple(FORMATS))]
    H, T, d = keys.shape
    # groups last: keys [H, T/g, d, g], values [H, T, d/g, g]
    key_rows = keys.reshape(H, T // group, group, d).swapaxes(-1, -2)
    value_rows = values.reshape(H, T, d // group, group)
    key, value = (_rows("keys", key_rows, levels, stored), _rows("values", value_rows, levels, stored))
    return {
        "key_codes": key[0].swapaxes(-1, -2).reshape(H, T, d),
        "key_scale": key[1],
        "key_zero": key[2],
        "value_codes": value[0].reshape(H, T, d),
        "value_scale": value[1],
        "value_zero": value[2],
    }


def _rows(name: str, rows: FloatArray, levels: int, stored: Any) -> tuple[Any, FloatArray, FloatArray]:
    """Codes of rows [..., n], with scale and offset [...] as stored. A constant row has scale 0 and codes 0."""
    least, most = rows.min(axis=-1), rows.max(axis=-1)
    with np.errstate(over="ignore"):
        scale = ((most - least) / levels).astype(stored).astype(np.float64)
        zero = least.astype(stored).astype(np.float64)
    if not (np.isfinite(scale).all() and np.isfinite(zero).all()):
        largest = float(np.abs(rows).max())
        raise ArgumentError(f"{name}: expected values within {np.dtype(stored).name}, got one of {largest:g}")
    steps = np.zeros_like(rows)
    np.divide(rows - zero[..., None], scale[..., None], out=steps, where=scale[..., None] > 0)
    return np.clip(np.rint(steps), 0, levels).astype(np.uint8), scale, zero


def kivi_dequantize(
    *, key_codes: Any, key_scale: Any, key_zero: Any, value_codes: Any, value_scale: Any, value_zero: Any
) -> dict[str, FloatArray]:
    """The numbers that the codes stand for: ``keys`` and ``values`` [H, T, d], code * scale + zero by group.

    Shapes as `kivi_quantize` returns them; the group's size follows from them. Raises ArgumentError for a shape, a
    non-finite parameter or a code outside 0..255.

    Source: ReadKV App. F.2 (KIVI).

    >>> one = {"key_codes": [[[3]]], "key_scale": [[[2.0]]], "key_zero": [[[1.0]]]}
    >>> kivi_dequantize(**one, value_codes=[[[0]]], value_scale=[[[1.0]]], value_zero=[[[4.0]]])["keys"].tolist()
    [[[7.0]]]
    """
    sizes = Sizes()
    key_codes = integers("key_codes", key_codes, "H T d", sizes, low=0, high=255)
    value_codes = integers("value_codes", value_codes, "H T d", sizes, low=0, high=255)
    key_scale = real("key_scale", key_scale, "H key_groups d", sizes)
    key_zero = real("key_zero", key_zero, "H key_groups d", sizes)
    value_scale = real("value_scale", value_scale, "H T value_groups", sizes)
    value_zero = real("value_zero", value_zero, "H T value_groups", sizes)
    H, T, d = key_codes.shape
    key_groups, value_groups = sizes["key_groups"], sizes["value_groups"]
    for name, whole_axis, groups in (("key_scale", T, key_groups), ("value_scale", d, value_groups)):
        if (groups == 0 and whole_axis) or (groups and whole_axis % groups):
            raise ArgumentError(f"{name}: expected a number of groups that divides {whole_axis}, got {groups}")
    key_rows = key_codes.reshape(H, key_groups, T // max(key_groups, 1), d)  # [H, groups, group, d]
    keys = affine_dequantize(codes=key_rows.swapaxes(-1, -2), scale=key_scale, zero=key_zero)
    value_rows = value_codes.reshape(H, T, value_groups, d // max(value_groups, 1))
    values = affine_dequantize(codes=value_rows, scale=value_scale, zero=value_zero)
    return {"keys": keys.swapaxes(-1, -2).reshape(H, T, d), "values": values.reshape(H, T, d)}


def kivi_residual(*, tokens: int, rule: str = "readkv", residual: int = 128) -> tuple[int, int]:
    """How many of the last tokens keep uncompressed keys and values under a residual rule (AMB-47).

    "readkv" is what the printed percentages count: ((T-1) mod R) + 1 keys and min(T, R) values. "prefill" is the
    published code's: T mod R keys after a prefill (a full buffer is flushed), and min(T, R) values.

    Source: ReadKV App. F.2, Tables 2, 3, 6 to 8.

    >>> kivi_residual(tokens=2048), kivi_residual(tokens=2048, rule="prefill"), kivi_residual(tokens=100)
    ((128, 128), (0, 128), (100, 100))
    """
    tokens, residual = whole("tokens", tokens, low=0), whole("residual", residual, low=1)
    rule = choice("rule", rule, RULES)
    keys = tokens % residual if rule == "prefill" else (tokens - 1) % residual + 1 if tokens else 0
    return keys, min(tokens, residual)
