"""What golden cases of the fixed-rate codes are judged by: the cells that rounding leaves to a coordinate."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from proofs_checks.bounds import baseline_codes as bounds
from proofs_checks.bounds.common import gamma
from proofs_checks.golden import fifty_digits_fixed_rate as digits
from proofs_checks.golden.fifty_digits import dot
from proofs_checks.golden.fifty_digits_codes import nearest_codes
from proofs_checks.golden.fifty_digits_quantiser import lloyd_max_codebook
from proofs_checks.golden.fifty_digits_readkv import readkv_rotate
from proofs_checks.golden.job import Array, GoldenError, Job, Judged, equal, precision, within
from proofs_checks.golden.rounding import rounded
from proofs_checks.judge.checks.quantiser import OF_THRESHOLD_GAP

U = precision("float32").roundoff
HALF = 2.0**-11
"""Scales and offsets of KIVI may be stored in float16 (AMB-46)."""


def cells(value: Array, thresholds: Array, allowed: Array) -> Judged:
    """The cells that reach within ``allowed`` of a value."""
    low, high = np.searchsorted(thresholds, value - allowed), np.searchsorted(thresholds, value + allowed, side="right")
    return Judged("between", {"low": low, "high": high})


def _norm(x: Array) -> Judged:
    norm = rounded([digits.norm_of(row) for row in x.reshape(-1, x.shape[-1])]).reshape(x.shape[:-1])
    return within(norm, {"float32": bounds.norm_bound(x, U, precision("float32").tiny)})


def turboquant_encode(job: Job) -> dict[str, Judged]:
    """`turboquant_encode`: the cells of every coordinate; those of a zero vector are free."""
    x, rotation, levels = (job.inputs[name] for name in ("x", "rotation", "levels"))
    middle = (levels[1:] + levels[:-1]) / 2
    value = rounded(digits.unit_coordinates(x, rotation)).reshape(x.shape)
    allowed = bounds.coordinate_bound(x, rotation, U) + 2 * U * np.abs(levels).max()
    allowed = np.where(np.any(x != 0, axis=-1, keepdims=True), allowed, np.inf)
    return {"codes": cells(value, middle, allowed), "norm": _norm(job.inputs["x"])}


def qjl_encode(job: Job) -> dict[str, Judged]:
    """`qjl_encode`: signs of projections that rounding cannot turn."""
    x, projection = job.inputs["x"], job.inputs["projection"]
    near = bounds.projected_bound(x, projection, U)
    value = rounded([[dot(row, vector) for row in projection] for vector in x]).reshape(near.shape)
    if ((np.abs(value) <= near) & (near > 0)).any():
        raise GoldenError(f"{job.case.id}: the sign of a projection hangs on rounding")
    return {"signs": equal(job.exact()["signs"]), "norm": _norm(job.inputs["x"])}


def lloyd2_encode(job: Job) -> dict[str, Judged]:
    """`lloyd2_encode`: the cells of every standardised channel, for thresholds that may be off as a codebook's may."""
    inputs = job.inputs
    book = {n: rounded(v) for n, v in lloyd_max_codebook(2, "normal", 1).items()}
    arguments = [inputs[n] for n in ("x", "mean", "scale", "signs")]
    value = rounded(digits.standardised(*arguments)).reshape(inputs["x"].shape)
    turned = rounded(readkv_rotate(inputs["x"], inputs["signs"])["rotated"]).reshape(value.shape)
    slack = OF_THRESHOLD_GAP * float(np.diff(book["levels"]).min())
    allowed = bounds.standardised_bound(inputs, turned, U) + slack
    return {"codes": cells(value, book["thresholds"], allowed), "norm": _norm(job.inputs["x"])}


def kivi_quantize(job: Job) -> dict[str, Judged]:
    """`kivi_quantize`: scale and offset exact or stored in float16, codes the nearest of either's steps."""
    judged = {}
    group, bits = int(job.inputs["group_size"]), int(job.inputs["bits"])
    for one, name in (("key", "keys"), ("value", "values")):
        x = job.inputs[name]
        rows = digits.key_groups(x, group) if one == "key" else digits.value_groups(x, group)
        least, scale, steps = digits.grouped(rows, bits)
        levels = 2**bits - 1
        low, high = np.zeros(rows.shape, np.int64), np.zeros(rows.shape, np.int64)
        for index in np.ndindex(rows.shape):
            row = index[:-1]
            if scale[row]:  # the offset's error in steps, the scale's and the operations' of the step itself
                slack = HALF * (abs(least[row]) / scale[row] + steps[index]) * 2 + Fraction(gamma(4, U) * levels)
                ends = nearest_codes(steps[index], Fraction(slack))
                low[index], high[index] = max(ends[0], 0), min(ends[1], levels)
        codes = [np.swapaxes(e, -1, -2) if one == "key" else e for e in (low, high)]
        judged[f"{one}_codes"] = Judged(
            "between", {"low": codes[0].reshape(x.shape), "high": codes[1].reshape(x.shape)}
        )
        size, zero = rounded(scale).reshape(scale.shape), rounded(least).reshape(least.shape)
        spread = HALF * (size + 2 * np.abs(rows).max(axis=-1, initial=0.0) / levels) + gamma(3, U) * size
        bound = np.where(size == 0, np.inf, spread + precision("float32").tiny)
        judged[f"{one}_scale"] = within(size, {"float32": bound})
        judged[f"{one}_zero"] = within(zero, {"float32": HALF * np.abs(zero)})
    return judged


def unpack_slots(job: Job) -> dict[str, Judged]:
    """`turboquant_unpack_slots`: bytes are read exactly."""
    exact: dict[str, Any] = job.exact()
    return {name: equal(exact[name]) for name in job.names()}


RULES = {
    "kivi_quantize": kivi_quantize,
    "turboquant_encode": turboquant_encode,
    "turboquant_unpack_slots": unpack_slots,
    "qjl_encode": qjl_encode,
    "lloyd2_encode": lloyd2_encode,
}
