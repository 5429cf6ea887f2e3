"""Judging TurboQuant, QJL and Lloyd-2 codes: on which side of a threshold a coordinate lies, within its bound."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.bounds.baseline_codes import coordinate_bound, norm_bound, projected_bound, standardised_bound
from proofs_checks.judge.case import Case
from proofs_checks.judge.checks.codes import SCALE_FORMATS
from proofs_checks.judge.checks.quantiser import OF_THRESHOLD_GAP
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare, compare_exactly
from refimpl.checks import FloatArray
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.rotation import readkv_rotate

TIES_UP = Departure("AMB-48", "a coordinate on the midpoint of two levels takes the upper one")
SLOTS = ("key_codes", "key_norm", "value_codes", "value_scale", "value_zero")


def levelled(call: Call) -> Judgement:
    """`turboquant_encode`: every coordinate at its nearest level, the norm within its bound.

    A norm stored in half precision is the departure AMB-49, the upper level on a midpoint AMB-48.
    """
    judgement, x, u = Judgement(), call.inputs["x"], call.precision.roundoff
    _norms(judgement, call, x)
    rotation, levels = call.inputs["rotation"], call.inputs["levels"]
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    y = x / np.where(norm > 0, norm, 1.0) @ rotation.T
    middle = (levels[1:] + levels[:-1]) / 2
    allowed = coordinate_bound(x, rotation, u) + 2 * u * np.abs(levels).max()
    codes = np.asarray(call.answer["codes"], dtype=np.int64)
    _sides(judgement, codes, np.where(norm > 0, y, np.nan), middle, allowed)
    tied = (norm > 0) & np.isin(y, middle)
    if not judgement.faults and (codes[tied] != np.searchsorted(middle, y[tied])).any():
        judgement.departures.append(TIES_UP)
    return judgement


def signed(call: Call) -> Judgement:
    """`qjl_encode`: +1 or -1 by the side of 0 on which a projection lies; within its bound of 0 either."""
    judgement, x, projection = Judgement(), call.inputs["x"], call.inputs["projection"]
    _norms(judgement, call, x)
    signs = np.asarray(call.answer["signs"], dtype=np.int64)
    if (np.abs(signs) != 1).any():
        where = tuple(int(i) for i in np.argwhere(np.abs(signs) != 1)[0])
        judgement.faults.append(Fault("signs", where, f"signs{list(where)} is {signs[where]}, expected +1 or -1"))
        return judgement
    allowed = projected_bound(x, projection, call.precision.roundoff)
    _sides(judgement, (signs + 1) // 2, x @ projection.T, np.zeros(1), allowed, "signs")
    return judgement


def standardised(call: Call) -> Judgement:
    """`lloyd2_encode`: every standardised channel in its cell; thresholds may be off as a codebook's may."""
    judgement, inputs = Judgement(), call.inputs
    _norms(judgement, call, inputs["x"])
    rotated = readkv_rotate(x=inputs["x"], signs=inputs["signs"])
    z = (rotated - inputs["mean"][:, None]) / inputs["scale"][:, None]
    book = lloyd_max_codebook(bits=2, law="normal", d=1)
    slack = OF_THRESHOLD_GAP * float(np.diff(book["levels"]).min())
    allowed = standardised_bound(inputs, rotated, call.precision.roundoff) + slack
    _sides(judgement, np.asarray(call.answer["codes"], dtype=np.int64), z, book["thresholds"], allowed)
    return judgement


def _norms(judgement: Judgement, call: Call, x: FloatArray) -> None:
    """The norm within its bound, perhaps stored in half precision."""
    for stored, rounding in SCALE_FORMATS.items():
        attempt = Judgement()
        norm = np.linalg.norm(x, axis=-1)
        bound = norm_bound(x, call.precision.roundoff, call.precision.tiny) + rounding * norm
        compare(attempt, "norm", call.answer["norm"], norm, bound)
        if not attempt.faults:
            judgement.see(attempt.worst_ratio or 0.0)
            if rounding:
                judgement.departures.append(Departure("AMB-49", f"norms are stored in {stored}"))
            return
        if not rounding:
            first = attempt.faults
    judgement.faults += first


def _sides(
    judgement: Judgement, codes: Any, value: FloatArray, thresholds: FloatArray, allowed: Any, name: str = "codes"
) -> None:
    """Add a fault where a code's cell is further than ``allowed`` from the value; NaN values are free."""
    allowed = np.broadcast_to(allowed, value.shape)
    if value.size == 0:
        return
    edges = np.concatenate([[-np.inf], thresholds, [np.inf]])
    legal = (codes >= 0) & (codes <= len(thresholds))
    cell = np.clip(codes, 0, len(thresholds))
    with np.errstate(invalid="ignore"):
        off = np.maximum(np.maximum(edges[cell] - value, value - edges[cell + 1]), 0.0)
    off = np.where(np.isnan(value), 0.0, off)
    ratio = np.where(off == 0, 0.0, off / np.maximum(allowed, np.finfo(float).tiny))
    ratio = np.where(legal, ratio, np.inf)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    judgement.see(float(ratio[worst]))
    if ratio[worst] > 1:
        right = int(np.searchsorted(thresholds, value[worst])) if not np.isnan(value[worst]) else 0
        text = (
            f"{name}{list(worst)} is cell {codes[worst]} of {len(thresholds) + 1} for a value of {value[worst]:.6g}, "
            f"which lies in cell {right}; {int((ratio > 1).sum())} of {ratio.size} are in a wrong cell"
        )
        judgement.faults.append(Fault(name, worst, text, float(ratio[worst])))


def packed_slots(call: Call) -> Judgement:
    """`turboquant_pack_slots`: the reference's bytes; another layout that the port itself undoes is AMB-54."""
    judgement = Judgement()
    compare_exactly(judgement, "slots", call.answer["slots"], call.reference["slots"])
    if judgement.faults:
        own = call.ask(_asked("turboquant_unpack_slots", {"slots": np.asarray(call.answer["slots"])}))
        if own is not None and all(np.array_equal(np.asarray(own[n]), np.float16(call.inputs[n])) for n in SLOTS):
            return Judgement(departures=[_layout()])
    return judgement


def unpacked_slots(call: Call) -> Judgement:
    """`turboquant_unpack_slots`: what the reference reads; another layout that the port itself writes is AMB-54."""
    judgement = Judgement()
    for name in SLOTS:
        compare_exactly(judgement, name, call.answer[name], call.reference[name])
    if judgement.faults:
        own = call.ask(_asked("turboquant_pack_slots", {n: np.asarray(call.answer[n]) for n in SLOTS}))
        if own is not None and np.array_equal(np.asarray(own["slots"]), call.inputs["slots"]):
            return Judgement(departures=[_layout()])
    return judgement


def _layout() -> Departure:
    return Departure("AMB-54", "the bytes of a slot stand in another order", "none within the port")


def _asked(stage: str, inputs: dict[str, Any]) -> Case:
    return Case(stage, "own-layout", "exact", "D", "the port's own layout", lambda: inputs)
