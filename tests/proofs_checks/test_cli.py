"""The command line: exit codes, messages, listings."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.stages import STAGES

PORTS = Path(__file__).parents[2] / "examples" / "ports"
RIGHT = str(PORTS / "numpy_port.py")


def test_exit_codes_0_1_2_3(capsys, tmp_path):
    assert main(["verify", RIGHT, "--stages", "merge_attention"]) == 0
    assert main(["verify", str(PORTS / "broken_base2_merge.py"), "--stages", "merge_attention"]) == 1
    assert main(["verify", RIGHT, "--stages", "no_such_stage"]) == 2
    assert main(["verify", str(tmp_path / "missing.py")]) == 3
    out = capsys.readouterr()
    assert "no stage 'no_such_stage'; see kvproof list" in out.err
    assert "missing.py" in out.out


@pytest.mark.parametrize("words", [["verify"], ["verify", RIGHT, "--no-such-option"], ["nonsense"], []])
def test_wrong_words_exit_2_with_usage(words, capsys):
    with pytest.raises(SystemExit) as stop:
        main(words)
    assert stop.value.code == 2
    assert "usage: kvproof" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["verify", RIGHT, "--stage-timeout", "0"], "--stage-timeout: expected seconds above 0"),
        (["verify", RIGHT, "--json", "no/such/folder/report.json"], "no folder no/such/folder; create it first"),
        (["explain", "attention/none"], "no case 'attention/none'; see kvproof list --cases"),
        (["repro", "attention/tf32-product", "--port", RIGHT, "--dtype", "bfloat16"], "has inputs in float32, float64"),
    ],
)
def test_unusable_words_exit_2_with_one_line(words, line, capsys):
    assert main(words) == 2
    error = capsys.readouterr().err
    assert line in error
    assert error.count("\n") == 1


def test_json_is_written_also_when_the_port_cannot_be_used(tmp_path):
    target = tmp_path / "report.json"
    assert main(["verify", "no_such_module_anywhere", "--json", str(target)]) == 3
    report = json.loads(target.read_text())
    assert report["verdict"] == "ERROR"
    assert report["first_failing_stage"] is None
    assert list(tmp_path.iterdir()) == [target], "nothing half-written is left behind"


def test_list_json_has_every_stage_with_its_keywords_and_no_empty_where(capsys):
    assert main(["list", "--json"]) == 0
    listing = json.loads(capsys.readouterr().out)
    assert {s["name"] for s in listing["stages"]} == set(STAGES)
    assert set(listing) == {"stages", "statements", "systems", "mutants", "sections"}
    assert listing["sections"]
    assert all(s["where"] for s in listing["sections"])


def test_list_and_explain_print_what_a_port_author_needs(capsys):
    assert main(["list", "--cases"]) == 0
    text = capsys.readouterr().out
    assert "locks_score_pages(*, queries, centroid, basis, coefficients) -> scores" in text
    assert "attention/head-map" in text
    assert main(["explain", "attention/head-map"]) == 0
    text = capsys.readouterr().out
    assert "suspect:   G (GQA head map)" in text
    assert "expected output: float64 [3, 2, 64]" in text


def test_json_to_standard_output_is_json_alone(capsys):
    assert main(["verify", RIGHT, "--stages", "merge_attention", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["verdict"] == "PASS"


@pytest.mark.parametrize("module", ["proofs_checks", "kvproof", "proofs_checks.cli", "refimpl.port"])
def test_importing_loads_no_heavy_framework(module):
    heavy = ("torch", "triton", "matplotlib", "flint", "mpmath")
    code = f"import sys, {module}; print([m for m in {heavy} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
