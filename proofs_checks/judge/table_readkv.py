"""Rows of the stage table: ReadKV."""

from __future__ import annotations

from proofs_checks.bounds import readkv_codec as codec_bounds
from proofs_checks.judge.checks.affine import affinely_quantized
from proofs_checks.judge.checks.allocation import chosen, ranked
from proofs_checks.judge.checks.general import within
from proofs_checks.judge.checks.planes import packed_planes, unpacked_planes
from proofs_checks.judge.checks.quantiser import codebook_judged, tree_judged
from proofs_checks.judge.checks.reader import per_head, pooled, reader
from proofs_checks.judge.checks.readkv_codec import decoded_prefixes, encoded, rotated
from proofs_checks.judge.stage import Stage

KEY_PLANES = ("readkv_pack_key_planes", "readkv_unpack_key_planes")
VALUE_PLANES = ("readkv_pack_value_planes", "readkv_unpack_value_planes")

CACHE = {
    "queries": "input",
    "key_codes": "uint8",
    "value_codes": "uint8",
    "key_mean": "float",
    "key_scale": "float",
    "value_mean": "float",
    "value_scale": "float",
    "key_signs": "float",
    "value_signs": "float",
}
READ = {"output": "output", "key_depths": "index", "value_depths": "index", "weights": "float"}


def _pack(names: tuple[str, str]) -> Stage:
    check = packed_planes(*names)
    return Stage(names[0], {"codes": "uint8"}, {"planes": "uint8"}, "ReadKV Alg. 1", check, optional=())


def _unpack(names: tuple[str, str], count: str) -> Stage:
    check, arguments = unpacked_planes(*names), {"planes": "uint8", count: "plain"}
    return Stage(names[1], arguments, {"codes": "uint8"}, "ReadKV Alg. 1", check, optional=())


READKV = (
    Stage(
        "readkv_tree",
        {"depth": "plain"},
        {"thresholds": "floats", "centroids": "floats", "gains": "float"},
        "ReadKV App. D",
        tree_judged,
        optional=(),
    ),
    Stage(
        "readkv_rotate",
        {"x": "input", "signs": "float"},
        {"rotated": "output"},
        "ReadKV Sec. 3.1",
        rotated,
        codec_bounds.rotate_bound,
        (),
    ),
    Stage("readkv_encode", {"z": "float"}, {"codes": "uint8"}, "ReadKV Sec. 3.1, App. D", encoded, optional=()),
    Stage(
        "readkv_decode",
        {"codes": "uint8", "depth": "index"},
        {"z_hat": "float"},
        "ReadKV Sec. 3.1, App. D",
        decoded_prefixes,
        optional=(),
    ),
    _pack(KEY_PLANES),
    _unpack(KEY_PLANES, "tokens"),
    _pack(VALUE_PLANES),
    _unpack(VALUE_PLANES, "channels"),
    Stage(
        "readkv_key_importance",
        {"rotated_queries": "float", "key_scale": "float"},
        {"importance": "float"},
        "ReadKV Eq. (2)",
        ranked(codec_bounds.key_importance_bound),
        optional=(),
    ),
    Stage(
        "readkv_value_importance",
        {"weights": "float", "value_head_weight": "float"},
        {"importance": "float"},
        "ReadKV Eq. (3)",
        ranked(codec_bounds.value_importance_bound),
        optional=("value_head_weight",),
    ),
    Stage(
        "readkv_choose_depths",
        {"importance": "float", "gains": "float", "budget": "plain", "minimum_depth": "plain"},
        {"depths": "index"},
        "ReadKV Sec. 3.3, Alg. 1",
        chosen,
        optional=("minimum_depth",),
    ),
    Stage(
        "readkv_attention",
        {**CACHE, "key_budget": "plain", "value_budget": "plain", "stored_depth": "plain"},
        READ,
        "ReadKV Alg. 1",
        reader(pooled),
        optional=("stored_depth", "softmax_scale"),
    ),
    Stage(
        "readkv_restricted_attention",
        {**CACHE, "rate": "plain", "stored_depth": "plain"},
        READ,
        "ReadKV F.8, G",
        reader(per_head),
        optional=("stored_depth", "softmax_scale"),
    ),
    Stage(
        "lloyd_max_codebook",
        {"bits": "plain", "law": "plain", "d": "plain"},
        {"levels": "float", "thresholds": "float"},
        "ReadKV F.2",
        codebook_judged,
        optional=(),
    ),
    Stage(
        "affine_quantize",
        {"x": "input", "bits": "plain"},
        {"codes": "uint8", "scale": "float", "zero": "float"},
        "ReadKV F.2",
        affinely_quantized,
        optional=(),
    ),
    Stage(
        "affine_dequantize",
        {"codes": "uint8", "scale": "float", "zero": "float"},
        {"x": "output"},
        "ReadKV F.2",
        within(codec_bounds.dequantize_bound),
        codec_bounds.dequantize_bound,
        (),
    ),
)
