import inspect

import numpy as np
import pytest

from refimpl import port

# the stage table: required keywords, optional keywords, names of the results (None: one array)
STAGES = {
    "readkv_tree": ("depth", "", "thresholds centroids gains"),
    "readkv_rotate": ("x signs", "", None),
    "readkv_encode": ("z", "", None),
    "readkv_decode": ("codes depth", "", None),
    "readkv_pack_key_planes": ("codes", "", None),
    "readkv_unpack_key_planes": ("planes tokens", "", None),
    "readkv_pack_value_planes": ("codes", "", None),
    "readkv_unpack_value_planes": ("planes channels", "", None),
    "readkv_key_importance": ("rotated_queries key_scale", "", None),
    "readkv_value_importance": ("weights", "value_head_weight", None),
    "readkv_choose_depths": ("importance gains budget", "minimum_depth", None),
    "readkv_attention": (
        "queries key_codes value_codes key_mean key_scale value_mean value_scale key_signs value_signs key_budget "
        "value_budget",
        "stored_depth softmax_scale",
        "output key_depths value_depths weights",
    ),
    "readkv_restricted_attention": (
        "queries key_codes value_codes key_mean key_scale value_mean value_scale key_signs value_signs rate",
        "stored_depth softmax_scale",
        "output key_depths value_depths weights",
    ),
    "lloyd_max_codebook": ("bits law d", "", "levels thresholds"),
    "affine_quantize": ("x bits", "", "codes scale zero"),
    "affine_dequantize": ("codes scale zero", "", None),
}

CODES = np.array([[[200, 3], [90, 255], [17, 128]]])
PLANES = np.zeros((8, 2, 1), np.uint8)
READ = {
    "queries": np.ones((1, 2, 2)),
    "key_codes": CODES,
    "value_codes": CODES,
    "key_mean": np.zeros((1, 2)),
    "key_scale": np.ones((1, 2)),
    "value_mean": np.zeros((1, 2)),
    "value_scale": np.ones((1, 2)),
    "key_signs": np.array([1, -1]),
    "value_signs": np.array([-1, 1]),
}
CALLS = {
    "readkv_tree": {"depth": 2},
    "readkv_rotate": {"x": [1.0, 2.0], "signs": [1, -1]},
    "readkv_encode": {"z": [0.5]},
    "readkv_decode": {"codes": [5], "depth": 3},
    "readkv_pack_key_planes": {"codes": CODES[0]},
    "readkv_unpack_key_planes": {"planes": PLANES, "tokens": 3},
    "readkv_pack_value_planes": {"codes": CODES[0]},
    "readkv_unpack_value_planes": {"planes": PLANES, "channels": 3},
    "readkv_key_importance": {"rotated_queries": READ["queries"], "key_scale": READ["key_scale"]},
    "readkv_value_importance": {"weights": np.full((1, 2, 3), 0.25)},
    "readkv_choose_depths": {"importance": [1.0, 2.0], "gains": [0.5], "budget": 1},
    "readkv_attention": READ | {"key_budget": 3, "value_budget": 4},
    "readkv_restricted_attention": READ | {"rate": 2},
    "lloyd_max_codebook": {"bits": 2, "law": "sphere", "d": 8},
    "affine_quantize": {"x": [1.0, 2.0], "bits": 4},
    "affine_dequantize": {"codes": [1, 2], "scale": 0.5, "zero": 1.0},
}


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_the_tables_keywords_and_results(stage):
    function = getattr(port, stage)
    required, optional, results = STAGES[stage]
    parameters = inspect.signature(function).parameters.values()
    assert {p.kind for p in parameters} == {inspect.Parameter.KEYWORD_ONLY}
    assert [p.name for p in parameters if p.default is p.empty] == required.split()
    assert [p.name for p in parameters if p.default is not p.empty] == optional.split()
    assert stage in port.__all__
    result = function(**CALLS[stage])
    assert (set(result) if isinstance(result, dict) else None) == (set(results.split()) if results else None)


@pytest.mark.parametrize("stage", STAGES)
def test_inputs_are_left_as_they_were(stage):
    call = {name: np.array(value) if isinstance(value, list) else value for name, value in CALLS[stage].items()}
    before = {name: np.copy(value) for name, value in call.items()}
    getattr(port, stage)(**call)
    for name, value in before.items():
        assert np.array_equal(value, call[name]), name


def test_types_of_codes_planes_and_depths():
    assert port.readkv_encode(z=[0.5]).dtype == np.uint8
    assert port.readkv_pack_key_planes(codes=CODES[0]).dtype == np.uint8
    assert port.readkv_unpack_value_planes(planes=PLANES, channels=3).dtype == np.uint8
    assert port.affine_quantize(x=[1.0, 2.0], bits=4)["codes"].dtype == np.uint8
    result = port.readkv_attention(**CALLS["readkv_attention"])
    assert {result[name].dtype.kind for name in ("key_depths", "value_depths")} == {"i"}
    assert {result[name].dtype.name for name in ("output", "weights")} == {"float64"}
