"""Ports that misbehave: one verdict with one clear line each, and the remaining stages still run."""

from pathlib import Path

import pytest

from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import verify

RIGHT_STAGE = """
import numpy as np

def locks_unpack_basis(*, basis_bytes):
    nibbles = np.stack([basis_bytes & 15, basis_bytes >> 4], axis=-1).reshape(*basis_bytes.shape[:-1], -1)
    return np.swapaxes((nibbles.astype(np.int8) ^ 8) - 8, -1, -2)
"""

MERGE = "def merge_attention(*, outputs, lses):\n    "

# what the port's merge_attention does, the verdict, and what the line must say
MISBEHAVIOUR = {
    "hangs": ("import time; time.sleep(60)", "TIMEOUT", "no answer within 1.5 s"),
    "calls sys.exit": ("raise SystemExit(4)", "ERROR", "sys.exit(4)"),
    "exits at once": ("import os; os._exit(0)", "ERROR", "exited with status 0"),
    "crashes": ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ERROR", "SIGSEGV"),
    "prints megabytes": ("print('x' * 3_000_000)", "ERROR", "printed more than 1 MiB"),
    "closes its descriptors": ("import os; os.closerange(0, 256)", "ERROR", "while running merge_attention"),
    "raises": ("raise RuntimeError('no kernel image')", "ERROR", "RuntimeError: no kernel image (line"),
    "recurses": ("return merge_attention(outputs=outputs, lses=lses)", "ERROR", "RecursionError"),
    "returns nothing": ("return None", "FAIL", "expected a dict of output, lse, got NoneType"),
    "returns one array": ("return outputs[0]", "FAIL", "expected a dict of output, lse, got ndarray"),
    "forgets a result": ("return {'output': outputs[0] * 1}", "FAIL", "lse missing"),
    "returns a generator": ("return {'output': (x for x in outputs), 'lse': lses[0] * 1}", "FAIL", "got generator"),
    "returns objects": ("return {'output': [object()], 'lse': lses[0] * 1}", "FAIL", "got dtype object"),
    "returns ragged lists": (
        "return {'output': [[1.0], [2.0, 3.0]], 'lse': lses[0] * 1}",
        "FAIL",
        "output: expected an array, got lists of different lengths",
    ),
    "returns integers": ("return {'output': outputs[0].astype(int), 'lse': lses[0] * 1}", "FAIL", "got int64"),
    "returns a wrong shape": ("return {'output': outputs * 1, 'lse': lses[0] * 1}", "FAIL", "expected shape"),
    "returns NaN": ("return {'output': outputs[0] * np.nan, 'lse': lses[0] * 1}", "FAIL", "not finite"),
    "returns infinity": ("return {'output': outputs[0] * 0 + np.inf, 'lse': lses[0] * 1}", "FAIL", "is inf"),
    "returns a view of an input": ("return {'output': outputs[0], 'lse': lses[0] * 1}", "FAIL", "shares memory"),
    "changes its input": (
        "lses += 1; return {'output': outputs[0] * 1, 'lse': lses[0] * 1}",
        "FAIL",
        "changed its input",
    ),
}


def port(tmp_path, text):
    path = tmp_path / "hostile.py"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize("what", MISBEHAVIOUR)
def test_a_misbehaving_stage_costs_one_verdict(what, tmp_path):
    body, expected, line = MISBEHAVIOUR[what]
    report = verify(port(tmp_path, RIGHT_STAGE + MERGE + body + "\n"), profile="quick", stage_timeout=1.5)
    rows = {row.stage: row for row in report.stages}
    assert rows["merge_attention"].verdict == expected
    assert any(line in failure.message for failure in rows["merge_attention"].failures), rows[
        "merge_attention"
    ].failures
    assert all("\n" not in failure.message for failure in rows["merge_attention"].failures)
    assert rows["locks_unpack_basis"].verdict == "PASS", "the remaining stages still run"
    assert report.verdict == "FAIL"
    assert report.first_failing_stage == "merge_attention"


RIGHT_PORT = f"""import sys
sys.path.insert(0, {str(Path(__file__).resolve().parents[3] / "examples" / "ports")!r})
import numpy_port as right
"""


@pytest.mark.parametrize(("answer", "told"), [("state", True), ("{**state, 'lse': state['lse'] / 0.6931472}", False)])
def test_a_declaration_that_promises_too_much_is_told_from_a_mistake(answer, told, tmp_path):
    text = f"""{RIGHT_PORT}
ACCUMULATE = "float64"
def merge_attention(**inputs):
    state = right.merge_attention(**inputs)
    return {answer}
"""
    (row,) = verify(port(tmp_path, text), ["merge_attention"], "quick").stages
    assert row.verdict == "FAIL"
    assert any("pass under 'float32'" in note for note in row.notes) == told


def test_lists_of_numbers_are_arrays_and_no_numbers_too(tmp_path):
    text = f"""{RIGHT_PORT}
def readkv_choose_depths(**inputs):
    return [int(depth) for depth in right.readkv_choose_depths(**inputs)]
"""
    report = verify(port(tmp_path, text), ["readkv_choose_depths"], "quick")
    assert report.verdict == "PASS", report.stages[0].failures


@pytest.mark.parametrize("what", ["returns a view of an input", "changes its input"])
def test_an_answer_that_was_not_computed_is_class_k(what, tmp_path):
    body, _, line = MISBEHAVIOUR[what]
    report = verify(port(tmp_path, "import numpy as np\n" + MERGE + body + "\n"), ["merge_attention"], "quick")
    suspects = {f.suspect for f in report.stages[0].failures if line in f.message}
    assert suspects == {"K"}


def test_a_wrong_signature_is_an_error_that_shows_both(tmp_path):
    report = verify(port(tmp_path, "def attention(q, k, v):\n    return q\n"), ["attention"], "quick")
    row = report.stages[0]
    assert row.verdict == "ERROR"
    assert "called as attention(*, queries, keys, values)" in row.failures[0].message
    assert "the port has (q, k, v)" in row.failures[0].message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("import no_such_module_here\n", "No module named 'no_such_module_here'"),
        ("def attention(:\n", "SyntaxError"),
        ("raise SystemExit(0)\n", "sys.exit(0)"),
        ("import os\nos._exit(7)\n", "exited with status 7"),
        ("DTYPES = ('fp8',)\ndef attention(): pass\n", "DTYPES: expected one of"),
        ("TIES = 'random'\ndef attention(): pass\n", "TIES: expected"),
        ("DIALECT = 'mine'\ndef attention(): pass\n", "DIALECT: expected"),
        ("ACCUMULATE = 'int8'\ndef attention(): pass\n", "ACCUMULATE: expected"),
        ("FRAMEWORK = 'caffe'\ndef attention(): pass\n", "FRAMEWORK: expected"),
    ],
)
def test_a_port_that_cannot_be_used_is_an_error_with_one_line(text, line, tmp_path):
    report = verify(port(tmp_path, text), profile="quick")
    assert report.verdict == "ERROR"
    assert report.exit_code == 3
    assert report.first_failing_stage is None
    assert len(report.notes) == 1
    assert line in report.notes[0]
    assert "\n" not in report.notes[0]


def test_only_misspelt_names_are_an_error_that_suggests_the_right_ones(tmp_path):
    report = verify(port(tmp_path, "def locks_score_page(*, queries): pass\ndef lock_decode(**k): pass\n"))
    assert report.verdict == "ERROR"
    text = " ".join(report.notes)
    assert "did you mean locks_score_pages?" in text
    assert "did you mean locks_decode?" in text
    assert "no stage could be judged" in text


def test_not_implemented_parameters_are_not_failures(tmp_path):
    text = RIGHT_STAGE + MERGE + "raise NotImplementedError('no splits')\n"
    report = verify(port(tmp_path, text), ["merge_attention", "locks_unpack_basis"], "quick")
    assert [row.verdict for row in report.stages] == ["NOT_PROVIDED", "PASS"]
    assert report.verdict == "PASS"
    assert "no splits" in report.stages[0].notes[0]


def test_a_port_without_a_stage_in_the_chosen_ones_is_an_error(tmp_path):
    report = verify(port(tmp_path, RIGHT_STAGE), ["attention"], "quick")
    assert report.verdict == "ERROR"


def test_an_optional_keyword_that_the_port_lacks_is_not_a_failure(tmp_path):
    text = """
import numpy as np

def locks_page_shares(*, scores):
    top = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - np.where(np.isneginf(top), 0, top))
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0).mean(axis=1)
"""
    report = verify(port(tmp_path, text), ["locks_page_shares"], "quick")
    assert report.verdict == "PASS"
    assert any("takes no combine" in note for note in report.stages[0].notes)


def test_constants_may_be_framework_objects(tmp_path):
    text = "import numpy as np\nDTYPES = (np.float32, 'float16')\nACCUMULATE = np.float32\n" + RIGHT_STAGE
    report = verify(port(tmp_path, text), ["locks_unpack_basis"], "quick")
    assert report.verdict == "PASS"
    quick = [case for case in cases_of("locks_unpack_basis") if case.profile == "quick"]
    assert report.stages[0].cases == 2 * len(quick)
