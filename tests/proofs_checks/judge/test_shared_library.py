"""Shared libraries as ports: what crosses the C ABI, and libraries that misbehave or are none."""

import ctypes
from pathlib import Path

import numpy as np
import pytest
from compiled import CC, CXX
from compiled import shared_library as compiled

from proofs_checks.cli import main
from proofs_checks.judge import delivery, dlpack, shared_library
from proofs_checks.judge.verify import verify

HEADER = Path(__file__).parents[3] / "examples" / "ports" / "c"

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")

BEFORE = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "kvproof_port.h"

static inline const DLTensor* given(const kvproof_argument* arguments, int i) { return arguments[i].value.tensor; }
static inline char* first(const DLTensor* t) { return (char*)t->data + t->byte_offset; }
static inline void use(const void* a, int b, const void* c, int d, const void* e, int f) {
    (void)a, (void)b, (void)c, (void)d, (void)e, (void)f;
}
#define UNUSED use(arguments, argument_count, results, result_count, message, message_size)
"""

UNPACK = """
KVPROOF_STAGE(locks_unpack_basis) {
    UNUSED;
    const DLTensor *from = given(arguments, 0), *to = results[0].tensor;
    const int64_t *n = from->shape, *s = from->strides, *t = to->strides;
    for (int64_t h = 0; h < n[0]; ++h)
        for (int64_t p = 0; p < n[1]; ++p)
            for (int64_t r = 0; r < n[2]; ++r)
                for (int64_t i = 0; i < 2 * n[3]; ++i) {
                    int both = *(uint8_t*)(first(from) + h * s[0] + p * s[1] + r * s[2] + i / 2 * s[3]);
                    int nibble = i % 2 ? both >> 4 : both & 15;
                    first(to)[h * t[0] + p * t[1] + i * t[2] + r * t[3]] = (char)((nibble ^ 8) - 8);
                }
    return KVPROOF_OK;
}
"""


@pytest.fixture
def library(tmp_path):
    def build(text, *flags):
        source = tmp_path / "library.c"
        source.write_text(BEFORE + text)
        return compiled(source, tmp_path / "liblibrary.so", "-std=c11", f"-I{HEADER}", *flags)

    return build


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


ECHO = """
/* lse: the shape, strides, offset and dtype of queries, then what else came; output: untouched but for its strides */
KVPROOF_STAGE(attention) {
    UNUSED;
    float* says = (float*)first(results[1].tensor);
    const DLTensor* queries = given(arguments, 0);
    for (int axis = 0; axis < 3; ++axis) *says++ = (float)queries->shape[axis];
    for (int axis = 0; axis < 3; ++axis) *says++ = (float)queries->strides[axis];
    *says++ = (float)queries->byte_offset;
    *says++ = queries->dtype.code;
    *says++ = queries->dtype.bits;
    *says++ = queries->dtype.lanes;
    *says++ = (float)queries->ndim;
    *says++ = (float)queries->device.device_type;
    *says++ = (float)((uintptr_t)queries->data % 256);
    *says++ = (float)argument_count;
    const kvproof_argument* last = &arguments[argument_count - 1];
    *says++ = (float)last->kind;
    *says++ = last->kind == KVPROOF_REAL ? (float)last->value.real : last->kind == KVPROOF_INTEGER
        ? (float)last->value.integer : last->kind == KVPROOF_STRING ? (float)strlen(last->value.string) : -1.0f;
    return KVPROOF_OK;
}
"""


class Bits:
    """Gives arrays as the worker does to a compiled port."""

    give = staticmethod(dlpack.fresh)


def echoed(port, queries, **more):
    out = {"output": np.zeros(2, np.float32), "lse": np.zeros(16, np.float32)}
    port.attention(queries=queries, **more, out=out)
    return out["lse"].astype(int).tolist()


@pytest.mark.parametrize(("dtype", "code", "bits"), [("float32", 2, 32), ("bfloat16", 4, 16)])
def test_a_view_arrives_with_its_true_strides_offset_and_dtype(dtype, code, bits, library):
    port = shared_library.load(library(ECHO))
    plain = {"queries": np.ones((3, 5, 8), np.float32)}
    said = echoed(port, delivery.plain(Bits, plain, {"queries": dtype})["queries"])
    assert said == [3, 5, 8, 40, 8, 1, 0, code, bits, 1, 3, 1, 0, 1, 1, -1]
    # by hand: storage [5 + 2, 2 x 3 + 2, 8], view [1:-1, 1:-1:2] with its axes swapped; first element at [1, 1, 0]
    said = echoed(port, delivery.strided(Bits, plain, {"queries": dtype})["queries"])
    assert said == [3, 5, 8, 16, 64, 1, (64 + 8) * bits // 8, code, bits, 1, 3, 1, 0, 1, 1, -1]


@pytest.mark.parametrize(
    ("value", "kind", "seen"), [(None, 0, -1), (3, 2, 3), (True, 2, 1), (2.0, 3, 2), ("fünf", 4, 5)]
)
def test_scalars_strings_and_none_arrive_with_their_kind(value, kind, seen, library):
    port = shared_library.load(library(ECHO))
    assert echoed(port, np.ones((1, 1, 8), np.float32), last=value)[-3:] == [2, kind, seen]


def test_the_structures_are_laid_out_as_in_the_header(tmp_path, library):
    sizes = "KVPROOF_STAGE(attention) { UNUSED; return (int)(sizeof(DLTensor) * 10000 + sizeof(kvproof_argument) * 100"
    port = shared_library.load(library(sizes + " + sizeof(kvproof_result)); }"))
    ours = ctypes.sizeof(dlpack.Tensor), ctypes.sizeof(shared_library.Argument), ctypes.sizeof(shared_library.Result)
    with pytest.raises(shared_library.LibraryError, match=f"returned {ours[0] * 10000 + ours[1] * 100 + ours[2]}:"):
        port.attention(out={})


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
