"""Captures written, read back, checked against the schema, and refused when they are damaged."""

import json
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from proofs_checks.fixtures import fixtures_directory
from proofs_checks.microscope import source
from proofs_checks.microscope.source import check_digests, load_capture, to_float64
from proofs_checks.microscope.writer import CaptureWriter, Trace, bf16_bits
from refimpl.checks import ArgumentError

SCHEMA = json.loads((Path(source.__file__).parent / "schemas/capture.schema.json").read_text())


def synthetic_writer(seed=0, tokens=70, d=8):
    rng = np.random.default_rng(seed)
    keys, values = (rng.standard_normal((2, 2, tokens, d)).astype(np.float32) for _ in range(2))
    queries = rng.standard_normal((3, 2, 4, d)).astype(np.float32)
    writer = CaptureWriter({"model": "random numbers", "text": "none", "synthetic": True})
    covariance = np.broadcast_to(np.eye(d, dtype=np.float32), (2, 2, 2, d, d))
    writer.add_moments(np.zeros((2, 2, 2, d), np.float32), covariance)
    trace = Trace(keys, values, queries, np.arange(tokens - 3, tokens))
    writer.add("made-up", trace, [0, 5], {"theta": 100.0, "pairing": "half-split"}, carrier_tokens=[[9, 11]])
    return writer, trace


@pytest.fixture
def written(tmp_path):
    writer, trace = synthetic_writer()
    path = tmp_path / "made-up.safetensors"
    writer.write(path)
    return path, trace


def test_what_is_written_is_read(written):
    path, trace = written
    check_digests(path)
    (capture,) = load_capture(path)
    head = capture.head(3)  # layer 5, KV head 1
    assert (head.layer, head.head, head.steps) == (5, 1, 3)
    assert np.array_equal(head.keys, to_float64(bf16_bits(trace.keys[1, 1])))
    assert np.array_equal(head.queries(1, 3), to_float64(bf16_bits(trace.queries[1:, 1, 2:])))
    assert np.array_equal(head.first_head_keys, to_float64(bf16_bits(trace.keys[1, 0])))
    assert head.key_moments[1].tolist() == np.eye(8).tolist()
    assert head.carrier_pages(8).tolist() == [1]
    assert capture.layer(1).queries(2).shape == (2, 2, 8)


def test_manifests_follow_the_published_schema(written):
    shipped = fixtures_directory() / "captures" / "smollm2_135m_instruct_q4_1.json"
    for manifest in (written[0].with_suffix(".json"), shipped):
        jsonschema.validate(json.loads(manifest.read_text()), SCHEMA)


def test_bf16_bits_round_to_even():
    ties = np.array([1.00390625, 1.01171875], np.float32)  # halfway between neighbours
    assert to_float64(bf16_bits(ties)).tolist() == [1.0, 1.015625]


def test_a_changed_byte_is_an_error(written):
    path, _ = written
    damaged = bytearray(path.read_bytes())
    damaged[-1] ^= 1
    path.write_bytes(bytes(damaged))
    with pytest.raises(ArgumentError, match="digest"):
        check_digests(path)


def test_a_missing_tensor_is_named(written):
    path, _ = written
    manifest = json.loads(path.with_suffix(".json").read_text())
    manifest["sets"][0]["keys"] = "absent"
    path.with_suffix(".json").write_text(json.dumps(manifest))
    with pytest.raises(ArgumentError, match="absent"):
        load_capture(path)


def test_positions_beyond_the_keys_are_refused(tmp_path):
    writer, trace = synthetic_writer()
    writer.tensors["made-up.positions"] = trace.positions + 1
    writer.write(tmp_path / "late.safetensors")
    with pytest.raises(ArgumentError, match="positions below 70"):
        load_capture(tmp_path / "late.safetensors")


def test_another_format_number_is_refused(written):
    path, _ = written
    path.with_suffix(".json").write_text('{"format": 2, "sets": []}')
    with pytest.raises(ArgumentError, match="format 1"):
        load_capture(path)


def test_a_payload_of_another_size_is_refused(written):
    path, _ = written
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    header["made-up.keys"]["shape"][0] = 3
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + raw[8 + length :])
    with pytest.raises(ArgumentError, match=r"made-up\.keys"):
        load_capture(path)


def test_reading_maps_the_file_instead_of_loading_it(written):
    (capture,) = load_capture(written[0])
    assert isinstance(capture.keys.base, np.memmap) or isinstance(capture.keys, np.memmap)
