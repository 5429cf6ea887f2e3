import importlib
import inspect
import json
from pathlib import Path

import pytest

from proofs_checks.bench.command import METHODS
from proofs_checks.cli import main

ROOT = Path(__file__).resolve().parents[3]
COLUMNS = {"kernel", "target", "branch", "ok", "registers", "spills", "shared_bytes", "message"}


def test_a_method_or_compile_only_is_asked_for(capsys):
    assert main(["bench"]) == 2
    assert "one of them" in capsys.readouterr().err


def test_one_kernel_compiles_for_a_device_that_is_not_here(capsys):
    pytest.importorskip("triton")
    assert main(["bench", "--compile-only", "--target", "cuda:90", "--kernel", "pack_kernel", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["kernels"]
    assert set(row) == COLUMNS
    assert row["ok"]
    assert row["registers"] > 0


def test_every_kernel_compiles_for_every_target_in_the_branch_that_it_uses():
    pytest.importorskip("triton")
    from proofs_checks.bench.compile_only import compile_jobs, used_jobs

    jobs = used_jobs()
    results = compile_jobs(jobs, 2)
    assert [(job, result["message"]) for job, result in zip(jobs, results, strict=True) if not result["ok"]] == []
    assert all(result["registers"] > 0 for result in results)


@pytest.mark.slow
def test_every_kernel_compiles_for_every_target():
    pytest.importorskip("triton")
    from proofs_checks.bench.compile_only import compile_all

    assert [row for row in compile_all() if not row["ok"]] == []


def test_the_committed_compile_report_covers_every_kernel_and_target():
    pytest.importorskip("triton")
    from proofs_checks.bench.compile_only import TARGETS, names

    rows = json.loads((ROOT / "benchmarks" / "results" / "compile.json").read_text())["kernels"]
    wanted = {(k, t, b) for k, b in names() for t in TARGETS if not (b == "ptx" and t.startswith("hip"))}
    assert {(row["kernel"], row["target"], row["branch"]) for row in rows} >= wanted
    assert all(row["ok"] for row in rows)


def test_a_kernel_that_does_not_compile_is_reported_with_its_message():
    pytest.importorskip("triton")
    from proofs_checks.bench.compile_only import compile_jobs

    (result,) = compile_jobs([("pack_kernel", "cuda:1", "plain")], 1)
    assert not result["ok"]
    assert result["message"]


def test_timing_without_a_device_says_so(capsys):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        assert main(["bench", "locks"]) == 3
        assert "no CUDA device" in capsys.readouterr().err


def test_the_gpu_page_is_written_from_the_measured_results():
    import runpy

    written = runpy.run_path(str(ROOT / "benchmarks" / "gpu_page.py"))
    results = [json.loads(written[name].read_text()) for name in ("RESULTS", "PROFILE")]
    assert (ROOT / "docs" / "gpu.md").read_text() == written["page"](*results)


def test_the_readkv_page_is_written_from_the_measured_results():
    import runpy

    written = runpy.run_path(str(ROOT / "benchmarks" / "readkv_page.py"))
    results = [json.loads(written[name].read_text()) for name in ("RESULTS", "TRAFFIC")]
    assert (ROOT / "docs" / "gpu-readkv.md").read_text() == written["page"](*results)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_run_as_the_command_calls_it(method):
    """Name, cases, a place for what is done so far: there is no device to time on here."""
    run = importlib.import_module(f"proofs_checks.bench.{method}").run
    inspect.signature(run).bind(print, None, None)
