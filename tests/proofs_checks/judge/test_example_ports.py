"""The example ports get the verdicts that their names promise."""

import json
from pathlib import Path

import jsonschema
import pytest

import proofs_checks.judge
from proofs_checks.cli import main
from proofs_checks.judge.suite import cases_of

PORTS = Path(__file__).parents[3] / "examples" / "ports"
SCHEMA = json.loads((Path(proofs_checks.judge.__file__).parent / "schemas" / "verify.schema.json").read_text())

BROKEN = [
    ("broken_nibble_sign", "locks_unpack_basis", "D"),
    ("broken_base2_merge", "merge_attention", "B"),
    ("broken_head_map", "attention", "G"),
    ("broken_budget", "locks_select_pages", "C"),
    ("broken_smallest_modes", "locks_build_summary", "H"),
]


def verdict(port: str, tmp_path: Path, *options: str) -> tuple[int, dict]:
    target = tmp_path / "report.json"
    code = main(["verify", port, "--json", str(target), *options])
    report = json.loads(target.read_text())
    jsonschema.validate(report, SCHEMA)
    return code, report


@pytest.mark.parametrize(("name", "stage", "suspect"), BROKEN)
def test_a_broken_port_fails_at_the_broken_stage_with_its_class(name, stage, suspect, tmp_path):
    code, report = verdict(str(PORTS / f"{name}.py"), tmp_path)
    assert code == 1
    assert report["verdict"] == "FAIL"
    assert report["first_failing_stage"] == stage
    rows = {row["stage"]: row for row in report["stages"]}
    assert {s for s, row in rows.items() if row["verdict"] == "FAIL"} == {stage}
    assert rows[stage]["failures"]
    for failure in rows[stage]["failures"]:
        assert failure["suspect"] == suspect
        assert failure["repro"].startswith(f"kvproof repro {stage}/")
        assert failure["message"]


@pytest.mark.parametrize("port", ["refimpl.port", str(PORTS / "numpy_port.py")])
def test_a_right_port_passes_every_stage(port, tmp_path):
    code, report = verdict(port, tmp_path)
    assert code == 0
    assert report["verdict"] == "PASS"
    assert report["first_failing_stage"] is None
    assert report["departures"] == []
    locks = [row for row in report["stages"] if not row["stage"].startswith("readkv")]
    assert {row["verdict"] for row in locks if row["verdict"] != "NOT_PROVIDED"} == {"PASS"}
    assert {"attention", "locks_decode", "locks_decode_paged"} <= {r["stage"] for r in locks if r["verdict"] == "PASS"}
    assert all(row["worst_ratio"] is None or row["worst_ratio"] <= 1 for row in report["stages"])


def test_the_torch_port_passes_in_three_dtypes(tmp_path):
    pytest.importorskip("torch")
    code, report = verdict(str(PORTS / "torch_port.py"), tmp_path, "--profile", "quick", "--stage-timeout", "60")
    assert code == 0, report
    counts = {row["stage"]: row["cases"] for row in report["stages"]}
    dtypes = ("float32", "bfloat16", "float16")
    for stage in ("merge_attention", "paged_attention"):
        judged = sum(d in case.dtypes for case in cases_of(stage) for d in dtypes)
        assert judged - len(dtypes) * 4 < counts[stage] <= judged  # repeated calls ask for declared determinism


def test_the_reproduction_line_reproduces(tmp_path, capsys):
    port = str(PORTS / "broken_base2_merge.py")
    _, report = verdict(port, tmp_path, "--stages", "merge_attention")
    failure = report["stages"][0]["failures"][0]
    capsys.readouterr()
    code = main(failure["repro"].split()[1:])
    shown = capsys.readouterr().out
    assert code == 1
    assert failure["message"] in shown
