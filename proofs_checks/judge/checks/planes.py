"""Judging bit planes: the bytes of the paper dialect, or any other order that its own twin undoes (AMB-18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.judgement import Call, Departure, Judgement, compare_exactly
from refimpl.readkv.planes import (
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
)

COUNTS = {"readkv_unpack_key_planes": "tokens", "readkv_unpack_value_planes": "channels"}
GARBAGE = 0xA5
"""What planes beyond a prefix hold when it is read."""


def packed_planes(pack: str, unpack: str) -> Callable[[Call], Judgement]:
    """The check of a packing stage: the reference's bytes; else a departure if ``unpack`` undoes it, prefixes too."""

    def check(call: Call) -> Judgement:
        judgement, codes = Judgement(), call.inputs["codes"]
        planes, reference = np.asarray(call.answer["planes"]), np.asarray(call.reference["planes"])
        compare_exactly(judgement, "planes", planes, reference)
        clean = np.unpackbits(planes).sum() == np.unpackbits(reference).sum()  # no bit beside the codes' own is set
        if judgement.faults and clean and planes.shape == reference.shape:
            undone = _undoes(call, unpack, planes, codes)
            if undone or (undone is None and np.array_equal(planes, high_bit_first(reference))):
                return Judgement(departures=[_departure()])
        return judgement

    return check


def unpacked_planes(pack: str, unpack: str) -> Callable[[Call], Judgement]:
    """The check of an unpacking stage: the reference's codes; else a departure if it undoes the port's own ``pack``."""

    def check(call: Call) -> Judgement:
        judgement, codes = Judgement(), np.asarray(call.reference["codes"])
        compare_exactly(judgement, "codes", call.answer["codes"], codes)
        if judgement.faults:
            own = call.ask(_asked(pack, {"codes": codes}))
            if own is None:
                seen = _reference_unpack(call, unpack, high_bit_first(np.asarray(call.inputs["planes"], np.uint8)))
                departs = np.array_equal(call.answer["codes"], seen)
            else:
                planes = np.asarray(own["planes"])
                departs = not np.array_equal(planes, _reference_pack(call, unpack))
                departs = departs and bool(_undoes(call, unpack, planes, codes))
            if departs:
                return Judgement(departures=[_departure()])
        return judgement

    return check


def high_bit_first(planes: Any) -> Any:
    """Planes with the bits of every byte in the other order, the usual other layout.

    >>> high_bit_first(np.array([[1, 6]], dtype=np.uint8)).tolist()
    [[128, 96]]
    """
    return np.packbits(np.unpackbits(planes, axis=-1, bitorder="little"), axis=-1)


def _reference_pack(call: Call, unpack: str) -> Any:
    """The planes of this case as the reference packs them, without poison in their padding."""
    pack = readkv_pack_key_planes if COUNTS[unpack] == "tokens" else readkv_pack_value_planes
    return pack(codes=call.reference["codes"])


def _reference_unpack(call: Call, unpack: str, planes: Any) -> Any:
    """Planes as the reference unpacks them."""
    if COUNTS[unpack] == "tokens":
        return readkv_unpack_key_planes(planes=planes, tokens=int(call.inputs["tokens"]))
    return readkv_unpack_value_planes(planes=planes, channels=int(call.inputs["channels"]))


def _departure() -> Departure:
    return Departure("AMB-18", "bits stand in the planes' bytes in another order", "none within the port")


def _asked(stage: str, inputs: Mapping[str, Any]) -> Case:
    return Case(stage, "own-layout", "exact", "D", "the port's own layout", lambda: dict(inputs))


def _undoes(call: Call, unpack: str, planes: Any, codes: Any) -> bool | None:
    """Whether the port unpacks ``planes`` to ``codes``, the first planes alone to the first bits; None: it cannot."""
    count = codes.shape[0 if COUNTS[unpack] == "tokens" else 1]
    for depth in range(8, 0, -1):
        known = planes.copy()
        known[depth:] = GARBAGE
        own = call.ask(_asked(unpack, {"planes": known, COUNTS[unpack]: count}))
        if own is None:
            return None
        if np.shape(own["codes"]) != codes.shape:
            return False
        if not np.array_equal(np.asarray(own["codes"], dtype=np.int64) >> (8 - depth), codes >> (8 - depth)):
            return False
    return True
