"""Reading captures: what ships is whole, and a broken one is refused with a clear line."""

import json
import shutil

import numpy as np
import pytest

from proofs_checks.capture import CaptureError, load_capture, long_text_slice, needle_slice, shipped_capture


def test_the_shipped_capture_has_the_shapes_of_its_description():
    capture = shipped_capture()
    shapes = {name: array.shape for name, array in capture.arrays.items()}
    assert shapes["n2k_K"] == shapes["n2k_V"] == (4, 3, 2041, 64)
    assert shapes["n2k_Q"] == (9, 4, 9, 64)
    assert shapes["t8k_K"] == shapes["t8k_V"] == (8176, 64)
    assert shapes["t8k_Q"] == (16, 3, 64)
    assert shapes["cal_mean"] == (4, 2, 3, 64)
    assert shapes["cal_cov"] == (4, 2, 3, 64, 64)
    assert capture.manifest["rope_theta"] == 100000
    assert capture.manifest["rope_pairing"] == "half-split"
    assert capture.path.stat().st_size <= 9 * 2**20


def test_slices_have_the_stage_shapes():
    needle, text = needle_slice(2, 4), long_text_slice(3)
    assert needle["queries"].shape == (3, 3, 64)
    assert needle["keys"].shape == needle["values"].shape == (3, 2041, 64)
    assert text["queries"].shape == (1, 3, 64)
    assert text["keys"].shape == (1, 8176, 64)
    bits = np.ascontiguousarray(needle["keys"]).view(np.uint32)
    assert not (bits & 0xFFFF).any(), "every value is a bf16 value"


def _copy(tmp_path):
    source = shipped_capture().path
    for suffix in (".safetensors", ".json"):
        shutil.copy(source.with_suffix(suffix), tmp_path / f"copy{suffix}")
    return tmp_path / "copy.safetensors"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CaptureError, match=r"none\.json: no such file"):
        load_capture(tmp_path / "none.safetensors")


def test_a_changed_byte_is_refused_with_the_array(tmp_path):
    path = _copy(tmp_path)
    data = bytearray(path.read_bytes())
    data[-1000] ^= 1
    path.write_bytes(data)
    with pytest.raises(CaptureError, match="does not match its digest"):
        load_capture(path)


def test_a_truncated_file_is_refused(tmp_path):
    path = _copy(tmp_path)
    path.write_bytes(path.read_bytes()[:100_000])
    with pytest.raises(CaptureError, match="not a readable capture"):
        load_capture(path)


def test_an_array_that_the_file_lacks_is_refused(tmp_path):
    path = _copy(tmp_path)
    manifest = json.loads(path.with_suffix(".json").read_text())
    manifest["arrays"]["extra"] = {"dtype": "float32", "shape": [1], "sha256": "0"}
    path.with_suffix(".json").write_text(json.dumps(manifest))
    with pytest.raises(CaptureError, match="names 'extra', the file lacks it"):
        load_capture(path)


def test_an_unknown_array_lists_what_is_there():
    with pytest.raises(CaptureError, match="no array 'nope'; it has cal_cov"):
        shipped_capture()["nope"]
