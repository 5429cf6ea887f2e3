"""Cases of ReadKV's bit planes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from refimpl.readkv.planes import readkv_pack_key_planes, readkv_pack_value_planes

SHAPES = (
    (1, 64),
    (7, 64),
    (8, 128),
    (9, 64),
    (33, 64),
    (25, 64),
    (31, 64),
    (57, 64),
    (41, 128),
    (0, 64),
    (2100, 8),
    (3, 2112),
    (3, 1),
)
FIRST = "codes 128 set the first plane alone, codes 1 the last: a prefix of depth t is the first t planes"
ORDER = "single bits of single items: which plane, byte and bit they are (AMB-18)"
SQUARE = "as many tokens as channels: key planes run along tokens, value planes along channels"
PADDING = "padding bits of the last byte are set: they are ignored"


def _first_plane() -> Inputs:
    codes = np.full((16, 16), 128)
    codes[3] = 1
    return {"codes": codes}


def _single_bits() -> Inputs:
    codes = np.zeros((16, 24), dtype=np.int64)
    codes[1, 0], codes[9, 1], codes[0, 23], codes[2, 17] = 0x80, 0x01, 0x40, 0x02
    return {"codes": codes}


def _codes(T: int, d: int) -> Inputs:
    return {"codes": generator("planes", f"{T},{d}").integers(0, 256, size=(T, d))}


def _pack_cases(name: str) -> list[Case]:
    stage = Family(name, "D")
    cases = [
        stage.exact("first-plane", "D", FIRST, _first_plane),
        stage.exact("single-bits", "D", ORDER, _single_bits),
        stage.exact("square", "D", SQUARE, partial(_codes, 16, 16)),
    ]
    for T, d in SHAPES:
        why = f"{T} tokens of {d} channels; padding bits are 0"
        cases.append(stage.exact(f"T{T}-d{d}", "A" if T % 8 else "D", why, partial(_codes, T, d)))
    cases.append(
        stage.exact("d12", "A", "12 channels: the last byte of a value row is half full", partial(_codes, 9, 12))
    )
    cases.append(stage.general("random", "random codes", partial(_codes, 40, 64), kind="exact"))
    return cases


def pack_key_cases() -> list[Case]:
    """Cases of `readkv_pack_key_planes`."""
    return _pack_cases("readkv_pack_key_planes")


def pack_value_cases() -> list[Case]:
    """Cases of `readkv_pack_value_planes`."""
    return _pack_cases("readkv_pack_value_planes")


def _keys_packed(codes: Any) -> Inputs:
    return {"planes": readkv_pack_key_planes(codes=codes), "tokens": len(codes)}


def _values_packed(codes: Any) -> Inputs:
    return {"planes": readkv_pack_value_planes(codes=codes), "channels": codes.shape[1]}


def _set_padding(inputs: Inputs) -> Inputs:
    count = int(inputs["tokens"] if "tokens" in inputs else inputs["channels"])
    planes = inputs["planes"].copy()
    if count % 8:
        planes[..., -1] |= np.uint8(256 - (1 << count % 8))
    return {**inputs, "planes": planes}


def _unpack_cases(name: str, packed: Any) -> list[Case]:
    stage = Family(name, "D")

    def case(make: Any) -> Any:
        return lambda: _set_padding(packed(make()["codes"]))

    cases = [
        stage.exact("first-plane", "D", FIRST, case(_first_plane)),
        stage.exact("single-bits", "D", ORDER, case(_single_bits)),
        stage.exact("square", "D", SQUARE, case(partial(_codes, 16, 16))),
    ]
    for T, d in SHAPES:
        make = case(partial(_codes, T, d))
        cases.append(stage.exact(f"T{T}-d{d}", "A" if T % 8 else "D", f"{T} tokens of {d} channels", make))
    cases += [
        stage.exact("padding", "A", PADDING, case(partial(_codes, 13, 12))),
        stage.general("random", "random codes", case(partial(_codes, 40, 64)), kind="exact"),
    ]
    return cases


def unpack_key_cases() -> list[Case]:
    """Cases of `readkv_unpack_key_planes`."""
    return _unpack_cases("readkv_unpack_key_planes", _keys_packed)


def unpack_value_cases() -> list[Case]:
    """Cases of `readkv_unpack_value_planes`."""
    return _unpack_cases("readkv_unpack_value_planes", _values_packed)
