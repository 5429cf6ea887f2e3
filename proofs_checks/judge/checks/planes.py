"""Judging bit planes: the bytes of the paper dialect, or any other order that its own twin undoes (AMB-18)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.judgement import Call, Departure, Judgement, compare_exactly
from refimpl.readkv.planes import readkv_pack_key_planes, readkv_pack_value_planes

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
        if judgement.faults and clean and _undoes(call, unpack, planes, codes):
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
            planes = None if own is None else np.asarray(own["planes"])
            other = planes is not None and not np.array_equal(planes, _without_padding(call, unpack))
            if other and _undoes(call, unpack, planes, codes):
                return Judgement(departures=[_departure()])
        return judgement

    return check


def _without_padding(call: Call, unpack: str) -> Any:
    """The planes of this case as the reference packs them."""
    pack = readkv_pack_key_planes if COUNTS[unpack] == "tokens" else readkv_pack_value_planes
    return pack(codes=call.reference["codes"])


def _departure() -> Departure:
    return Departure("AMB-18", "bits stand in the planes' bytes in another order", "none within the port")


def _asked(stage: str, inputs: Mapping[str, Any]) -> Case:
    return Case(stage, "own-layout", "exact", "D", "the port's own layout", lambda: dict(inputs))


def _undoes(call: Call, unpack: str, planes: Any, codes: Any) -> bool:
    """Whether the port unpacks ``planes`` to ``codes``, and the first planes alone to the first bits."""
    count = codes.shape[0 if COUNTS[unpack] == "tokens" else 1]
    for depth in range(8, 0, -1):
        known = planes.copy()
        known[depth:] = GARBAGE
        own = call.ask(_asked(unpack, {"planes": known, COUNTS[unpack]: count}))
        if own is None or np.shape(own["codes"]) != codes.shape:
            return False
        if not np.array_equal(np.asarray(own["codes"], dtype=np.int64) >> (8 - depth), codes >> (8 - depth)):
            return False
    return True
