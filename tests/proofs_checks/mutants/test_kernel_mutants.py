"""Wrong kernels: every edit still finds its text; on the interpreter one is killed and the kernels as they are pass."""

import json
from pathlib import Path

import pytest

from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.mutants.gpu import registry
from proofs_checks.mutants.gpu.matrix import Judge, as_json, as_markdown, kernel_matrix
from proofs_checks.mutants.gpu.registry import kernel_mutant, kernel_mutants
from proofs_checks.mutants.gpu.source import StaleEditError, edited, package_folder, write_port


@pytest.mark.parametrize("name", kernel_mutants())
def test_an_edit_finds_its_text_once_and_still_compiles(name):
    mutant = kernel_mutants()[name]
    text = (package_folder() / mutant.file).read_text()
    changed = edited(mutant, text)
    assert changed != text
    compile(changed, mutant.file, "exec")


def test_wrong_kernels_are_described_and_at_least_ten():
    every = kernel_mutants()
    assert len(every) >= 10
    for name, one in every.items():
        assert one.id == name
        assert one.stage in STAGES
        assert one.suspect in CLASSES
        assert one.what


def test_an_edit_whose_text_is_gone_says_so():
    mutant = next(iter(kernel_mutants().values()))
    with pytest.raises(StaleEditError, match="found 0 times"):
        edited(mutant, "")


def test_a_name_is_given_once(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTER", dict(kernel_mutants()))
    with pytest.raises(ValueError, match="registered twice"):
        kernel_mutant("gpu-tf32-dot", "attention", "I", "again", file="device.py", old="a", new="b")


def test_a_copy_is_the_package_with_one_edit(tmp_path):
    mutant = kernel_mutants()["gpu-tf32-dot"]
    port = write_port(tmp_path, mutant)
    originals = {p.relative_to(package_folder()): p.read_text() for p in package_folder().rglob("*.py")}
    copies = {p.relative_to(tmp_path / "fastimpl"): p.read_text() for p in (tmp_path / "fastimpl").rglob("*.py")}
    assert port.parent == tmp_path
    assert [str(name) for name in originals if originals[name] != copies[name]] == ["device.py"]


def test_an_interpreted_wrong_kernel_is_killed_by_a_case_that_the_right_one_passes(monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (kill,) = kernel_matrix(Judge(None), workers=2, only=["gpu-merge-empty-split"])
    assert kill.right, kill
    assert kill.case.startswith("merge_attention/")
    page = as_markdown(as_json([kill], "interpreter"))
    assert "1 of 1 killed" in page
    assert "| gpu-merge-empty-split | merge_attention |" in page


def test_first_cases_exist():
    for one in kernel_mutants().values():
        assert not one.first or one.first in {case.name for case in cases_of(one.stage)}, one.id


def test_the_page_is_written_from_the_committed_matrix_and_nothing_survives():
    root = Path(__file__).resolve().parents[3]
    document = json.loads((root / "benchmarks" / "results" / "gpu_mutants.json").read_text())
    assert {row["id"] for row in document["kernels"]} <= set(kernel_mutants())
    assert sum(row["killed"] for row in document["kernels"]) >= 10
    assert not [row["id"] for row in document["kernels"] if row["verdict"] == "PASS"], "a wrong kernel survived"
    assert (root / "docs" / "kill-matrix-gpu.md").read_text() == as_markdown(document)
