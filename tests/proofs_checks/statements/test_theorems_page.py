"""docs/theorems.md is what the registry says."""

from __future__ import annotations

from pathlib import Path

from proofs_checks.statements.registry import STATEMENTS
from proofs_checks.statements.theorems_page import read_deep, render

PAGE = Path(__file__).resolve().parents[3] / "docs" / "theorems.md"


def test_page_is_up_to_date():
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m proofs_checks.statements.theorems_page"


def test_page_says_everything_about_every_statement():
    text = PAGE.read_text(encoding="utf-8")
    for module in STATEMENTS:
        about = module.ABOUT
        section = text.split(f"#### `{about.id}`")[1].split("\n#### ")[0].split("\n### ")[0]
        for part in (about.claim, about.hypotheses, about.tight, about.hazard, about.finding, about.proof):
            assert part in section, about.id


def test_deep_run_covers_every_statement_and_found_no_violation():
    rows = {row["id"]: row for row in read_deep()["statements"]}
    assert set(rows) == {module.ABOUT.id for module in STATEMENTS}
    assert {row["verdict"] for row in rows.values()} == {"HOLDS"}
