"""A port that fills memory, answers with more than anybody can hold, or forges its answers costs one verdict."""

import os

import pytest

from proofs_checks.judge import runner
from proofs_checks.judge.memory import held
from proofs_checks.judge.verify import verify

RIGHT_STAGE = """
import numpy as np

seen = {}

def locks_unpack_basis(*, basis_bytes):
    nibbles = np.stack([basis_bytes & 15, basis_bytes >> 4], axis=-1).reshape(*basis_bytes.shape[:-1], -1)
    return np.swapaxes((nibbles.astype(np.int8) ^ 8) - 8, -1, -2)

def merge_attention(*, outputs, lses):
"""
WAIT = "; time.sleep(30)"
FILL = "np.full(1 << 26, 1.0)"  # 512 MiB, each page written

pytestmark = pytest.mark.skipif(held(os.getpid()) is None, reason="no /proc: memory is not watched here")


def rows(tmp_path, body, limit):
    port = tmp_path / "greedy.py"
    port.write_text(RIGHT_STAGE + f"    {body}\n")
    stages = ["merge_attention", "locks_unpack_basis"]
    report = verify(str(port), stages, "quick", stage_timeout=20.0, memory_limit=limit)
    return {row.stage: row for row in report.stages}


@pytest.mark.parametrize(
    "body",
    [
        f"import time; hoard = {FILL}{WAIT}",
        f"import os, time; hoard = {FILL} if os.fork() == 0 else None{WAIT}",
    ],
    ids=["itself", "a child of it"],
)
def test_a_port_above_its_limit_is_ended(body, tmp_path):
    found = rows(tmp_path, body, 300)
    assert found["merge_attention"].verdict == "ERROR"
    assert (
        "used more than 300 MiB of memory while running merge_attention/"
        in found["merge_attention"].failures[0].message
    )
    assert found["locks_unpack_basis"].verdict == "PASS", "the remaining stages still run"


def test_the_same_port_below_its_limit_is_not_ended(tmp_path):
    body = f"hoard = seen.get(0) or seen.setdefault(0, [{FILL}]); raise NotImplementedError(hoard[0].nbytes >> 20)"
    found = rows(tmp_path, body, 1500)
    assert found["merge_attention"].verdict == "NOT_PROVIDED"
    assert "512" in found["merge_attention"].notes[0]


def test_an_answer_that_nobody_can_hold_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "REPLY_LIMIT", 1 << 20)
    found = rows(tmp_path, "return {'output': np.ones(1 << 20), 'lse': lses[0] * 1}", 1500)
    assert found["merge_attention"].verdict == "ERROR"
    assert "answered with more than 1 MiB" in found["merge_attention"].failures[0].message


def test_a_port_that_writes_into_its_connection_costs_one_verdict(tmp_path):
    body = "import os, sys; os.write(int(sys.argv[3]), b'\\x04' + b'\\0' * 15 + b'[1]]' * 99); return None"
    found = rows(tmp_path, body, 1500)
    assert found["merge_attention"].verdict == "ERROR"
    assert "wrote into its connection" in found["merge_attention"].failures[0].message
    assert found["locks_unpack_basis"].verdict == "PASS"


@pytest.mark.parametrize(
    "reply", ['{"status": "ok"}', '{"status": "fine"}', '{"status": "wrong"}', '{"status": "ok", "lists": 3}']
)
def test_a_port_that_forges_a_reply_costs_one_verdict(reply, tmp_path):
    forged = (
        "import os, sys; from proofs_checks.judge.wire import encode; import json; "
        f"os.write(int(sys.argv[3]), encode(json.loads({reply!r}), {{}}))"
    )
    found = rows(tmp_path, forged, 1500)
    assert found["merge_attention"].verdict == "ERROR"
    assert "a reply of its own making" in found["merge_attention"].failures[0].message
    assert found["locks_unpack_basis"].verdict == "PASS"


def test_memory_of_this_process_is_seen_to_grow():
    before = held(os.getpid())
    hoard = bytearray(os.urandom(1 << 20) * 64)
    assert held(os.getpid()) >= before + 50
    assert len(hoard) == 64 << 20
