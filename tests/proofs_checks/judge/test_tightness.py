"""The page on tightness follows from its JSON, which has every stage and no failure."""

import json
from pathlib import Path

from honest_ports import honest_ports

from proofs_checks.judge import tightness
from proofs_checks.judge.stages import STAGES

DOCS = Path(__file__).parents[3] / "docs"
DATA = json.loads((DOCS / "tightness.json").read_text())


def test_the_page_is_what_the_json_says():
    assert (DOCS / "tightness.md").read_text() == tightness.as_markdown(DATA)


def test_every_stage_and_every_honest_port_is_in_it_without_a_failure():
    rows = (*DATA["cases"], *DATA["drawn"])
    assert {row["stage"] for row in DATA["cases"]} == set(STAGES)
    assert {row["port"] for row in DATA["cases"]} == set(tightness.PORTS)
    assert {row["port"] for row in DATA["drawn"]} == set(honest_ports())
    assert DATA["seeds"] == tightness.SEEDS == 10
    assert all(row["failed"] == 0 and row["judged"] > 0 for row in rows)
    assert all(row["worst_ratio"] is None or 0 <= row["worst_ratio"] <= 1 for row in rows)


def test_a_row_of_a_real_port_and_of_a_failing_one(tmp_path):
    rows = {row["stage"]: row for row in tightness.on_cases("examples/ports/broken_base2_merge.py", "quick")}
    assert rows["merge_attention"]["failed"] > 0
    assert rows["merge_attention"]["worst_ratio"] > 1
    assert rows["merge_attention"]["case"].startswith("merge_attention/")


def test_rendering_writes_the_same_page_again(monkeypatch, tmp_path):
    (tmp_path / "tightness.json").write_text((DOCS / "tightness.json").read_text())
    monkeypatch.setattr(tightness, "DOCS", tmp_path)
    assert tightness.main(["--render"]) == 0
    assert (tmp_path / "tightness.md").read_text() == (DOCS / "tightness.md").read_text()


def test_outside_a_checkout_it_says_so(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(tightness, "SUPPORT", tmp_path / "none")
    assert tightness.main([]) == 3
    assert "in a checkout" in capsys.readouterr().err
