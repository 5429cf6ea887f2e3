"""Shared libraries as ports: those that misbehave cost one verdict, those that are none are named in one line."""

from functools import partial
from pathlib import Path

import pytest
from compiled import CC, CXX, UNPACK, c_library
from compiled import shared_library as compiled

from proofs_checks.cli import main
from proofs_checks.judge import shared_library
from proofs_checks.judge.verify import verify

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")


@pytest.fixture
def library(tmp_path):
    return partial(c_library, tmp_path)


# what the library's merge_attention does, the verdict, the suspect where one is certain, and what the line must say
MISBEHAVIOUR = {
    "crashes": ("*(volatile int*)8 = 1;", "ERROR", None, "killed by SIGSEGV while running merge_attention"),
    "aborts": ("abort();", "ERROR", None, "killed by SIGABRT"),
    "exits": ("exit(5);", "ERROR", None, "exited with status 5"),
    "hangs": ("for (volatile int i = 0;; ) (void)i;", "TIMEOUT", None, "no answer within 1.5 s"),
    "reports an error": (
        'snprintf(message, (size_t)message_size, "no\\nkernel"); return 7;',
        "ERROR",
        None,
        "kvproof_merge_attention returned 7: no kernel",
    ),
    "reports an error without words": ("return -1;", "ERROR", None, "returned -1: no message"),
    "fills the message to its end": ("memset(message, 'x', (size_t)message_size); return 2;", "ERROR", None, "xxx"),
    "writes nothing": ("", "FAIL", "K", "still holds nan as before the call; 16 of 16 not written"),
    "writes past a result": (
        "int64_t bytes = 4; for (int i = 0; i < 3; ++i) bytes *= results[0].tensor->shape[i];"
        "memset(first(results[0].tensor), 0, (size_t)bytes + 1);",
        "FAIL",
        "I",
        "output: the call wrote after its memory",
    ),
    "writes before a result": (
        "first(results[1].tensor)[-1] = 0; memset(first(results[0].tensor), 0, 4 * 16);",
        "FAIL",
        "I",
        "lse: the call wrote before its memory",
    ),
    "changes its input": (
        "memset(first(given(arguments, 1)), 0, 4); memset(first(results[0].tensor), 0, 4 * 16);"
        "memset(first(results[1].tensor), 0, 4 * 2);",
        "FAIL",
        "K",
        "lses: the call changed its input",
    ),
}


@pytest.mark.parametrize("what", MISBEHAVIOUR)
def test_a_misbehaving_library_costs_one_verdict(what, library):
    body, verdict, suspect, line = MISBEHAVIOUR[what]
    merge = f"KVPROOF_STAGE(merge_attention) {{ UNUSED; {body} return KVPROOF_OK; }}"
    stages = ["merge_attention", "locks_unpack_basis"]
    report = verify(library(UNPACK + merge), stages, profile="quick", stage_timeout=1.5)
    rows = {row.stage: row for row in report.stages}
    failures = rows["merge_attention"].failures
    assert rows["merge_attention"].verdict == verdict
    assert any(line in failure.message for failure in failures), [f.message for f in failures]
    assert all("\n" not in failure.message for failure in failures)
    if suspect:
        assert {f.suspect for f in failures if line in f.message} == {suspect}
    assert rows["locks_unpack_basis"].verdict == "PASS", "the remaining stages still run"
    assert report.verdict == "FAIL"


def test_what_is_not_implemented_is_not_provided(library):
    merge = """KVPROOF_STAGE(merge_attention) {
        UNUSED; snprintf(message, (size_t)message_size, "no splits"); return KVPROOF_NOT_IMPLEMENTED;
    }"""
    report = verify(library(UNPACK + merge), ["merge_attention", "locks_unpack_basis"], "quick")
    assert [row.verdict for row in report.stages] == ["NOT_PROVIDED", "PASS"]
    assert report.verdict == "PASS"
    assert "no splits" in report.stages[0].notes[0]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (
            "KVPROOF_EXPORT int kvproof_locks_unpack_bases(void); int kvproof_locks_unpack_bases(void) { return 0; }",
            ["locks_unpack_bases is no stage; did you mean locks_unpack_basis?", "no stage could be judged"],
        ),
        ("int attention(void); int attention(void) { return 0; }", ["attention must be named kvproof_attention"]),
        ("int nothing(void); int nothing(void) { return 0; }", ["expected functions such as kvproof_attention"]),
    ],
)
def test_a_library_without_any_stage_is_an_error_that_suggests_names(text, lines, library):
    report = verify(library(text), profile="quick")
    assert report.verdict == "ERROR"
    assert report.exit_code == 3
    for line in lines:
        assert line in " ".join(report.notes)


def test_hidden_stages_are_pointed_out(library):
    text = 'const char* names(void); const char* names(void) { return "kvproof_attention"; }'
    report = verify(library(text), profile="quick")
    assert "kvproof_attention is in the file but hidden" in report.notes[0]


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
def test_a_cpp_name_is_pointed_out(tmp_path):
    (tmp_path / "port.cpp").write_text("int kvproof_attention(int x) { return x; }\n")
    report = verify(compiled(tmp_path / "port.cpp", tmp_path / "libcpp.so", compiler=CXX), profile="quick")
    assert report.verdict == "ERROR"
    assert 'declare it extern "C"' in report.notes[0]


def spoil(content, how):
    if how == "another machine":
        other = 183 if int.from_bytes(content[18:20], "little") != 183 else 62  # AArch64, or x86-64 on one
        return content[:18] + other.to_bytes(2, "little") + content[20:]
    return {"garbage": b"not a library" * 99, "empty": b"", "truncated": content[:200]}[how]


@pytest.mark.parametrize(
    ("how", "line"),
    [
        ("garbage", "no shared library that this machine can load: "),
        ("empty", "no shared library that this machine can load: "),
        ("truncated", "no shared library that this machine can load: "),
        ("another machine", "built for another machine: "),
        ("missing", "No such file or directory"),
    ],
)
def test_what_cannot_be_loaded_is_exit_3_with_one_line(how, line, library, tmp_path, capsys):
    path = Path(library(UNPACK))
    if how == "missing":
        path.unlink()
    else:
        content = path.read_bytes()
        path.unlink()  # a loaded library's file is not written into
        path.write_bytes(spoil(content, how))
    assert main(["verify", str(path), "--profile", "quick"]) == 3
    capsys.readouterr()
    report = verify(str(path), profile="quick")
    assert len(report.notes) == 1
    assert report.notes[0].startswith(f"cannot import {path}: {line}")
    assert "\n" not in report.notes[0]


def test_a_library_that_crashes_while_it_is_loaded_is_exit_3(library):
    start = "__attribute__((constructor)) static void start(void) { abort(); }"
    report = verify(library(UNPACK + start), profile="quick")
    assert report.exit_code == 3
    assert "killed by SIGABRT while importing the port" in report.notes[0]


@pytest.mark.parametrize(
    ("constants", "line"),
    [
        ("no json", "kvproof_declare: expected a JSON object, got b'no json'"),
        ("[1]", "kvproof_declare: expected a JSON object, got b'[1]'"),
        ("{'DTYPE': 1}", "kvproof_declare: no constant 'DTYPE'; expected some of FRAMEWORK"),
        ("{'DTYPES': ['int8']}", "DTYPES: expected one of"),
        ("{'OPTIONAL': 'softmax_scale'}", "OPTIONAL: expected a list of names"),
        ("{'TIES': 'random'}", "TIES: expected"),
    ],
)
def test_a_wrong_declaration_is_an_error_with_one_line(constants, line, library):
    text = constants.replace("'", '\\"')
    declare = f'KVPROOF_EXPORT const char* kvproof_declare(void) {{ return "{text}"; }}'
    report = verify(library(UNPACK + declare), ["locks_unpack_basis"], "quick")
    assert report.exit_code == 3
    assert len(report.notes) == 1
    assert line in report.notes[0]


def test_optional_keywords_are_passed_only_where_declared(library):
    nothing = "KVPROOF_STAGE(attention) { UNUSED; return KVPROOF_NOT_IMPLEMENTED; }"
    report = verify(library(UNPACK + nothing), ["attention", "locks_unpack_basis"], "quick")
    assert any("takes no softmax_scale" in note for note in report.stages[0].notes)
    declare = 'KVPROOF_EXPORT const char* kvproof_declare(void) { return "{\\"OPTIONAL\\": [\\"softmax_scale\\"]}"; }'
    report = verify(library(UNPACK + nothing + declare), ["attention", "locks_unpack_basis"], "quick")
    assert not any("takes no softmax_scale" in note for note in report.stages[0].notes)


def test_a_compiled_python_module_is_no_shared_library_port(tmp_path):
    (tmp_path / "port.so").write_bytes(b"\x7fELF ... PyInit_port ...")
    assert not shared_library.is_shared_library(str(tmp_path / "port.so"))
