"""Judging the rotation, the encoder and the decoder of ReadKV."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.bounds.readkv_codec import rotate_bound
from proofs_checks.judge.checks.general import within
from proofs_checks.judge.checks.readkv_tree import port_order, port_table, prefix_centroids
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare
from proofs_checks.numbers import FORMATS
from refimpl.readkv.tree import LEAF_DEPTH


def rotated(call: Call) -> Judgement:
    """`readkv_rotate`: within the bound, perhaps in the port's own order of coordinates (departure AMB-16)."""
    judgement = within(rotate_bound)(call)
    if not judgement.faults:
        return judgement
    order = port_order(call.ask, call.inputs["x"].shape[-1])
    if order is None:
        return judgement
    again = Judgement()
    bound = rotate_bound(call.inputs, call.reference, call.precision)["rotated"]
    compare(again, "rotated", call.answer["rotated"], call.reference["rotated"][..., order], bound[..., order])
    if again.faults:
        return judgement
    again.departures.append(
        Departure("AMB-16", "rotated coordinates stand in another order", "none if calibration follows the same order")
    )
    return again


def encoded(call: Call) -> Judgement:
    """`readkv_encode`: every bit of a code says on which side of its split z lies; on the split either is right."""
    judgement = Judgement()
    z, codes = np.atleast_1d(call.inputs["z"]), np.atleast_1d(np.asarray(call.answer["codes"], dtype=np.int64))
    right = np.atleast_1d(call.reference["codes"])
    wrong, split = np.zeros(z.shape, dtype=bool), np.zeros(z.shape)
    for level, thresholds in enumerate(port_table(call.ask).thresholds):
        exact = thresholds[codes >> (LEAF_DEPTH - level)].astype(np.float64)
        stored = exact.astype(np.float32).astype(np.float64)  # a port may hold its splits in more than float32
        upper = (codes >> (LEAF_DEPTH - 1 - level)) & 1 == 1
        here = np.where(upper, z < np.minimum(exact, stored), z > np.maximum(exact, stored)) & ~wrong
        wrong, split = wrong | here, np.where(here, exact, split)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        text = (
            f"codes{list(where)} is {codes[where]} for z = {z[where]:.9g}, which lies on the other side of the split "
            f"{split[where]:.9g}; by the reference's tree it is {right[where]}; {int(wrong.sum())} of {z.size} are off"
        )
        judgement.faults.append(Fault("codes", where, text))
    return judgement


def decoded_prefixes(call: Call) -> Judgement:
    """`readkv_decode`: a table look-up, exact in float32; narrower results carry one rounding."""
    judgement = Judgement()
    table = port_table(call.ask)
    codes: Any = np.asarray(call.inputs["codes"], dtype=np.int64)
    exact = prefix_centroids(table, codes, call.inputs["depth"]).astype(np.float32).astype(np.float64)
    u = FORMATS[call.precision.accumulate].unit_roundoff
    bound = u * np.abs(exact) if u > FORMATS["float32"].unit_roundoff else 0.0
    answer = np.asarray(call.answer["z_hat"]).astype(np.float32)  # a float64 tree gives float64 centroids
    compare(judgement, "z_hat", answer, exact, bound)
    return judgement
