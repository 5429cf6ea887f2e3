"""Ports whose answers were not computed for this call are caught, whatever the harness left in memory (class K)."""

import os

import pytest

from proofs_checks.judge.verify import verify

RIGHT = """
import numpy as np

def compute(outputs, lses):
    top = lses.max(axis=0)
    safe = np.where(np.isneginf(top), np.float32(0), top)
    weights = np.exp(lses - safe)
    total = weights.sum(axis=0)
    output = (weights[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, np.float32(1))[..., None]
    with np.errstate(divide="ignore"):
        return output, np.log(total) + safe
"""

PORTS = {
    "writes nothing": """
def merge_attention(*, outputs, lses):
    return {"output": np.empty(outputs.shape[1:], np.float32), "lse": np.empty(lses.shape[1:], np.float32)}
""",
    "returns zeros": """
def merge_attention(*, outputs, lses):
    return {"output": np.zeros(outputs.shape[1:], np.float32), "lse": np.zeros(lses.shape[1:], np.float32)}
""",
    "replays by address": """
seen = {}

def merge_attention(*, outputs, lses):
    key = (outputs.__array_interface__["data"][0], outputs.shape)
    if key not in seen:
        seen[key] = (compute(outputs, lses), outputs)  # keeps the buffer, so that its address stays its own
    output, lse = seen[key][0]
    return {"output": output.copy(), "lse": lse.copy()}
""",
    "skips the last channel of what it is given to fill": """
def merge_attention(*, outputs, lses, out=None):
    output, lse = compute(outputs, lses)
    out["output"][..., :-1] = output[..., :-1]
    out["lse"][...] = lse
""",
    "adds to what it is given to fill": """
def merge_attention(*, outputs, lses, out=None):
    output, lse = compute(outputs, lses)
    out["output"] += output
    out["lse"][...] = lse
""",
    "reads its input as contiguous": """
def merge_attention(*, outputs, lses):
    base = outputs if outputs.base is None else outputs.base
    flat = base.ravel()[: outputs.size].reshape(outputs.shape)
    output, lse = compute(flat, lses)
    return {"output": output, "lse": lse}
""",
}


@pytest.mark.parametrize("what", PORTS)
def test_a_stale_or_unwritten_answer_fails(what, tmp_path):
    path = tmp_path / "stale.py"
    path.write_text(RIGHT + PORTS[what])
    report = verify(str(path), ["merge_attention"])
    assert report.stages[0].verdict == "FAIL", report.stages[0]


def test_the_replaying_port_is_named_as_such(tmp_path):
    path = tmp_path / "stale.py"
    path.write_text(RIGHT + PORTS["replays by address"])
    report = verify(str(path), ["merge_attention"])
    assert [f.suspect for f in report.stages[0].failures] == ["K"]
    assert report.stages[0].failures[0].case == "merge_attention/reused-buffers"


def test_a_port_that_fills_out_rightly_passes(tmp_path):
    path = tmp_path / "filling.py"
    path.write_text(
        RIGHT
        + """
def merge_attention(*, outputs, lses, out=None):
    out["output"][...], out["lse"][...] = compute(outputs, lses)
"""
    )
    assert verify(str(path), ["merge_attention"]).verdict == "PASS"


def test_a_port_edited_within_a_second_is_judged_as_it_is_now(tmp_path):
    port, body = tmp_path / "edited_port.py", "def locks_pack_basis(*, basis_codes):\n    return {}\n"
    right = "from refimpl import port\n\n\n" + body.format("port.locks_pack_basis(basis_codes=basis_codes) + 0")
    for text, verdict in ((right, "PASS"), (right.replace("+ 0", "+ 1"), "FAIL")):
        port.write_text(text)
        os.utime(port, (1_000_000_000, 1_000_000_000))
        assert verify(str(port), ["locks_pack_basis"], "quick").verdict == verdict
