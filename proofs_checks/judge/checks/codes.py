"""Judging integer codes and their scales (AMB-07, AMB-08, AMB-09), and packed nibbles (AMB-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare_exactly
from proofs_checks.numbers import FORMATS, round_to
from refimpl.checks import FloatArray
from refimpl.locks.quantize import LEVELS

SCALE_FORMATS = {"the computing dtype": 0.0, "float16": 2.0**-11, "bfloat16": 2.0**-8}
"""Formats that scales may be stored in (AMB-08), with their unit roundoffs."""


def held(values: FloatArray, stored: str) -> bool:
    """Whether the format of `SCALE_FORMATS` holds all values: what is off by a rounding must also have been rounded.

    >>> held(np.array([1.0078125]), "bfloat16"), held(np.array([1.001]), "bfloat16")
    (True, False)
    """
    return stored not in FORMATS or bool(np.array_equal(values, round_to(values, stored)))


@dataclass(frozen=True)
class Part:
    """One tensor of a summary: its scale's axis, the axes of coarser groups that hold it, and its largest code."""

    name: str
    codes: str
    scale: str
    axis: int
    coarser: tuple[tuple[int, ...], ...]
    level: int


def parts(basis_bits: int) -> list[Part]:
    """The three parts of a Locks summary at ``basis_bits``."""
    by_page, by_head, whole = (-2, -1), (-3, -2, -1), (-4, -3, -2, -1)
    return [
        Part("centroid", "centroid_codes", "centroid_scale", -1, ((-2, -1), (-3, -2, -1)), 127),
        Part("basis", "basis_codes", "basis_scale", -2, (by_page, by_head, whole), LEVELS[basis_bits]),
        Part("coefficients", "coefficient_codes", "coefficient_scale", -1, (by_page, by_head, whole), 127),
    ]


def quantized(call: Call) -> Judgement:
    """`locks_quantize_summary`: codes are the nearest integers of x / scale, scales absmax / level per line.

    Other scales within half a step of their own value, the code -level-1, and a coarser group of the same tensor are
    departures; a non-finite scale, or a value further than half a step from its code, is a fault.
    """
    judgement = Judgement()
    for part in parts(int(call.inputs["basis_bits"])):
        _judge_part(judgement, part, call)
    return judgement


def _judge_part(judgement: Judgement, part: Part, call: Call) -> None:
    x, u = call.inputs[part.name], call.precision.roundoff
    codes = np.asarray(call.answer[part.codes], dtype=np.float64)
    scale = np.expand_dims(np.asarray(call.answer[part.scale], dtype=np.float64), part.axis)
    if x.size == 0:
        return
    dead = np.max(np.abs(x), axis=part.axis, keepdims=True) == 0
    if not np.isfinite(scale).all():
        where = tuple(int(i) for i in np.argwhere(~np.isfinite(scale))[0])
        text = f"{part.scale}: {scale[where]} for line {list(where)}; a line of zeros has a finite scale (AMB-09)"
        judgement.faults.append(Fault(part.scale, where, text))
        return
    match = _matching_scale(part, x, np.where(dead, 0.0, scale), dead, u)
    if match is None:
        _scale_fault(judgement, part, x, scale, dead)
        return
    departures, full = match
    still = np.where(dead, 0.0, scale)
    with np.errstate(divide="ignore", invalid="ignore"):
        nearer = np.where(np.abs(codes - x / still) <= np.abs(codes - x / full), still, full)
    judge_codes(judgement, part, x, codes, nearer, 4 * u)
    judgement.departures += departures
    if not judgement.faults and not departures:
        rounding_departure(judgement, part, x, codes, scale)


def _matching_scale(part: Part, x: FloatArray, scale: FloatArray, dead: Any, u: float) -> Any:
    """The departures under which ``scale`` is right, and the scale before it was stored; or None.

    Codes may follow either of the two scales.
    """
    for axes in ((part.axis,), *part.coarser):
        absmax = np.broadcast_to(np.max(np.abs(x), axis=axes, keepdims=True), scale.shape)
        for extra in (0.0, 0.5, 1.0):
            expected = np.where(dead, 0.0, absmax / (part.level + extra))
            for stored, rounding in SCALE_FORMATS.items():
                allowed = (2 * u + rounding) * expected + np.finfo(np.float32).tiny
                if np.all(np.abs(scale - expected) <= allowed) and held(scale, stored):
                    return _departures(part, axes, extra, stored), expected
    return None


def _departures(part: Part, axes: tuple[int, ...], extra: float, stored: str) -> list[Departure]:
    found = []
    if axes != (part.axis,):
        found.append(Departure("AMB-08", f"{part.scale} is shared by a coarser group of the tensor"))
    if extra:
        found.append(Departure("AMB-07", f"{part.scale} is absmax / {part.level + extra:g}, not / {part.level}"))
    if stored != "the computing dtype":
        found.append(Departure("AMB-08", f"{part.scale} is stored in {stored}"))
    return found


def _scale_fault(judgement: Judgement, part: Part, x: FloatArray, scale: FloatArray, dead: Any) -> None:
    expected = np.where(dead, 0.0, np.max(np.abs(x), axis=part.axis, keepdims=True) / part.level)
    off = np.where(dead, 0.0, np.abs(scale - expected) / np.where(expected > 0, expected, 1.0))
    where = tuple(int(i) for i in np.unravel_index(int(np.argmax(off)), off.shape))
    index = tuple(np.delete(where, part.axis).tolist())
    text = f"{part.scale}{list(index)} is {scale[where]:.9g}, expected absmax / {part.level} = {expected[where]:.9g}"
    judgement.faults.append(Fault(part.scale, index, text))


def judge_codes(
    judgement: Judgement, part: Part, x: FloatArray, codes: FloatArray, scale: FloatArray, slack: float
) -> None:
    """Add a fault where a code is further than half a step, and ``slack`` of its value, from x / scale."""
    ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    allowed = 0.5 + slack * np.abs(ratio)
    error = np.abs(codes - ratio)
    worst = tuple(int(i) for i in np.unravel_index(int(np.argmax(error / allowed)), error.shape))
    judgement.see(float(error[worst] / allowed[worst]))
    if error[worst] > allowed[worst]:
        wrong = int(np.count_nonzero(error > allowed))
        text = (
            f"{part.codes}{list(worst)} is {codes[worst]:g} for a value of {ratio[worst]:.6g} steps, "
            f"{error[worst]:.3g} steps off; {wrong} of {codes.size} codes are off by more than half a step"
        )
        judgement.faults.append(Fault(part.codes, worst, text, float(error[worst] / allowed[worst])))
    elif (codes == -part.level - 1).any():
        judgement.departures.append(Departure("AMB-07", f"{part.codes} uses the code {-part.level - 1}"))


def rounding_departure(judgement: Judgement, part: Part, x: FloatArray, codes: FloatArray, scale: FloatArray) -> None:
    """Add the departure of exact halves (scale equal to absmax / level, x / scale ends in .5) not rounded to even."""
    absmax = np.max(np.abs(x), axis=part.axis, keepdims=True)
    exact = (scale * part.level == absmax) & (scale > 0)
    ratio = np.divide(x, scale, out=np.zeros_like(x), where=scale > 0)
    tie = exact & (np.abs(ratio - np.trunc(ratio)) == 0.5) & (ratio * scale == x)
    if (tie & (codes != np.rint(ratio))).any():
        judgement.departures.append(Departure("AMB-07", f"{part.codes} rounds exact halves away from even"))


def packed(call: Call) -> Judgement:
    """`locks_pack_basis`: the reference's bytes; nibbles swapped within every byte are the departure AMB-13.

    A port that also unpacks must undo what it packed, or the departure is a fault.
    """
    judgement = Judgement()
    answer, reference = np.asarray(call.answer["basis_bytes"]), np.asarray(call.reference["basis_bytes"])
    compare_exactly(judgement, "basis_bytes", answer, reference)
    if judgement.faults and np.array_equal(_swapped(answer), reference):
        own = call.ask(_asked("locks_unpack_basis", {"basis_bytes": answer}))
        if own is None or np.array_equal(own["basis_codes"], call.inputs["basis_codes"]):
            return Judgement(departures=[_high_nibble()])
    return judgement


def unpacked(call: Call) -> Judgement:
    """`locks_unpack_basis`: the reference's codes; even and odd channels swapped are the departure AMB-13.

    A port that also packs must pack in that order too, or the departure is a fault.
    """
    judgement = Judgement()
    answer, reference = np.asarray(call.answer["basis_codes"]), np.asarray(call.reference["basis_codes"])
    compare_exactly(judgement, "basis_codes", answer, reference)
    if judgement.faults:
        H, P, d, r = reference.shape
        swapped = reference.reshape(H, P, d // 2, 2, r)[:, :, :, ::-1].reshape(reference.shape)
        own = call.ask(_asked("locks_pack_basis", {"basis_codes": reference}))
        if np.array_equal(answer, swapped) and (own is None or _packs_swapped(own, call)):
            return Judgement(departures=[_high_nibble()])
    return judgement


def _packs_swapped(own: Any, call: Call) -> bool:
    """Whether the port's own bytes for the reference's codes are this case's bytes, nibbles swapped."""
    return np.array_equal(_swapped(np.asarray(own["basis_bytes"])), np.asarray(call.inputs["basis_bytes"]))


def _swapped(packed_bytes: Any) -> Any:
    """Bytes with their nibbles swapped.

    >>> _swapped(np.array([0x1F], dtype=np.uint8)).tolist() == [0xF1]
    True
    """
    return (packed_bytes >> 4) | ((packed_bytes & 15) << 4)


def _high_nibble() -> Departure:
    return Departure("AMB-13", "the even channel sits in the high nibble", "none within the port")


def _asked(stage: str, inputs: dict[str, Any]) -> Case:
    return Case(stage, "own-layout", "exact", "D", "the port's own layout", lambda: inputs)
