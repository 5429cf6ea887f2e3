"""The command on a synthetic capture: exit codes, JSON by its schema, HTML with plots, own selectors, processes."""

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

from proofs_checks.microscope import command
from proofs_checks.microscope.combine_study import combine_study
from proofs_checks.microscope.measure import SECTIONS, Plan, measure_capture
from proofs_checks.microscope.writer import CaptureWriter, Trace

SCHEMA = json.loads((Path(command.__file__).parent / "schemas/report.schema.json").read_text())


@pytest.fixture(scope="module")
def capture(tmp_path_factory):
    """Two KV heads of one layer, 300 tokens, 16 channels: small, but every table has rows."""
    rng = np.random.default_rng(3)
    keys, values = (rng.standard_normal((1, 2, 300, 16)).astype(np.float32) for _ in range(2))
    queries = rng.standard_normal((2, 1, 4, 16)).astype(np.float32) * 2
    writer = CaptureWriter({"model": "random numbers", "text": "none", "synthetic": True})
    writer.add_moments(
        np.zeros((1, 2, 2, 16), np.float32), np.broadcast_to(np.eye(16, dtype=np.float32), (1, 2, 2, 16, 16))
    )
    trace = Trace(keys, values, queries, np.array([297, 299]))
    writer.add("random", trace, [0], {"theta": 100.0, "pairing": "half-split"}, carrier_tokens=[[40, 44]])
    path = tmp_path_factory.mktemp("capture") / "random.safetensors"
    writer.write(path)
    return path


def test_every_table_prints_for_a_synthetic_capture(capture, tmp_path, capsys):
    report, page, figures = tmp_path / "report.json", tmp_path / "report.html", tmp_path / "figures"
    code = command.main([str(capture), "--json", str(report), "--html", str(page), "--plots", str(figures)])
    assert code == 0
    content = json.loads(report.read_text())
    jsonschema.validate(content, SCHEMA)
    tables = {table["id"]: table for table in content["sets"][0]["tables"]}
    assert set(tables) == {
        "energy", "fidelity", "errors", "frontier", "traffic", "matched_bytes", "rotation", "combine", "departures",
        "grid", "audit", "readkv_codec", "readkv_readers", "readkv_decomposition", "readkv_factorial",
    }  # fmt: skip
    assert all(table["rows"] for table in tables.values())
    assert all(row["violated"] == 0 for row in tables["audit"]["rows"])
    assert content["about"]["synthetic"] is True
    printed = capsys.readouterr().out
    assert "Captured energy" in printed
    assert "Reader restrictions" in printed
    text = page.read_text()
    assert text.count("<svg") == 4
    assert len(list(figures.glob("*.svg"))) == 4


def test_processes_change_nothing(capture):
    plan = Plan(sections=("energy", "combine", "frontier"), budgets=(64, 128))
    alone, together = (measure_capture(capture, plan, processes=n) for n in (1, 2))
    assert alone.keys() == together.keys()
    for key, one in alone.items():
        other = together[key]
        if hasattr(one, "array"):
            assert np.array_equal(np.sort(one.array), np.sort(other.array))
        elif hasattr(one, "total"):
            assert (one.total, one.count) == (other.total, other.count)


def test_own_selector_from_a_file(capture, tmp_path):
    own = tmp_path / "mine.py"
    own.write_text(
        "from proofs_checks.microscope.selectors import Selector\n"
        "FIRST = Selector('first key', lambda c: c.key_pages[:, 0], lambda q, s: q @ s.T, lambda c: 32.0)\n"
    )
    report = tmp_path / "report.json"
    code = command.main(
        [str(capture), "--sections", "frontier,fidelity", "--selector", f"{own}:FIRST", "--json", str(report)]
    )
    assert code == 0
    tables = {t["id"]: t["rows"] for t in json.loads(report.read_text())["sets"][0]["tables"]}
    assert any(row["summary"] == "first key" and row["b=128"] > 0 for row in tables["frontier"])
    assert any(row["summary"] == "first key" and row["B/page"] == 32 for row in tables["traffic"])
    assert any(row["scorer"] == "first key" for row in tables["fidelity"])


def test_wrong_usage_and_unreadable_captures_have_their_codes(capture, tmp_path, capsys):
    assert command.main([]) == 2
    assert command.main([str(capture), "--sections", "nothing"]) == 2
    assert command.main([str(tmp_path / "absent.safetensors")]) == 3
    assert command.main([str(capture), "--sections", "energy", "--selector", f"{command.__file__}:SECTIONS"]) == 3
    assert "Selector" in capsys.readouterr().err


def test_the_study_is_one_command(tmp_path, monkeypatch):
    monkeypatch.setattr(command, "study_rows", lambda: command_rows())
    report = tmp_path / "study.json"
    assert command.main(["--study", "combine", "--json", str(report)]) == 0
    assert json.loads(report.read_text())["rows"][0]["mean_loss"] >= 0


def command_rows():
    return [combine_study(cases=20)]


def test_sections_can_be_chosen_one_at_a_time(capture, capsys):
    assert "readkv" in SECTIONS
    assert command.main([str(capture), "--sections", "combine"]) == 0
    printed = capsys.readouterr().out
    assert "GQA combine rules" in printed
    assert "Captured energy" not in printed


def test_importing_the_command_loads_no_plotting_and_no_torch():
    code = (
        "import sys, proofs_checks.microscope.command\n"
        "print(sorted({'matplotlib', 'torch', 'gguf', 'tokenizers', 'distributed'} & sys.modules.keys()))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
