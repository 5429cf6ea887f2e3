"""A port whose functions are all misspelt is an error that suggests the right names, never a pass (exit code 3)."""

import json

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.verify import verify

MISSPELT = """
def atention(*, queries, keys, values): raise RuntimeError("never called")
def locks_score_page(*, queries, centroid, basis, coefficients): raise RuntimeError("never called")
def unrelated(): raise RuntimeError("never called")
"""


@pytest.fixture
def port(tmp_path):
    path = tmp_path / "misspelt_port.py"
    path.write_text(MISSPELT, encoding="utf-8")
    return str(path)


def test_the_right_names_are_suggested(port):
    report = verify(port, profile="quick")
    assert report.verdict == "ERROR"
    assert {row.verdict for row in report.stages} == {"NOT_PROVIDED"}
    text = "\n".join(report.notes)
    assert "atention is no stage; did you mean attention?" in text
    assert "locks_score_page is no stage; did you mean locks_score_pages?" in text
    assert "no stage could be judged" in text
    assert "unrelated is no stage" not in text


def test_the_exit_code_is_3_and_the_json_is_written(port, tmp_path, capsys):
    assert main(["verify", port, "--profile", "quick", "--json", str(tmp_path / "out.json")]) == 3
    report = json.loads((tmp_path / "out.json").read_text(encoding="utf-8"))
    assert report["verdict"] == "ERROR"
    assert report["first_failing_stage"] is None
    shown = capsys.readouterr()
    assert "did you mean locks_score_pages?" in " ".join((shown.out + shown.err).split())
