"""Representative configurations of the ReadKV kernels for `compile_only`: Qwen2.5-7B's shape, W = 8, token pairs."""

from __future__ import annotations

from typing import Any

Configuration = tuple[str, dict[str, Any], dict[str, str], int]

WORDS = ("planes", "key_planes", "value_planes", "members", "counts", "lengths", "bins", "suffixes", "listed_keys",
         "listed_items", "count_table", "plane_table", "depths")  # fmt: skip
NUMBERS = ("signs", "means", "scales", "key_mean", "key_scale", "value_mean", "value_scale", "key_signs", "value_signs",
           "rotated", "importance", "gains", "centroids", "buckets", "lses", "mixes", "sums", "sums_of_weights",
           "coefficients", "zeros", "factors", "squares", "z", "cells")  # fmt: skip
POINTERS = {
    **dict.fromkeys(WORDS, "*i32"),
    **dict.fromkeys(NUMBERS, "*fp32"),
    **dict.fromkeys(("lefts", "state"), "*i64"),
    **dict.fromkeys(("inverse_root", "levels"), "fp32"),
    "lists": "*i32",
    **dict.fromkeys(("seed", "tokens"), "i32"),
}
"""Types by name, of numbers too where they are no integers."""

SHAPE = {"G": 7, "G_PAD": 16, "GP": 8, "D": 128, "D_PAD": 128}
LEVEL = {"LEVELS": 8, "W_PAD": 8, "STATE": 8}
BUY: dict[str, Any] = {**LEVEL, "LENGTHS": True, "PAIRED": True}
SLOTS = {"weights": "*i8", "sums": "*i32", "sums_of_weights": "*i32", "units": "*fp32", "masses": "*fp32",
         "largest": "*fp32", "logits": "*fp16"}  # fmt: skip
LANES = {"logits": "*fp16", "depths": "*i8", "coefficients": "*i32", "prefix_tables": "*fp16"}


def configurations(branch: str, follow: dict[str, bool]) -> dict[str, Configuration]:
    """One configuration per kernel that has this branch; names that repeat elsewhere carry their module."""
    if branch == "ptx":
        own = {"W": 8, "D": 128, **follow}
        weigh = {"G": 7, "ITEMS": 512, "STEPS": 2, "STEP": 512, "PAIRED": True, "THREADS": 512, **LEVEL, **follow}
        allocate = {"G": 7, "STEPS": 4, "STEP": 512, "PAIRED": True, "CLOSE": False, "WIDE": 512, **LEVEL}
        room = {"PARTS": 8, "GROUPS": 44, "BLOCKS": 517, "BINS": 4096}
        prepare = {"G": 7, "D": 128, **room, **LEVEL, **follow}
        found: dict[str, Configuration] = {
            "allocate_by_lanes": ("readkv.middle", {**allocate, **follow}, {**LANES, **SLOTS}, 16),
            "logits_by_lanes": ("readkv.lanes_keys", {**own, "PARTS": 8, "AHEAD": 1}, SLOTS, 2),
            "prepare_kernel": ("readkv.prepare", prepare, SLOTS, 4),
            "mix_by_lanes": (
                "readkv.lanes_values",
                {**own, "STATE": 8, "STEPS": 8, "PAIRED": True, "AHEAD": True},
                LANES,
                4,
            ),
            "weigh_by_lanes": ("readkv.lanes_weigh", weigh, {**LANES, **SLOTS}, 16),
            **_encoder(True),
        }
        return {name: (m, c, {**POINTERS, **p}, w) for name, (m, c, p, w) in found.items()}
    found = _allocation(follow) | _reader(follow) | _codec() | _rows()
    return {name: (m, c, {**POINTERS, **p}, w) for name, (m, c, p, w) in found.items()}


def _allocation(follow: dict[str, bool]) -> dict[str, Configuration]:
    return {
        "choose_kernel": ("readkv.choose", {"N_PAD": 128, "LEVELS": 8, "W_PAD": 8, "FEW": True, **follow}, {}, 4),
        "count_kernel": ("readkv.threshold", {"BLOCK": 2048, **BUY, **follow}, {}, 8),
        "collect_kernel": (
            "readkv.threshold",
            {"BLOCK": 2048, "CLOSE": False, "SEARCH": 4096, "SEARCH_WIDE": 512, **BUY, **follow}, {}, 8,
        ),
        "depths_kernel": ("readkv.threshold", {"BLOCK": 2048, **BUY, **follow}, {}, 4),
    }  # fmt: skip


def _reader(follow: dict[str, bool]) -> dict[str, Configuration]:
    d, logits = {"D": 128, "D_PAD": 128}, {"logits": "*fp32"}
    weigh = {"G": 7, "GP": 8, "TOKENS": 512, "STEP": 128, "PAIRED": True, **LEVEL, **follow}
    mix = {"W": 8, **SHAPE, "TOKENS": 32, "LEVELS": 8, "W_PAD": 8, "PAIRED": True, "STATE": 8, **follow}
    return {
        "query_kernel": ("readkv.merge", {"G": 7, "G_PAD": 16, **d, "BINS": 4096, "STATE": 8, **follow}, {}, 4),
        "output_kernel": ("readkv.merge", {"G": 7, "GP": 8, **d, "STEP": 64, **follow}, {}, 8),
        "slots_kernel": ("readkv.slots", {"G": 7, **d, "PARTS": 8, "GROUPS": 44, "BLOCKS": 517, **follow},
                         {"queries": "*fp32", **SLOTS}, 4),
        "key_logits_kernel": ("readkv.prefix", {"W": 8, **SHAPE, "TOKENS": 32, **follow},
                              {"queries": "*fp32", **logits}, 8),
        "value_mix_kernel": ("readkv.prefix", mix, {**logits, "depths": "*i8"}, 8),
        "weigh_kernel": ("readkv.weigh", weigh, logits, 4),
        "weights_kernel": ("readkv.weigh", {"G": 7, "GP": 8, "TOKENS": 256}, {**logits, "weights": "*fp32"}, 4),
        "turboquant_kernel": (
            "readkv.turboquant", {"G": 7, "G_PAD": 16, "D": 128, "BLOCK": 64},
            {**dict.fromkeys(("key_bytes", "value_bytes"), "*u8"), "levels": "*bf16",
             **dict.fromkeys(("key_lengths", "value_scales", "value_zeros"), "*fp16")}, 4,
        ),
    }  # fmt: skip


def _encoder(ptx: bool) -> dict[str, Configuration]:
    size, cells = {"PTX": ptx, "W": 8, "D": 128, "D_PAD": 128}, {"cells": "*i32"}
    own, x = {"CODES": False, **size}, {"x": "*bf16", **cells}
    return {
        "encode_keys_kernel": ("readkv.encoder", own, x, 8 if ptx else 4),
        "encode_values_kernel": ("readkv.encoder", {**own, "TOKENS": 64}, x, 8),
        "append_kernel": ("readkv.encoder", size, cells, 1 if ptx else 4),
    }


def _codec() -> dict[str, Configuration]:
    d: dict[str, Any] = {"D": 128, "D_PAD": 128}
    x, codes = {"x": "*bf16"}, {"codes": "*u8"}
    return {
        **_encoder(False),
        "lengthen_kernel": ("readkv.encoder", {"BLOCK": 128}, {}, 1),
        "rotate_kernel": (
            "readkv.rotation",
            {"D": 256, "WIDTH": 128, "WIDTH_PAD": 128, "ROWS": 32, "INVERSE": False},
            {**x, "scale": "fp32", "out": "*bf16"},
            4,
        ),
        "encode_kernel": ("readkv.codec", {"BLOCK": 1024}, codes, 4),
        "decode_kernel": ("readkv.codec", {"BLOCK": 1024}, codes, 4),
        "pack_planes_kernel": ("readkv.planes", {"BLOCK": 256}, {**codes, "planes": "*u8"}, 4),
        "unpack_planes_kernel": ("readkv.planes", {"BLOCK": 256}, {**codes, "planes": "*u8"}, 4),
        "moments_kernel": ("readkv.calibration", {**d, "SAMPLES": 64}, {"samples": "*bf16"}, 8),
    }


def _rows() -> dict[str, Configuration]:
    row = {"N": 128, "N_PAD": 128, "ROWS": 8}
    codes = {"codes": "*u8", "x": "*fp32"}
    return {
        "key_importance_kernel": ("readkv.importance", {"D": 128, "D_PAD": 128}, {"queries": "*fp32"}, 4),
        "value_importance_kernel": ("readkv.importance", {"FACTORS": True, "BLOCK": 512}, {"weights": "*fp32"}, 4),
        "affine_quantize_kernel": ("readkv.affine", row, codes, 4),
        "affine_dequantize_kernel": ("readkv.affine", row, codes, 4),
        "cube_kernel": ("readkv.entropy", {"N": 4, "BLOCK": 1024}, {}, 4),
    }
