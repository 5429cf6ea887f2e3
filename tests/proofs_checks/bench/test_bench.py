import json
from pathlib import Path

import pytest

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


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cuda:80", "cuda:90", "cuda:100", "hip:gfx942"])
def test_every_kernel_compiles_for_every_target(target):
    pytest.importorskip("triton")
    from proofs_checks.bench.compile_only import compile_all

    assert [row for row in compile_all([target]) if not row["ok"]] == []


def test_timing_without_a_device_says_so(capsys):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        assert main(["bench", "locks"]) == 3
        assert "no CUDA device" in capsys.readouterr().err


def test_the_gpu_page_is_written_from_the_measured_results():
    import runpy

    written = runpy.run_path(str(ROOT / "benchmarks" / "gpu_page.py"))
    assert (ROOT / "docs" / "gpu.md").read_text() == written["page"](json.loads(written["RESULTS"].read_text()))
