"""Judge a port: every stage it has on every case of the profile, each call in the port's own process."""

from __future__ import annotations

import difflib
import shlex
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.judgement import Departure, Fault, Judgement
from proofs_checks.judge.judging import Prepared, judge, judge_relation, prepare
from proofs_checks.judge.report import BAD, Failure, Report, StageReport
from proofs_checks.judge.runner import PortProcess, PortStopped
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.judge.suite import cases_of
from proofs_checks.numbers import FORMATS, Precision

Progress = Callable[[StageReport], None]


class PortError(Exception):
    """The port cannot be used at all (exit code 3)."""


@dataclass(frozen=True)
class Declared:
    """What a port says of itself."""

    dtypes: tuple[str, ...]
    accumulate: str
    output: str | None
    lowest_index: bool
    dialect: str
    functions: tuple[str, ...]

    @classmethod
    def read(cls, reply: dict[str, Any]) -> Declared:
        """Check the constants of a loaded port. Raises PortError that names a bad one."""
        constants = reply["constants"]
        known = tuple(FORMATS)
        for name in ("DTYPES", "ACCUMULATE", "OUTPUT"):
            values = constants[name] if isinstance(constants[name], list) else [constants[name]]
            for value in values:
                if value not in known and not (name == "OUTPUT" and value is None):
                    raise PortError(f"{name}: expected one of {', '.join(known)}, got {value!r}")
        if constants["FRAMEWORK"] not in ("numpy", "torch"):
            raise PortError(f"FRAMEWORK: expected 'numpy' or 'torch', got {constants['FRAMEWORK']!r}")
        if constants["TIES"] not in ("any", "lowest_index"):
            raise PortError(f"TIES: expected 'any' or 'lowest_index', got {constants['TIES']!r}")
        if constants["DIALECT"] != "paper":
            raise PortError(f"DIALECT: expected 'paper', got {constants['DIALECT']!r}; no other dialect is judged yet")
        return cls(
            tuple(constants["DTYPES"]),
            constants["ACCUMULATE"],
            constants["OUTPUT"],
            constants["TIES"] == "lowest_index",
            constants["DIALECT"],
            tuple(reply["functions"]),
        )

    def precision(self, dtype: str) -> Precision:
        """The precision of calls with inputs of ``dtype``."""
        return Precision(dtype, self.accumulate, self.output or dtype)


@dataclass
class Session:
    """One port being judged."""

    spec: str
    process: PortProcess
    declared: Declared
    timeout: float

    def call(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """One call; the reply's header with the results under "results". Restarts a process that has ended."""
        if not self.process.alive:
            self.process.load()
        stage, sent = prepared.stage, prepared.sent
        arrays = {k: v for k, v in sent.items() if hasattr(v, "dtype")}
        header = {
            "op": "call",
            "stage": stage.name,
            "plain": {k: v for k, v in sent.items() if k not in arrays},
            "dtypes": {k: dtype for k in arrays if stage.arguments.get(k) == "input"},
            "optional": list(stage.optional),
            "results": list(stage.results),
            "delivery": prepared.case.delivery,
            "out": self._out(prepared, dtype),
            "poison": len(prepared.case.name),  # any number that differs from case to case
        }
        reply, results = self.process.ask(header, arrays, self.timeout, f"running {prepared.case.id}")
        for name, count in reply.get("lists", {}).items():
            results[name] = [results.pop(f"{name}_{i}") for i in range(count)]
        return {**reply, "results": results}

    def _out(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """Shapes and dtypes of preallocated results."""
        types = {"output": self.declared.output or dtype, "float": self.declared.accumulate, "index": "int64"}
        roles = prepared.stage.results.items()
        return {n: [list(np.shape(prepared.reference[n])), types.get(role, role)] for n, role in roles}


def reproduction(case: Case, dtype: str, port: str) -> str:
    """The command that makes this one call again."""
    line = f"kvproof repro {case.id} --port {shlex.quote(port)}"
    return line if dtype == "float32" else f"{line} --dtype {dtype}"


@dataclass(frozen=True)
class Outcome:
    """What one case came to: a verdict of its own, and what there is to say."""

    case: Case
    dtype: str
    verdict: str
    judgement: Judgement
    message: str = ""
    suspect: str | None = None


def run_case(session: Session, case: Case, dtype: str) -> Outcome:
    """Run and judge one case at one dtype. Raises PortStopped where the process ended."""
    prepared = prepare(case, dtype)
    precision = session.declared.precision(dtype)
    replies = [session.call(prepared, dtype)]
    second = None
    if case.relation is not None and replies[0]["status"] == "ok":
        second = prepare(case, dtype, case.relation.change(prepared.carried))
        replies.append(session.call(second, dtype))
    for reply in replies:
        if reply["status"] == "not_provided":
            return Outcome(case, dtype, "NOT_PROVIDED", Judgement(), reply["message"])
        if reply["status"] == "error":
            return Outcome(case, dtype, "ERROR", Judgement(), reply["message"])
        if reply["status"] == "wrong":
            return Outcome(case, dtype, "FAIL", Judgement(), reply["message"], reply.get("suspect"))
    if second is None:
        judgement = judge(prepared, replies[0]["results"], precision, session.declared.lowest_index)
    else:
        judgement = judge_relation(prepared, replies[0]["results"], second, replies[1]["results"], precision)
    if judgement.faults:
        return Outcome(case, dtype, "FAIL", judgement)
    return Outcome(case, dtype, "REFUSED" if judgement.refused else "PASS", judgement, judgement.refused or "")


def judge_stage(session: Session, stage: Stage, cases: Iterable[Case]) -> tuple[StageReport, list[Departure]]:
    """Judge one stage on ``cases`` in every dtype the port declares."""
    start = time.monotonic()
    outcomes: list[Outcome] = []
    chosen = [(c, d) for c in cases for d in session.declared.dtypes if d in c.dtypes]
    for case, dtype in chosen:
        try:
            outcomes.append(run_case(session, case, dtype))
        except PortStopped as stopped:
            outcomes.append(Outcome(case, dtype, stopped.verdict, Judgement(), str(stopped)))
            break
    report = summarize(session.spec, stage.name, outcomes)
    report.seconds = time.monotonic() - start
    departures = [d for o in outcomes for d in o.judgement.departures] if report.verdict == "PASS" else []
    return report, list(dict.fromkeys(departures))


def summarize(port: str, stage: str, outcomes: Sequence[Outcome]) -> StageReport:
    """One stage's verdict from its cases: the worst of them; NOT_PROVIDED and REFUSED only where nothing was judged."""
    judged = [o for o in outcomes if o.verdict not in ("NOT_PROVIDED", "REFUSED")]
    verdicts = {o.verdict for o in judged}
    verdict = next((v for v in ("FAIL", "TIMEOUT", "ERROR") if v in verdicts), "PASS")
    if not judged:
        verdict = "REFUSED" if any(o.verdict == "REFUSED" for o in outcomes) else "NOT_PROVIDED"
    ratios = [o.judgement.worst_ratio for o in judged if o.judgement.worst_ratio is not None and _has_ratio(o)]
    report = StageReport(stage, verdict, max(ratios) if ratios else None, len(judged))
    diagnosis = diagnose(outcomes)
    for outcome in outcomes:
        if outcome.verdict in BAD:
            report.failures.append(_failure(port, outcome, diagnosis))
    notes = [f"{o.case.id}: {o.message}" for o in outcomes if o.verdict in ("NOT_PROVIDED", "REFUSED")]
    report.notes = [
        f"{o.verdict}: {n}"
        for o, n in zip((o for o in outcomes if o.verdict in ("NOT_PROVIDED", "REFUSED")), notes, strict=True)
    ]
    return report


def _has_ratio(outcome: Outcome) -> bool:
    return outcome.case.kind in ("bounded", "metamorphic") or STAGES[outcome.case.stage].bound is not None


def diagnose(outcomes: Sequence[Outcome]) -> str | None:
    """The class that the stage's failures point at: the first failing probe's, where some probe failed.

    Probes stand in the order in which they isolate: an earlier one is not upset by the faults that later ones look for.
    """
    failed = [o for o in outcomes if o.verdict in BAD]
    names = {o.case.name for o in failed}
    return next((o.suspect or o.case.suspect for o in failed if o.case.probe and o.case.base not in names), None)


def _failure(port: str, outcome: Outcome, diagnosis: str | None) -> Failure:
    case = outcome.case
    fault = outcome.judgement.faults[0] if outcome.judgement.faults else Fault("", None, outcome.message)
    suspect = outcome.suspect or diagnosis or case.suspect
    name = case.id if outcome.dtype == "float32" else f"{case.id}@{outcome.dtype}"
    return Failure(name, case.kind, fault.index, fault.message, suspect, reproduction(case, outcome.dtype, port))


def verify(
    port: str,
    stages: Sequence[str] | None = None,
    profile: str = "default",
    device: str | None = None,
    stage_timeout: float = 20.0,
    progress: Progress | None = None,
) -> Report:
    """Judge ``port`` (a module name or a path) and return the report. Never raises for what the port does.

    ``stages`` limits the stages; ``stage_timeout`` is seconds per call. A port that cannot be imported, or has none of
    the stages, gives verdict ERROR.
    """
    report = Report(port)
    with PortProcess(port, device) as process:
        try:
            reply = process.load()
            if reply["status"] != "ok":
                raise PortError(f"cannot import {port}: {reply['message']}")
            declared = Declared.read(reply)
            report.dialect = declared.dialect
            _judge_all(report, Session(port, process, declared, stage_timeout), stages, profile, progress)
        except PortStopped as stopped:
            report.verdict, report.notes = "ERROR", [*report.notes, f"cannot import {port}: {stopped}"]
        except PortError as error:
            report.verdict, report.notes = "ERROR", [*report.notes, str(error)]
    return report


def _judge_all(
    report: Report, session: Session, stages: Sequence[str] | None, profile: str, progress: Progress | None
) -> None:
    report.notes += misspelt(session.declared.functions)
    for stage in STAGES.values():
        if stages is not None and stage.name not in stages:
            continue
        if stage.name in session.declared.functions:
            cases = [c for c in cases_of(stage.name) if within_profile(c, profile)]
            row, departures = judge_stage(session, stage, cases)
            report.departures += [d for d in departures if d not in report.departures]
        else:
            row = StageReport(stage.name, "NOT_PROVIDED")
        report.stages.append(row)
        if progress:
            progress(row)
    if any(row.verdict in BAD for row in report.stages):
        report.verdict = "FAIL"
    elif not any(row.cases for row in report.stages):
        wanted = ", ".join(stages or STAGES)
        raise PortError(f"no stage could be judged: {report.port} has none of {wanted}")


def misspelt(functions: Sequence[str]) -> list[str]:
    """A line for every function of the port whose name is close to, but not, that of a stage.

    >>> misspelt(["locks_score_page"])
    ['locks_score_page is no stage; did you mean locks_score_pages?']
    """
    lines = []
    for name in functions:
        near = difflib.get_close_matches(name, STAGES, n=1, cutoff=0.75)
        if near and name not in STAGES and near[0] not in functions:
            lines.append(f"{name} is no stage; did you mean {near[0]}?")
    return lines
