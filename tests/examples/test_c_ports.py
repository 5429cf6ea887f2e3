"""The compiled example ports: built, judged through the C ABI; right as they stand, caught when built wrong."""

import json
import subprocess
from pathlib import Path

import pytest
from compiled import CC, CXX, RUSTC, shared_library

from proofs_checks.cli import main
from proofs_checks.judge.suite import cases_of

PORTS = Path(__file__).parents[2] / "examples" / "ports"
DTYPES = ("float32", "bfloat16")
C_STAGES = {"attention", "merge_attention", "paged_attention", "locks_unpack_basis", "locks_select_pages"}
RUST_STAGES = {"merge_attention", "locks_unpack_basis"}

needs_c = pytest.mark.skipif(CC is None, reason="no C compiler")
needs_rust = pytest.mark.skipif(RUSTC is None, reason="no Rust compiler")


def c_port(folder, *flags):
    return shared_library(PORTS / "c" / "port.c", folder / "libport.so", "-std=c11", *flags)


def rust_port(folder, *flags):
    target, known = str(folder / "librust_port.so"), "cfg(broken_contiguous, broken_unwritten)"
    command = [RUSTC, "--edition", "2021", "-O", "-D", "warnings", "--check-cfg", known, "--crate-type", "cdylib"]
    subprocess.run([*command, *flags, "-o", target, str(PORTS / "rust" / "port.rs")], check=True)
    return target


BUILDS = [
    pytest.param(c_port, C_STAGES, marks=needs_c, id="c"),
    pytest.param(rust_port, RUST_STAGES, marks=needs_rust, id="rust"),
]


def judged(port, folder):
    target = folder / "report.json"
    code = main(["verify", port, "--profile", "quick", "--json", str(target)])
    report = json.loads(target.read_text())
    return code, report, {row["stage"]: row for row in report["stages"] if row["verdict"] != "NOT_PROVIDED"}


@pytest.mark.parametrize(("build", "stages"), BUILDS)
def test_the_port_passes_every_case_in_both_dtypes(build, stages, tmp_path):
    code, report, rows = judged(build(tmp_path), tmp_path)
    assert code == 0, report
    assert set(rows) == stages
    for stage, row in rows.items():
        quick = [case for case in cases_of(stage) if case.profile == "quick"]
        assert row["cases"] == sum(dtype in case.dtypes for case in quick for dtype in DTYPES)


@needs_c
def test_c_addresses_rebuilt_from_shapes_are_class_a_in_every_stage(tmp_path):
    code, report, rows = judged(c_port(tmp_path, "-DBROKEN_CONTIGUOUS"), tmp_path)
    assert code == 1
    for stage in C_STAGES:
        failed = {failure["case"].partition("@")[0]: failure["suspect"] for failure in rows[stage]["failures"]}
        views = {f"{stage}/strided-views"} | ({"paged_attention/interleaved-pools"} & {f"{stage}/interleaved-pools"})
        assert failed == dict.fromkeys(views, "A"), "and what lies contiguous is read right"
    assert report["first_failing_stage"] == "attention"


@needs_rust
def test_rust_addresses_rebuilt_from_shapes_are_class_a_in_every_stage(tmp_path):
    code, _, rows = judged(rust_port(tmp_path, "--cfg", "broken_contiguous"), tmp_path)
    assert code == 1
    for stage in RUST_STAGES:
        failed = {failure["case"].partition("@")[0]: failure["suspect"] for failure in rows[stage]["failures"]}
        assert failed == {f"{stage}/strided-views": "A"}


def channels(case):
    """d of a case of the three stages that attend or merge."""
    inputs = case.inputs()
    return inputs["queries" if "queries" in inputs else "outputs"].shape[-1]


@needs_c
def test_c_results_that_are_not_fully_written_are_class_k(tmp_path):
    """The broken build writes whole vectors of 32 channels: what it loses is where d is no multiple of 32."""
    code, _, rows = judged(c_port(tmp_path, "-DBROKEN_UNWRITTEN"), tmp_path)
    assert code == 1
    failed = {stage: row["failures"] for stage, row in rows.items() if row["verdict"] == "FAIL"}
    assert set(failed) == {"attention", "merge_attention", "paged_attention"}
    for stage, failures in failed.items():
        odd = {case.id for case in cases_of(stage) if case.profile == "quick" and channels(case) % 32}
        assert {failure["case"].partition("@")[0] for failure in failures} == odd
        assert {failure["suspect"] for failure in failures} == {"K"}
    told = {failure["case"]: failure["message"] for failure in failed["attention"]}
    assert "output[0, 0, 64] still holds" in told["attention/H2-G4-T16-d80"], "80 = 2 x 32 + 16"


@needs_rust
def test_rust_results_that_are_not_written_are_class_k(tmp_path):
    code, _, rows = judged(rust_port(tmp_path, "--cfg", "broken_unwritten"), tmp_path)
    assert code == 1
    failures = rows["merge_attention"]["failures"]
    assert failures[0]["suspect"] == "K"
    assert "lse[0, 0] still holds" in failures[0]["message"]
    assert rows["locks_unpack_basis"]["verdict"] == "PASS"


@needs_c
def test_the_reproduction_line_reproduces(tmp_path, capsys):
    rows = judged(c_port(tmp_path, "-DBROKEN_CONTIGUOUS"), tmp_path)[2]
    failure = rows["paged_attention"]["failures"][0]
    capsys.readouterr()
    assert main(failure["repro"].split()[1:]) == 1
    assert failure["message"] in capsys.readouterr().out


CPP = """
#include <cstring>
#include "kvproof_port.h"

KVPROOF_STAGE(locks_unpack_basis) {
    const DLTensor *bytes = nullptr, *codes = nullptr;
    for (int i = 0; i < argument_count; ++i)
        if (!std::strcmp(arguments[i].name, "basis_bytes")) bytes = arguments[i].value.tensor;
    for (int i = 0; i < result_count; ++i)
        if (!std::strcmp(results[i].name, "basis_codes")) codes = results[i].tensor;
    if (!bytes || !codes) {
        std::strncpy(message, "expected basis_bytes", size_t(message_size) - 1);
        return KVPROOF_ERROR;
    }
    const int64_t *n = bytes->shape, *s = bytes->strides, *to = codes->strides;
    auto from = static_cast<const uint8_t*>(bytes->data) + bytes->byte_offset;
    auto into = static_cast<int8_t*>(codes->data) + codes->byte_offset;
    for (int64_t h = 0; h < n[0]; ++h)
        for (int64_t p = 0; p < n[1]; ++p)
            for (int64_t r = 0; r < n[2]; ++r)
                for (int64_t i = 0; i < n[3]; ++i) {
                    uint8_t both = from[h * s[0] + p * s[1] + r * s[2] + i * s[3]];
                    int8_t* code = into + h * to[0] + p * to[1] + r * to[3];
                    code[2 * i * to[2]] = int8_t((both & 15) ^ 8) - 8;
                    code[(2 * i + 1) * to[2]] = int8_t((both >> 4) ^ 8) - 8;
                }
    return KVPROOF_OK;
}
"""


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
def test_cpp_needs_no_more_than_the_header(tmp_path):
    (tmp_path / "port.cpp").write_text(CPP)
    flags = ("-std=c++17", "-fvisibility=hidden", f"-I{PORTS / 'c'}")
    port = shared_library(tmp_path / "port.cpp", tmp_path / "libcpp.so", *flags, compiler=CXX)
    code, report, rows = judged(port, tmp_path)
    assert code == 0, report
    assert set(rows) == {"locks_unpack_basis"}
