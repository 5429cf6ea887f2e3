"""Trials: cases that make several calls of a port and judge the answers together, without a reference of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proofs_checks.judge.ask import asker
from proofs_checks.judge.case import Case, Inputs
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.judging import Prepared, form_fault, judge, prepare
from proofs_checks.judge.outcome import Outcome
from proofs_checks.judge.session import Session
from proofs_checks.judge.stages import Stage
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

    @property
    def stage(self) -> Stage:
        """The row of the trial's own stage in the port's dialect."""
        return self.session.declared.rules.stage(self.case.stage)

    def ask(self, inputs: Inputs, shapes: Mapping[str, tuple[int, ...]], stage: str | None = None) -> dict[str, Any]:
        """The port's results. Raises Unanswered where there are none, or their form is wrong."""
        row = self.session.declared.rules.stage(stage or self.case.stage)
        blank = {name: np.broadcast_to(0.0, shape) for name, shape in shapes.items()}
        answer = self._results(Prepared(replace(self.case, stage=row.name), row, inputs, {}, blank))
        fault = form_fault(row, answer, blank)
        if fault is not None:
            raise Unanswered("FAIL", fault.message)
        return answer

    def judged(self, inputs: Inputs, calls: int = 1) -> list[tuple[dict[str, Any], Judgement]]:
        """The port's results, call by call, and what the stage's own check says of each."""
        prepared = prepare(replace(self.case, kind="bounded", trial=None), self.dtype, inputs, self.stage)
        lowest, ask = self.session.declared.lowest_index, asker(self.session)
        answers = [self._results(prepared) for _ in range(calls)]
        return [(answer, judge(prepared, answer, self.precision, lowest, ask)) for answer in answers]

    def _results(self, prepared: Prepared) -> dict[str, Any]:
        reply: Mapping[str, Any] = self.session.call(prepared, self.dtype)
        if reply["status"] != "ok":
            raise Unanswered(VERDICTS[reply["status"]], str(reply["message"]), reply.get("suspect"))
        return dict(reply["results"])


def run_trial(session: Session, case: Case, dtype: str) -> Outcome:
    """Run one trial. Raises PortStopped where the process ended."""
    if case.trial is None:
        raise ValueError(f"{case.id}: no trial")
    calls = PortCalls(session, case, dtype)
    try:
        judgement = case.trial(calls, calls.stage.round_inputs(case.inputs(), dtype))
    except Unanswered as missing:
        return Outcome(case, dtype, missing.verdict, Judgement(), str(missing), missing.suspect)
    if judgement.faults:
        return Outcome(case, dtype, "FAIL", judgement, suspect=judgement.faults[0].suspect)
    return Outcome(case, dtype, "REFUSED" if judgement.refused else "PASS", judgement, judgement.refused or "")
