"""The C++ example: built, run on files, judged; right as it stands, caught when built wrong."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.files.write import write_cases

SOURCE = Path(__file__).parents[2] / "examples" / "ports" / "cpp" / "port.cpp"
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++") or shutil.which("c++")
STAGES = ("attention", "merge_attention", "locks_unpack_basis", "locks_score_pages", "locks_select_pages")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def cases(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cpp") / "cases"
    write_cases(folder, STAGES, "quick", ("float32", "bfloat16"))
    return folder


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    def compiled(*flags):
        port = tmp_path_factory.mktemp("build") / "port"
        command = [COMPILER, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-o", port, SOURCE]
        subprocess.run(command, check=True)
        return port

    return compiled


@pytest.fixture(scope="module")
def port(build):
    return build()


def judged(cases, port, tmp_path):
    folder, target = tmp_path / "answered", tmp_path / "report.json"
    shutil.copytree(cases, folder)
    subprocess.run([port, folder], check=True, stdout=subprocess.DEVNULL)
    return main(["judge", str(folder), "--json", str(target)]), json.loads(target.read_text())


def test_the_port_passes_in_every_stage_and_dtype(cases, port, tmp_path):
    code, report = judged(cases, port, tmp_path)
    assert code == 0, report
    rows = {row["stage"]: row for row in report["stages"] if row["verdict"] != "NOT_PROVIDED"}
    assert set(rows) == set(STAGES)
    calls = json.loads((cases / "cases.json").read_text())["calls"]
    second = sum(1 for _ in cases.glob("*/*.changed@*"))
    assert sum(row["cases"] for row in rows.values()) == calls - second, "a metamorphic case is two calls"


def test_a_port_built_wrong_is_caught_and_named(build, cases, tmp_path):
    code, report = judged(cases, build("-DBROKEN_HEAD_MAP", "-DBROKEN_BASE2_MERGE"), tmp_path)
    assert code == 1
    failed = {row["stage"]: row["failures"] for row in report["stages"] if row["verdict"] == "FAIL"}
    assert {stage: failures[0]["suspect"] for stage, failures in failed.items()} == {
        "attention": "G",
        "merge_attention": "B",
    }


@pytest.mark.parametrize("spoil", ["truncate", "remove", "garble"])
def test_the_program_refuses_a_spoilt_input_without_writing_half_an_answer(spoil, cases, port, tmp_path):
    folder = tmp_path / "spoilt"
    folder.mkdir()
    source = next(cases.glob("merge_attention/*@float32"))
    shutil.copytree(source, folder / "merge_attention" / source.name)
    inputs = folder / "merge_attention" / source.name / "inputs.safetensors"
    content = inputs.read_bytes()
    if spoil == "remove":
        inputs.unlink()
    else:
        inputs.write_bytes(content[: len(content) // 2] if spoil == "truncate" else content[:8] + b"[" + content[9:])
    ended = subprocess.run([port, folder], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert ended.stderr.startswith("port: ")
    assert not list(folder.glob("*/*/outputs.safetensors*"))
