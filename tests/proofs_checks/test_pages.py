"""Generated pages are written in a checkout alone, and the committed stage reference is the table's."""

from pathlib import Path

from proofs_checks import fixtures
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.stages_page import render_markdown
from proofs_checks.pages import write_page

ROOT = Path(__file__).resolve().parents[2]


def test_a_page_needs_a_checkout(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(fixtures, "__file__", str(tmp_path / "proofs_checks" / "fixtures.py"))
    assert write_page("page.md", lambda: "text") == 3
    assert "checkout" in capsys.readouterr().err
    (tmp_path / "docs").mkdir()
    assert write_page("page.md", lambda: "text") == 0
    assert (tmp_path / "docs" / "page.md").read_text(encoding="utf-8") == "text"


def test_the_stage_reference_is_what_the_table_says():
    page = (ROOT / "docs" / "stages.md").read_text(encoding="utf-8")
    assert page == render_markdown(), "run python -m proofs_checks.judge.stages_page"


def test_every_stage_has_shapes_errors_and_its_source_in_its_text():
    for stage in STAGES.values():
        text = stage.reference.__doc__
        for what in ("[", "Raises", "Source:"):
            assert what in text, f"{stage.name}: no {what!r}"
