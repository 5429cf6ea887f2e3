"""The adapter of locks-kv 0.1.4 in the package's own dialect: it passes, and every documented departure is listed."""

import json
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.locks_kv.costs import WHAT

PORT = Path(__file__).parents[2] / "examples" / "ports" / "locks_kv_port_dialect.py"


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    for name in ("torch", "triton", "locks"):
        pytest.importorskip(name)
    target = tmp_path_factory.mktemp("dialect") / "report.json"
    code = main(["verify", str(PORT), "--json", str(target)])
    return code, json.loads(target.read_text())


def test_it_passes_in_every_stage_that_it_has(result):
    code, report = result
    assert (code, report["dialect"], report["verdict"]) == (0, "locks-kv-0.1.4", "PASS")
    assert {row["stage"] for row in report["stages"] if row["verdict"] == "PASS"} == {
        "sparse_attention",
        "paged_sparse_attention",
        "locks_build_summary",
        "locks_quantize_summary",
        "locks_pack_basis",
        "locks_unpack_basis",
        "locks_score_pages",
        "locks_select_pages",
        "locks_decode",
        "locks_decode_paged",
    }


def test_every_documented_departure_is_listed_with_its_cost_and_no_other(result):
    departures = {d["id"]: d for d in result[1]["departures"]}
    assert set(departures) == {name for name, _ in WHAT.values()}
    assert all(d["what"] and "coverage lost" in d["cost"] for d in departures.values())
