"""Every system that the papers compare has a row with stages that exist, and every stage belongs to a system."""

import json
from pathlib import Path

import pytest

from proofs_checks.cli import main
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.systems import SYSTEMS

ROOT = Path(__file__).parents[3]

# Rows of Locks Tables 1, B.1, C.3 to C.8, D.11 to D.15 and Sec. 6; ReadKV Tables 2, 3, 6 to 8 and App. F.2.
PRINTED = """
Dense; Locks; Oracle; Quest; Centroid; Moment core; Sequence basis; Global basis; Codebook; Loki; ShadowKV; RocketKV;
KVzip; R-KV; TriAttention; LazyEviction; Expected Attention; ReadKV; ReadKV, GPU-restricted; Full Reader; KIVI;
TurboQuant K4/V4; TurboQuant with QJL; Lloyd-2; SparQ; SparQ + nested code
"""


@pytest.mark.parametrize("name", [name.strip() for name in PRINTED.split(";")])
def test_a_printed_system_has_a_row(name):
    assert any(system.system.startswith(name) for system in SYSTEMS)


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda s: s.system)
def test_a_row_names_stages_and_files_that_exist(system):
    assert system.stages
    assert set(system.stages) <= set(STAGES)
    assert len(set(system.stages)) == len(system.stages)
    assert (ROOT / system.where).is_file()


def test_every_stage_belongs_to_a_system_but_serving_variants():
    used = {stage for system in SYSTEMS for stage in system.stages}
    assert set(STAGES) - used == {"paged_sparse_attention", "locks_decode_paged"}


def test_the_list_shows_them(capsys):
    assert main(["list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["systems"]
    assert [row["system"] for row in rows] == [system.system for system in SYSTEMS]
    assert all(row["stages"] and row["source"] and row["where"] for row in rows)
    assert main(["list"]) == 0
    assert "SparQ (ReadKV App. F.2): sparq_attention" in capsys.readouterr().out
