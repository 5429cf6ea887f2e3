"""Judging affine rows: scale and zero of the row's range, codes the nearest integers, halves free."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma
from proofs_checks.judge.checks.codes import SCALE_FORMATS, held
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare
from proofs_checks.numbers import Precision

Names = tuple[str, str, str]
"""Results that hold a row's codes, scale and zero."""

FOLLOWED = Departure("AMB-46", "codes follow the scale and offset before their rounding", "within one code step")


def affinely_quantized(call: Call) -> Judgement:
    """`affine_quantize`: scale (max - min) / (2^bits - 1), zero the minimum, codes nearest under either.

    Scales and zeros stored in half precision are a departure (AMB-08); codes may then follow the stored or the full
    ones. A constant row has codes 0 and any finite scale.
    """
    levels = 2 ** int(call.inputs["bits"]) - 1
    stored, judgement = rows_judged(
        call.inputs["x"], call.answer, ("codes", "scale", "zero"), levels, call.precision, follow=False
    )
    if stored:
        judgement.departures.append(Departure("AMB-08", f"affine scale and zero are stored in {stored}"))
    return judgement


def groups_judged(call: Call) -> Judgement:
    """`kivi_quantize`: each group a row; scale and offset in any format, codes by these as stored (AMB-46)."""
    group, levels = int(call.inputs["group_size"]), 2 ** int(call.inputs["bits"]) - 1
    judgement = Judgement()
    for one, name in (("key", "keys"), ("value", "values")):
        names = (f"{one}_codes", f"{one}_scale", f"{one}_zero")
        H, T, d = call.inputs[name].shape

        def rows(array: Any, one: str = one, shape: tuple[int, ...] = (H, T, d)) -> Any:
            """[H, T, d] with groups last."""
            H, T, d = shape
            if one == "key":
                return np.asarray(array).reshape(H, T // group, group, d).swapaxes(-1, -2)
            return np.asarray(array).reshape(H, T, d // group, group)

        answer = {**call.answer, names[0]: rows(call.answer[names[0]])}
        _, found = rows_judged(rows(call.inputs[name]), answer, names, levels, call.precision, follow=True)
        judgement.faults += found.faults
        judgement.departures += [d for d in found.departures if d not in judgement.departures]
        judgement.see(found.worst_ratio or 0.0)
    return judgement


def rows_judged(
    x: Any, answer: Any, names: Names, levels: int, precision: Precision, follow: bool
) -> tuple[str | None, Judgement]:
    """Rows [..., n] against codes of their shape, scale and zero [...]; also the half format that holds the scales.

    ``follow`` reports codes that are nearest only under the scale before rounding.
    """
    scale = np.asarray(answer[names[1]], dtype=np.float64)
    zero = np.asarray(answer[names[2]], dtype=np.float64)
    codes = np.asarray(answer[names[0]], dtype=np.float64)
    judgement = Judgement()
    if x.size == 0:
        return None, judgement
    least, most = x.min(axis=-1), x.max(axis=-1)
    constant, exact = least == most, (most - least) / levels
    scale_of_spread = np.where(constant, 0.0, scale)
    plain: Judgement | None = None
    for stored, rounding in SCALE_FORMATS.items():
        judgement = Judgement()
        compare(judgement, names[2], zero, least, rounding * np.abs(least))
        computed = gamma(3, precision.roundoff) * exact + precision.tiny
        # a group's scale may come from ends that were themselves rounded
        spread = 2 * rounding * np.maximum(np.abs(least), np.abs(most)) / levels if follow else 0.0
        compare(judgement, names[1], scale_of_spread, exact, computed + rounding * exact + spread)
        kept = held(zero[zero != least], stored) and held(scale[np.abs(scale_of_spread - exact) > computed], stored)
        if not judgement.faults and kept:
            own = _judge_codes(names[0], x, codes, [(scale, zero)], constant, levels, precision)
            either = _judge_codes(names[0], x, codes, [(scale, zero), (exact, least)], constant, levels, precision)
            judgement.faults += either
            if follow and own and not either:
                judgement.departures.append(FOLLOWED)
            return (stored if rounding else None), judgement
        plain = plain or judgement
    return None, plain or judgement


def _judge_codes(
    name: str, x: Any, codes: Any, rows: list[tuple[Any, Any]], constant: Any, levels: int, precision: Precision
) -> list[Fault]:
    """Every code is within half a step of (x - zero) / scale, for one of the given scales and zeros."""
    error, steps = np.full(x.shape, np.inf), np.zeros(x.shape)
    for scale, zero in rows:
        still = constant | (scale <= 0)
        own = np.where(still[..., None], 0.0, (x - zero[..., None]) / np.where(still, 1.0, scale)[..., None])
        own = np.clip(own, 0.0, levels)
        nearer = np.abs(codes - own) < error
        error, steps = np.where(nearer, np.abs(codes - own), error), np.where(nearer, own, steps)
    allowed = np.where(constant[..., None], 0.0, 0.5 + gamma(4, precision.roundoff) * levels)
    bad = (error > allowed) | (codes > levels)
    if not bad.any():
        return []
    where = tuple(int(i) for i in np.argwhere(bad)[0])
    text = (
        f"{name}{list(where)} is {codes[where]:g} for a value of {steps[where]:.6g} steps; "
        f"{int(bad.sum())} of {codes.size} codes are off by more than half a step"
    )
    return [Fault(name, where, text)]
