"""`kvproof prove`: lines, JSON, exit codes."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys

import pytest

from proofs_checks.statements.command import add_arguments, run

FIELDS = {"id", "source", "verdict", "instances", "tightest_ratio", "reason"}


def prove(*words: str) -> int:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return run(parser.parse_args(words))


def test_one_line_per_statement(capsys):
    assert prove("locks-lemma-1-remark", "readkv-proposition-5") == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in printed[:3]] == ["statement", "locks-lemma-1-remark", "readkv-proposition-5"]
    assert printed[-1] == "2 statements: 2 HOLDS"


def test_json_on_standard_output_is_nothing_but_json(capsys):
    assert prove("locks-lemma-1-remark", "--json", "-") == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"statements"}
    assert set(document["statements"][0]) == FIELDS
    assert document["statements"][0]["verdict"] == "HOLDS"


def test_json_file(tmp_path, capsys):
    target = tmp_path / "prove.json"
    assert prove("locks-equation-a1", "--json", str(target)) == 0
    row = json.loads(target.read_text())["statements"][0]
    assert row["tightest_ratio"] is None
    assert "locks-equation-a1" in capsys.readouterr().out


def test_scaled_bounds_exit_1(capsys):
    assert prove("locks-lemma-2", "locks-equation-a1", "--scale-bound", "0.9") == 1
    out = capsys.readouterr().out
    assert "REFUTED" in out
    assert "NO_CONSTANT" in out


def test_scale_of_one_exits_0():
    assert prove("locks-lemma-2", "--scale-bound", "1.0", "--json", "-") == 0


@pytest.mark.parametrize(
    "words",
    [
        ("locks-lemma-4",),
        ("--scale-bound", "0"),
        ("--on", "x.safetensors", "--scale-bound", "0.9"),
        ("--on", "x.safetensors", "--steps", "0"),
    ],
    ids=["unknown id", "scale 0", "scaled capture", "no steps"],
)
def test_wrong_usage_exits_2(words, capsys):
    assert prove(*words) == 2
    assert "kvproof prove:" in capsys.readouterr().err


def test_unknown_id_names_its_neighbours(capsys):
    prove("locks-lemma-4")
    assert "locks-lemma-3" in capsys.readouterr().err


def test_listing_statements_loads_no_engine():
    """Ball arithmetic, intervals, the searcher and torch are loaded when they are needed, not before."""
    code = (
        "import sys, proofs_checks.statements.command\n"
        "print([name for name in ('flint', 'mpmath', 'hypothesis', 'torch', 'rich') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_same_seed_same_rows(capsys):
    prove("locks-proposition-2", "--json", "-", "--seed", "7")
    first = json.loads(capsys.readouterr().out)["statements"][0]["tightest_ratio"]
    prove("locks-proposition-2", "--json", "-", "--seed", "7")
    assert json.loads(capsys.readouterr().out)["statements"][0]["tightest_ratio"] == first
