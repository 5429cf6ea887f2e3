"""docs/notation.md explains every argument and result of the stages that choose what to read or to keep."""

import re
from pathlib import Path

import pytest

from proofs_checks.judge.table_baseline_reads import BASELINE_READS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "notation.md").read_text(encoding="utf-8")
EARLIER, _, REST = PAGE.partition("\n## Arguments and results of the other systems' stages\n")
OWN = REST.partition("\n## ")[0]
ROWS = [line.split("|")[1:-1] for line in OWN.splitlines() if line.startswith("| `")]
NAMED = {name for row in ROWS for name in re.findall(r"`(\w+)`", row[0])}


@pytest.mark.parametrize("row", BASELINE_READS, ids=lambda row: row.name)
def test_every_name_is_explained(row):
    for name in (*row.arguments, *row.optional, *row.results):
        assert name in NAMED or f"`{name}`" in EARLIER + OWN.partition("| name |")[0], name


def test_every_row_is_complete_and_names_stages_that_exist():
    assert len(ROWS) > 25
    stages = {row.name for row in BASELINE_READS}
    for row in ROWS:
        assert len(row) == 5
        assert all(cell.strip() for cell in row), row
        assert set(re.findall(r"`(\w+)`", row[4])) <= stages


def test_no_row_explains_a_name_that_no_stage_has():
    names = {name for row in BASELINE_READS for name in (*row.arguments, *row.optional, *row.results)}
    assert names >= NAMED
