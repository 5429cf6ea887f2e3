"""Rows of the stage table: the fixed-rate codes that the papers compare with."""

from __future__ import annotations

from proofs_checks.bounds import baseline_codes as bounds
from proofs_checks.judge.checks.affine import groups_judged
from proofs_checks.judge.checks.baseline_codes import levelled, packed_slots, signed, standardised, unpacked_slots
from proofs_checks.judge.checks.general import exactly, within
from proofs_checks.judge.stage import Stage

F2 = "ReadKV F.2"
GROUPS = {
    "key_codes": "uint8",
    "key_scale": "float",
    "key_zero": "float",
    "value_codes": "uint8",
    "value_scale": "float",
    "value_zero": "float",
}
TABLE = {"rotation": "float", "levels": "float"}
SLOT = {
    "key_codes": "uint8",
    "key_norm": "float",
    "value_codes": "uint8",
    "value_scale": "float",
    "value_zero": "float",
}
CHANNELS = {"mean": "float", "scale": "float", "signs": "float"}

BASELINE_CODES = (
    Stage(
        "kivi_quantize",
        {"keys": "input", "values": "input", "bits": "plain", "group_size": "plain"},
        GROUPS,
        F2,
        groups_judged,
        optional=(),
    ),
    Stage(
        "kivi_dequantize",
        GROUPS,
        {"keys": "output", "values": "output"},
        F2,
        within(bounds.kivi_dequantize_bound),
        bounds.kivi_dequantize_bound,
        (),
    ),
    # drawn at random: every case is a trial, and what is drawn is never compared with the reference's draw
    Stage(
        "turboquant_rotation",
        {"d": "plain", "kind": "plain", "seed": "plain"},
        {"rotation": "float"},
        F2,
        exactly,
        optional=(),
    ),
    Stage("turboquant_encode", {"x": "input", **TABLE}, {"codes": "uint8", "norm": "float"}, F2, levelled, optional=()),
    Stage(
        "turboquant_decode",
        {"codes": "uint8", "norm": "float", **TABLE, "norm_correction": "plain"},
        {"x": "output"},
        F2,
        within(bounds.decode_bound),
        bounds.decode_bound,
        (),
    ),
    Stage("turboquant_pack_slots", SLOT, {"slots": "uint8"}, F2, packed_slots, optional=()),
    Stage("turboquant_unpack_slots", {"slots": "uint8"}, SLOT, F2, unpacked_slots, optional=()),
    Stage(
        "qjl_encode",
        {"x": "input", "projection": "float"},
        {"signs": "int8", "norm": "float"},
        F2,
        signed,
        optional=(),
    ),
    Stage(
        "qjl_estimate",
        {"signs": "int8", "norm": "float", "projection": "float", "queries": "input"},
        {"estimates": "float"},
        F2,
        within(bounds.estimate_bound),
        bounds.estimate_bound,
        (),
    ),
    Stage(
        "qjl_inner_products",
        {"x": "input", "queries": "input", "seed": "plain"},
        {"estimates": "float"},
        F2,
        exactly,
        optional=(),
    ),
    Stage(
        "turboquant_inner_products",
        {"x": "input", "queries": "input", "bits": "plain", "seed": "plain"},
        {"estimates": "float"},
        F2,
        exactly,
        optional=(),
    ),
    Stage(
        "lloyd2_encode",
        {"x": "input", **CHANNELS},
        {"codes": "uint8", "norm": "float"},
        F2,
        standardised,
        optional=(),
    ),
    Stage(
        "lloyd2_decode",
        {"codes": "uint8", "norm": "float", **CHANNELS, "norm_correction": "plain"},
        {"x": "output"},
        F2,
        within(bounds.lloyd2_decode_bound),
        bounds.lloyd2_decode_bound,
        ("norm_correction",),
    ),
)
