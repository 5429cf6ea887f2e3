"""The C++ example that judges one stage by the golden files alone: right, built wrong, and on spoilt files."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from compiled import CXX

from proofs_checks.golden.check import golden_directory

SOURCE = Path(__file__).parents[2] / "examples" / "golden" / "judge.cpp"

pytestmark = pytest.mark.skipif(CXX is None, reason="no C++ compiler")


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    def compiled(*flags):
        program = tmp_path_factory.mktemp("build") / "judge"
        command = [CXX, "-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", *flags, "-o", program, SOURCE]
        subprocess.run(command, check=True)
        return program

    return compiled


@pytest.fixture(scope="module")
def judge(build):
    return build()


def run(program, folder):
    return subprocess.run([program, folder], capture_output=True, text=True, check=False)


def stored():
    cases = json.loads((golden_directory() / "manifest.json").read_bytes())["cases"]
    return [case["id"] for case in cases if case["stage"] == "merge_attention"]


def test_the_right_stage_lies_within_every_stored_bound(judge):
    ended = run(judge, golden_directory())
    assert ended.returncode == 0, ended.stdout
    assert ended.stdout == f"{len(stored())} cases checked, 0 wrong\n"


def test_a_stage_built_wrong_is_named_by_its_cases(build):
    ended = run(build("-DBROKEN_BASE2_MERGE"), golden_directory())
    assert ended.returncode == 1
    named = {line.split()[1].rstrip(":") for line in ended.stdout.splitlines() if line.startswith("FAIL")}
    assert "merge_attention/masses-8-and-2" in named
    assert named <= set(stored())


def test_spoilt_files_are_refused(judge, tmp_path):
    folder = tmp_path / "golden"
    (folder / "merge_attention").mkdir(parents=True)
    for name in ("manifest.json", *(f"{case}.safetensors" for case in stored())):
        shutil.copy(golden_directory() / name, folder / name)
    file = folder / "merge_attention" / "one-empty.safetensors"
    file.write_bytes(file.read_bytes()[:-8])
    ended = run(judge, folder)
    assert (ended.returncode, "truncated" in ended.stderr) == (2, True)
    (folder / "manifest.json").write_text('{"cases":[')
    assert run(judge, folder).returncode == 2
    assert run(judge, tmp_path / "nothing").returncode == 2


def test_the_reader_is_as_short_as_promised():
    assert len(SOURCE.read_text().splitlines()) <= 65
