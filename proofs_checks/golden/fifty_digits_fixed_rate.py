"""The fixed-rate codes in exact rationals and mpmath with 50 digits: KIVI, TurboQuant, QJL, Lloyd-2."""

from __future__ import annotations

import struct
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits import dot, exact_list
from proofs_checks.golden.fifty_digits_codes import affine_dequantize
from proofs_checks.golden.fifty_digits_quantiser import lloyd_max_codebook
from proofs_checks.golden.fifty_digits_readkv import readkv_rotate, transform


def key_groups(array: Any, group: int) -> Any:
    """[H, T, d] as rows of the tokens of a group, [H, T/group, d, group]."""
    H, T, d = array.shape
    return np.swapaxes(array.reshape(H, T // group, group, d), -1, -2)


def value_groups(array: Any, group: int) -> Any:
    """[H, T, d] as rows of the channels of a group, [H, T, d/group, group]."""
    H, T, d = array.shape
    return array.reshape(H, T, d // group, group)


def kivi_dequantize(
    key_codes: Any, key_scale: Any, key_zero: Any, value_codes: Any, value_scale: Any, value_zero: Any
) -> Any:
    """`kivi_dequantize`: every group's codes by its own scale and offset."""
    H, T, d = key_codes.shape
    found = {}
    for name, codes, scale, zero, rows in (
        ("keys", key_codes, key_scale, key_zero, key_groups),
        ("values", value_codes, value_scale, value_zero, value_groups),
    ):
        group = T // max(scale.shape[1], 1) if name == "keys" else d // max(scale.shape[2], 1)
        x = affine_dequantize(rows(codes, max(group, 1)), scale, zero)["x"]
        found[name] = (np.swapaxes(x, -1, -2) if name == "keys" else x).reshape(H, T, d)
    return found


def norm_of(row: Any) -> Any:
    """The Euclidean norm."""
    return mp.sqrt(dot(row, row))


def unit_coordinates(x: Any, rotation: Any) -> Any:
    """rotation @ (x / |x|) of every row, [N][d]; a row of zeros gives zeros."""
    sizes = [norm_of(row) for row in x]
    return [[dot(r, row) / (size or 1) for r in rotation] for row, size in zip(x, sizes, strict=True)]


def turboquant_encode(x: Any, rotation: Any, levels: Any) -> Any:
    """`turboquant_encode`: the nearest level, on a midpoint the lower one."""
    middle = [(mpf(float(a)) + mpf(float(b))) / 2 for a, b in pairwise(levels)]
    codes = [[sum(m < y for m in middle) for y in row] for row in unit_coordinates(x, rotation)]
    return {"codes": codes, "norm": [norm_of(row) for row in x]}


def turboquant_decode(codes: Any, norm: Any, rotation: Any, levels: Any, norm_correction: Any) -> Any:
    """`turboquant_decode`."""
    rows = []
    for code, size in zip(codes, norm, strict=True):
        level = [mpf(float(levels[c])) for c in code]
        length = mp.sqrt(mp.fsum(v * v for v in level)) if norm_correction else mpf(1)
        factor = mpf(float(size)) / (length or 1)
        rows.append(
            [factor * mp.fsum(v * mpf(float(r)) for v, r in zip(level, column, strict=True)) for column in rotation.T]
        )
    return {"x": rows}


def nibbles(codes: Any) -> list[int]:
    """Bytes of a row of codes below 16, the even channel in the low nibble."""
    return [int(a) + 16 * int(b) for a, b in zip(codes[0::2], codes[1::2], strict=True)]


def turboquant_pack_slots(key_codes: Any, key_norm: Any, value_codes: Any, value_scale: Any, value_zero: Any) -> Any:
    """`turboquant_pack_slots`: key nibbles, norm, value nibbles, scale, offset; numbers as float16, little-endian."""
    numbers = zip(key_norm, value_scale, value_zero, strict=True)
    slots = []
    for keys, values, (norm, scale, zero) in zip(key_codes, value_codes, numbers, strict=True):
        half = [list(struct.pack("<e", float(x))) for x in (norm, scale, zero)]
        slots.append([*nibbles(keys), *half[0], *nibbles(values), *half[1], *half[2]])
    return {"slots": slots}


def turboquant_unpack_slots(slots: Any) -> Any:
    """`turboquant_unpack_slots`."""
    half = (slots.shape[1] - 6) // 2
    names = ("key_codes", "key_norm", "value_codes", "value_scale", "value_zero")
    found: dict[str, Any] = {name: [] for name in names}
    for row in np.asarray(slots).astype(int).tolist():
        parts = (row[:half], row[half : half + 2], row[half + 2 : -4], row[-4:-2], row[-2:])
        for name, part in zip(names, parts, strict=True):
            codes = [nibble for byte in part for nibble in (byte % 16, byte // 16)]
            found[name].append(codes if name.endswith("codes") else struct.unpack("<e", bytes(part))[0])
    return found


def qjl_encode(x: Any, projection: Any) -> Any:
    """`qjl_encode`: +1 for a projection of 0."""
    signs = [[1 if dot(row, vector) >= 0 else -1 for row in projection] for vector in x]
    return {"signs": signs, "norm": [norm_of(vector) for vector in x]}


def qjl_estimate(signs: Any, norm: Any, projection: Any, queries: Any) -> Any:
    """`qjl_estimate`."""
    factor = mp.sqrt(mp.pi / 2) / max(len(projection), 1)
    along = [[dot(row, q) for row in projection] for q in queries]
    return {
        "estimates": [
            [
                factor * mpf(float(n)) * mp.fsum(int(s) * a for s, a in zip(sign, q, strict=True))
                for sign, n in zip(signs, norm, strict=True)
            ]
            for q in along
        ]
    }


def standardised(x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """(U x - mean) / scale, [H][T][d]."""
    rotated = readkv_rotate(x, signs)["rotated"]
    state = zip(exact_list(mean), exact_list(scale), strict=True)
    return [
        [[(v - m) / s for v, m, s in zip(row, means, scales, strict=True)] for row in head]
        for head, (means, scales) in zip(rotated, state, strict=True)
    ]


def lloyd2_encode(x: Any, mean: Any, scale: Any, signs: Any) -> Any:
    """`lloyd2_encode`: the cell of the four-level codebook, the lower one on a threshold."""
    splits = lloyd_max_codebook(2, "normal", 1)["thresholds"]
    codes = [
        [[sum(t < z for t in splits) for z in row] for row in head] for head in standardised(x, mean, scale, signs)
    ]
    return {"codes": codes, "norm": [[norm_of(row) for row in head] for head in x]}


def lloyd2_decode(codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: Any = True) -> Any:
    """`lloyd2_decode`."""
    levels = lloyd_max_codebook(2, "normal", 1)["levels"]
    state = zip(codes, norm, exact_list(mean), exact_list(scale), strict=True)
    heads = []
    for rows, sizes, means, scales in state:
        head = []
        for row, size in zip(rows, sizes, strict=True):
            restored = [m + s * levels[int(c)] for c, m, s in zip(row, means, scales, strict=True)]
            length = mp.sqrt(mp.fsum(v * v for v in restored)) if norm_correction else 0
            factor = mpf(float(size)) / length if length else mpf(0 if norm_correction else 1)
            turned = transform([factor * v for v in restored])
            head.append([s * v for s, v in zip(signs.tolist(), turned, strict=True)])
        heads.append(head)
    return {"x": heads}


def grouped(x: Any, bits: int) -> Any:
    """Least, scale and steps of rows [..., n] in Fractions: [...], [...] and [..., n]; a constant row has steps 0."""
    levels, rows = 2**bits - 1, np.empty(x.shape, dtype=object)
    least, scale = np.empty(x.shape[:-1], dtype=object), np.empty(x.shape[:-1], dtype=object)
    for index in np.ndindex(x.shape[:-1]):
        row = [Fraction(float(v)) for v in x[index]]
        least[index], scale[index] = min(row), (max(row) - min(row)) / levels
        rows[index] = [(v - least[index]) / (scale[index] or 1) for v in row]
    return least, scale, rows
