"""Trials: cases that make several calls of a port and judge the answers together, without a reference of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Inputs
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.judging import Prepared, judge, prepare
from proofs_checks.judge.outcome import Outcome
from proofs_checks.judge.session import Session
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import Precision


class Unanswered(Exception):  # noqa: N818  (an outcome of asking, not a fault of ours)
    """A call of a trial that brought no results; ``verdict`` is the case's."""

    def __init__(self, verdict: str, message: str, suspect: str | None = None) -> None:
        super().__init__(message)
        self.verdict, self.suspect = verdict, suspect


VERDICTS = {"not_provided": "NOT_PROVIDED", "error": "ERROR", "wrong": "FAIL"}


@dataclass
class PortCalls:
    """A port under one trial at one input dtype."""

    session: Session
    case: Case
    dtype: str

    @property
    def precision(self) -> Precision:
        """What the port declares for this dtype."""
        return self.session.declared.precision(self.dtype)

    @property
    def reproducible(self) -> bool:
        """Whether the port declares the same bits over runs and batch sizes."""
        return self.session.declared.reproducible

    def provides(self, stage: str) -> bool:
        """Whether the port has the stage."""
        return stage in self.session.declared.functions

    def carried(self, inputs: Inputs) -> Inputs:
        """The inputs of the trial's own stage as the port receives them."""
        return STAGES[self.case.stage].round_inputs(inputs, self.dtype)

    def ask(self, inputs: Inputs, stage: str | None = None) -> dict[str, Any]:
        """The port's results. Raises Unanswered where there are none of the right names."""
        row = STAGES[stage or self.case.stage]
        shapes = row.shapes(inputs) if hasattr(row, "shapes") else {}
        call = Prepared(replace(self.case, stage=row.name), row, inputs, {}, shapes)
        reply: Mapping[str, Any] = self.session.call(call, self.dtype)
        if reply["status"] != "ok":
            raise Unanswered(VERDICTS[reply["status"]], str(reply["message"]), reply.get("suspect"))
        return dict(reply["results"])

    def judge(self, inputs: Inputs, answer: Mapping[str, Any]) -> Judgement:
        """The judgement of one answer by the stage's own check."""
        plain = replace(self.case, kind="bounded", trial=None)
        return judge(prepare(plain, self.dtype, inputs), answer, self.precision, self.session.declared.lowest_index)


def run_trial(session: Session, case: Case, dtype: str) -> Outcome:
    """Run one trial. Raises PortStopped where the process ended."""
    if case.trial is None:
        raise ValueError(f"{case.id}: no trial")
    calls = PortCalls(session, case, dtype)
    try:
        judgement = case.trial(calls, calls.carried(case.inputs()))
    except Unanswered as missing:
        return Outcome(case, dtype, missing.verdict, Judgement(), str(missing), missing.suspect)
    if judgement.faults:
        return Outcome(case, dtype, "FAIL", judgement, suspect=judgement.faults[0].suspect)
    return Outcome(case, dtype, "REFUSED" if judgement.refused else "PASS", judgement, judgement.refused or "")


def same_bits(left: Any, right: Any) -> bool:
    """Whether two results are equal bit for bit, lists of arrays part by part.

    >>> same_bits(np.zeros(2), np.zeros(2)), same_bits(np.zeros(2), -np.zeros(2))
    (True, False)
    """
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same_bits(a, b) for a, b in zip(left, right, strict=True))
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
