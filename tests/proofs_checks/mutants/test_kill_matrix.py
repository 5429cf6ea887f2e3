"""Every mutant is killed with its stage named; the unmutated pipeline passes everything."""

import json
from pathlib import Path

import pytest

from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.command import as_json
from proofs_checks.mutants.matrix import LocalSession, judge_mutant, right_port
from proofs_checks.mutants.registry import mutant, mutants

DOCS = Path(__file__).parents[3] / "docs" / "kill-matrix.md"


@pytest.mark.parametrize("name", mutants())
def test_a_mutant_is_killed_at_its_stage(name):
    kill = judge_mutant(mutants()[name])
    assert kill.killed, f"{name} survives: {kill.mutant.what}"
    assert kill.named, f"{name} of {kill.mutant.stage} was named {kill.stage} by {kill.case}"


@pytest.mark.parametrize("stage", STAGES)
def test_the_right_pipeline_passes_every_case(stage):
    session = LocalSession(right_port())
    for case in cases_of(stage):
        outcome = run_case(session, case, "float32")
        assert outcome.verdict == "PASS", (case.id, outcome)


def test_mutants_are_described_and_many():
    every = mutants()
    assert len(every) >= 90
    for name, one in every.items():
        assert one.id == name
        assert one.stage in STAGES
        assert set(one.suspect.split("/")) <= set(CLASSES)
        assert one.what


def test_a_name_is_given_once():
    with pytest.raises(ValueError, match="registered twice"):
        mutant("unpack-minus-7", "locks_unpack_basis", "D", "again")(lambda: None)


def test_the_page_lists_every_mutant_and_no_survivor():
    page = DOCS.read_text()
    missing = [name for name in mutants() if f"| {name} |" not in page]
    assert not missing, "run: kvproof mutants --markdown docs/kill-matrix.md"
    assert "survives" not in page


def test_json_of_one_row():
    row = as_json([judge_mutant(mutants()["unpack-minus-7"])])["mutants"][0]
    assert row["first_failing_stage"] == "locks_unpack_basis"
    assert row["suspect"] == "D"
    assert json.dumps(row)
