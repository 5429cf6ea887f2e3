"""Whether a failing stage would keep a more modest promise: float32 arithmetic under a port that declares float64."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from proofs_checks.judge.ask import asker
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.outcome import Outcome
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session
from proofs_checks.judge.stage import Stage

NOTE = (
    "ACCUMULATE = 'float64' promises more than {stage} keeps: the failing cases pass under 'float32'; "
    "declare what the arithmetic is done in"
)


def promised(session: Session, stage: Stage, outcomes: Sequence[Outcome]) -> list[str]:
    """The line for the report where all failing cases of one call, asked again, pass under float32; else none."""
    failed = [o for o in outcomes if o.case.plain and o.verdict == "FAIL"]
    if session.declared.accumulate != "float64" or not failed:
        return []
    try:
        kept = all(_passes(session, stage, outcome) for outcome in failed)
    except PortStopped:
        return []
    return [NOTE.format(stage=stage.name)] if kept else []


def _passes(session: Session, stage: Stage, outcome: Outcome) -> bool:
    """Whether the port's answer to a failing case is right in float32 arithmetic."""
    prepared = prepare(outcome.case, outcome.dtype, stage=stage)
    reply = session.call(prepared, outcome.dtype)
    if reply["status"] != "ok":
        return False
    precision = replace(session.declared.precision(outcome.dtype), accumulate="float32")
    return not judge(prepared, reply["results"], precision, session.declared.lowest_index, asker(session)).faults
