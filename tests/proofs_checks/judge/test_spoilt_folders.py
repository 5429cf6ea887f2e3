"""Folders that are not to be trusted: what was changed, cut, swapped or linked costs the verdict of its case."""

import json
import os
import shutil

import numpy as np
import pytest
from answering_files import answer, rows, verdict
from safetensors.numpy import load_file, save_file

from proofs_checks.judge.files.write import write_cases

CALL = "merge_attention/masses-8-and-2@float32"


@pytest.fixture(scope="module")
def answered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files") / "cases"
    write_cases(folder, ["merge_attention", "locks_unpack_basis"], "quick", ["float32"])
    answer(folder)
    return folder


@pytest.fixture
def folder(answered, tmp_path):
    copy = tmp_path / "cases"
    shutil.copytree(answered, copy)
    return copy


def spoil_inputs(path):
    tensors = load_file(path / "inputs.safetensors")
    tensors["lses"].flat[0] += 1
    save_file(tensors, path / "inputs.safetensors")


def spoil_call(path, key, value):
    call = json.loads((path / "call.json").read_text())
    (path / "call.json").write_text(json.dumps({**call, key: value}))


def truncate(path, name, keep):
    content = (path / name).read_bytes()
    (path / name).write_bytes(content[:keep])


def results(path, change):
    tensors = load_file(path / "outputs.safetensors")
    save_file({**tensors, **change(tensors)}, path / "outputs.safetensors")


def link(path, name):
    (path / name).rename(path / "elsewhere")
    (path / name).symlink_to(path / "elsewhere")


def swap_header(path):
    content = (path / "outputs.safetensors").read_bytes()
    (path / "outputs.safetensors").write_bytes(content[:8][::-1] + content[8:])


def fifo(path):
    (path / "outputs.safetensors").unlink()
    os.mkfifo(path / "outputs.safetensors")


def overlong(path):
    with (path / "outputs.safetensors").open("ab") as stream:
        stream.truncate(1 << 30)  # sparse


def move_folder(path):
    path.rename(path.parent.parent / "moved")
    path.symlink_to(path.parent.parent / "moved")


# what is done to the folder of one call, the stage's verdict, and what its one line must say
SPOILT = {
    "inputs changed": (spoil_inputs, "ERROR", "lses is not the case's: changed"),
    "inputs truncated": (
        lambda p: truncate(p, "inputs.safetensors", -3),
        "ERROR",
        "inputs.safetensors: no safetensors",
    ),
    "inputs missing": (lambda p: (p / "inputs.safetensors").unlink(), "ERROR", "inputs.safetensors is missing"),
    "call missing": (lambda p: (p / "call.json").unlink(), "ERROR", "call.json is missing"),
    "call not JSON": (lambda p: (p / "call.json").write_text("{"), "ERROR", "call.json: not JSON"),
    "call no object": (lambda p: (p / "call.json").write_text("[]"), "ERROR", "expected a JSON object, got list"),
    "call deeply nested": (lambda p: (p / "call.json").write_text("[" * 100_000), "ERROR", "call.json: not JSON"),
    "id escapes": (lambda p: spoil_call(p, "id", "../../etc/passwd"), "ERROR", "call.json: id was changed"),
    "scalars changed": (lambda p: spoil_call(p, "arguments", {"rank": 3}), "ERROR", "call.json: arguments was changed"),
    "outputs empty": (lambda p: truncate(p, "outputs.safetensors", 0), "ERROR", "truncated: 0 bytes"),
    "outputs truncated": (lambda p: truncate(p, "outputs.safetensors", -4), "ERROR", "or a truncated one"),
    "header truncated": (lambda p: truncate(p, "outputs.safetensors", 20), "ERROR", "a header of"),
    "header byte-swapped": (swap_header, "ERROR", "its bytes are swapped (big-endian)"),
    "outputs byte-swapped": (
        lambda p: results(p, lambda t: {"output": t["output"].byteswap()}),
        "ERROR",
        "output: its bytes are swapped",
    ),
    "outputs no safetensors": (
        lambda p: (p / "outputs.safetensors").write_bytes(b"\x93NUMPY" * 9),
        "ERROR",
        "no safetensors file",
    ),
    "outputs a link": (lambda p: link(p, "outputs.safetensors"), "ERROR", "a symbolic link, expected a file"),
    "inputs a link": (lambda p: link(p, "inputs.safetensors"), "ERROR", "a symbolic link, expected a file"),
    "outputs a folder": (
        lambda p: ((p / "outputs.safetensors").unlink(), (p / "outputs.safetensors").mkdir()),
        "ERROR",
        "outputs.safetensors: not a regular file",
    ),
    "outputs a pipe": (fifo, "ERROR", "not a regular file"),
    "outputs a gigabyte": (overlong, "ERROR", "bytes, expected at most"),
    "the folder a link": (move_folder, "ERROR", "masses-8-and-2@float32 is a symbolic link, expected a folder"),
    "the folder missing": (shutil.rmtree, "ERROR", "masses-8-and-2@float32 is missing"),
    "outputs mistyped": (
        lambda p: results(p, lambda t: {"output": t["output"].astype(np.int32)}),
        "FAIL",
        "output: expected a floating type, got int32",
    ),
    "outputs of bools": (lambda p: results(p, lambda t: {"lse": t["lse"] > 0}), "ERROR", "expected numbers, got BOOL"),
    "a result missing": (
        lambda p: save_file({"lse": np.zeros((1, 1), np.float32)}, p / "outputs.safetensors"),
        "FAIL",
        "output is missing; expected output, lse",
    ),
    "a result too many": (
        lambda p: results(p, lambda t: {"../../escape": np.zeros(1)}),
        "FAIL",
        "no result is called '../../escape'",
    ),
    "a wrong shape": (lambda p: results(p, lambda t: {"lse": np.zeros(3, np.float32)}), "FAIL", "lse: expected shape"),
}


@pytest.mark.parametrize("what", SPOILT)
def test_a_spoilt_folder_costs_one_verdict_with_one_line(what, folder):
    spoil, expected, line = SPOILT[what]
    spoil(folder / CALL)
    code, report = verdict(folder)
    assert code == 1
    row = rows(report)["merge_attention"]
    assert row["verdict"] == expected, row
    assert [failure["case"] for failure in row["failures"]] == ["merge_attention/masses-8-and-2"]
    assert line in row["failures"][0]["message"], row["failures"][0]["message"]
    assert "\n" not in row["failures"][0]["message"]
    assert rows(report)["locks_unpack_basis"]["verdict"] == "PASS"


def test_a_linked_stage_is_refused(folder):
    (folder / "merge_attention").rename(folder.parent / "real")
    (folder / "merge_attention").symlink_to(folder.parent / "real")
    code, report = verdict(folder)
    assert code == 1
    messages = {f["message"] for f in rows(report)["merge_attention"]["failures"]}
    assert all("merge_attention is a symbolic link, expected a folder" in m for m in messages)
