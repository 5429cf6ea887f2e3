"""Judging affine rows: scale and zero of the row's range, codes the nearest integers, halves free."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.bounds.common import gamma
from proofs_checks.judge.checks.codes import SCALE_FORMATS, held
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare


def affinely_quantized(call: Call) -> Judgement:
    """`affine_quantize`: scale (max - min) / (2^bits - 1), zero the minimum, codes nearest under either.

    Scales and zeros stored in half precision are a departure (AMB-08); codes may then follow the stored or the full
    ones. A constant row has codes 0 and any finite scale.
    """
    x, u = call.inputs["x"], call.precision.roundoff
    levels = 2 ** int(call.inputs["bits"]) - 1
    scale = np.asarray(call.answer["scale"], dtype=np.float64)
    zero = np.asarray(call.answer["zero"], dtype=np.float64)
    judgement = Judgement()
    if x.size == 0:
        return judgement
    least, most = x.min(axis=-1), x.max(axis=-1)
    constant, exact = least == most, (most - least) / levels
    scale_of_spread = np.where(constant, 0.0, scale)
    plain: Judgement | None = None
    for stored, rounding in SCALE_FORMATS.items():
        judgement = Judgement()
        compare(judgement, "zero", zero, least, rounding * np.abs(least))
        computed = gamma(3, u) * exact + call.precision.tiny
        compare(judgement, "scale", scale_of_spread, exact, computed + rounding * exact)
        kept = held(zero[zero != least], stored) and held(scale[np.abs(scale_of_spread - exact) > computed], stored)
        if not judgement.faults and kept:
            if rounding:
                judgement.departures.append(Departure("AMB-08", f"affine scale and zero are stored in {stored}"))
            _judge_codes(judgement, call, [(scale, zero), (exact, least)], constant, levels)
            return judgement
        plain = plain or judgement
    return plain or judgement


def _judge_codes(judgement: Judgement, call: Call, rows: list[tuple[Any, Any]], constant: Any, levels: int) -> None:
    """Every code is within half a step of (x - zero) / scale, for the port's own scale or for the exact one."""
    x, u = call.inputs["x"], call.precision.roundoff
    codes = np.asarray(call.answer["codes"], dtype=np.float64)
    error, steps = np.full(x.shape, np.inf), np.zeros(x.shape)
    for scale, zero in rows:
        still = constant | (scale <= 0)
        own = np.where(still[..., None], 0.0, (x - zero[..., None]) / np.where(still, 1.0, scale)[..., None])
        own = np.clip(own, 0.0, levels)
        nearer = np.abs(codes - own) < error
        error, steps = np.where(nearer, np.abs(codes - own), error), np.where(nearer, own, steps)
    allowed = np.where(constant[..., None], 0.0, 0.5 + gamma(4, u) * levels)
    bad = (error > allowed) | (codes > levels)
    if bad.any():
        where = tuple(int(i) for i in np.argwhere(bad)[0])
        text = (
            f"codes{list(where)} is {codes[where]:g} for a value of {steps[where]:.6g} steps; "
            f"{int(bad.sum())} of {codes.size} codes are off by more than half a step"
        )
        judgement.faults.append(Fault("codes", where, text))
