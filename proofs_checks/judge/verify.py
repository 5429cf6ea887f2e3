"""Judge a port: every stage it has on every case of the profile, each call in the port's own process."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from proofs_checks.judge.ask import asker
from proofs_checks.judge.bisection import PIPELINES, Finding, bisect
from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.judgement import Departure, Fault, Judgement
from proofs_checks.judge.judging import judge, judge_relation, prepare
from proofs_checks.judge.outcome import Outcome, reproduction
from proofs_checks.judge.promised import promised
from proofs_checks.judge.report import BAD, Failure, Record, Report, StageReport
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session, live_session
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.judge.trials import run_trial
from proofs_checks.judge.waivers import Waivers, waived

Progress = Callable[[StageReport], None]


def run_case(session: Session, case: Case, dtype: str) -> Outcome:
    """Run and judge one case at one dtype. Raises PortStopped where the process ended."""
    if case.trial is not None:
        return run_trial(session, case, dtype)
    stage = session.declared.rules.stage(case.stage)
    prepared = prepare(case, dtype, stage=stage)
    precision = session.declared.precision(dtype)
    law, laws = prepared.carried.get("law"), session.declared.laws
    if law is not None and laws and law not in laws:
        return Outcome(case, dtype, "NOT_PROVIDED", Judgement(), f"LAWS has {', '.join(laws)}, not {law}")
    replies = [session.call(prepared, dtype)]
    second = None
    if case.relation is not None and replies[0]["status"] == "ok":
        second = prepare(case, dtype, case.relation.change(prepared.carried), stage)
        replies.append(session.call(second, dtype))
    if case.must_raise and replies[0]["status"] == "ok":
        return Outcome(case, dtype, "FAIL", Judgement(), "expected an error, got an answer")
    if case.must_raise and replies[0]["status"] == "error" and replies[0].get("refused", True):
        return Outcome(case, dtype, "PASS", Judgement())  # a signature that does not fit is no refusal
    for reply in replies:
        if reply["status"] == "not_provided":
            return Outcome(case, dtype, "NOT_PROVIDED", Judgement(), reply["message"])
        if reply["status"] == "error":
            return Outcome(case, dtype, "ERROR", Judgement(), reply["message"], reply.get("suspect"))
        if reply["status"] == "wrong":
            return Outcome(case, dtype, "FAIL", Judgement(), reply["message"], reply.get("suspect"))
    if second is None:
        lowest, ask = session.declared.lowest_index, asker(session)
        judgement = judge(prepared, replies[0]["results"], precision, lowest, ask)
    else:
        judgement = judge_relation(prepared, replies[0]["results"], second, replies[1]["results"], precision)
    if judgement.faults:
        return Outcome(case, dtype, "FAIL", judgement, suspect=judgement.faults[0].suspect)
    return Outcome(case, dtype, "REFUSED" if judgement.refused else "PASS", judgement, judgement.refused or "")


def judge_stage(
    session: Session, stage: Stage, cases: Iterable[Case], waivers: Waivers | None = None
) -> tuple[StageReport, list[Departure]]:
    """Judge one stage on ``cases`` in every dtype the port declares."""
    start = time.monotonic()
    outcomes: list[Outcome] = []
    ended = False
    chosen = [(c, d) for c in cases if session.takes(c) for d in session.declared.dtypes if d in c.dtypes]
    for case, dtype in chosen:
        begun, ended = time.monotonic(), False
        try:
            outcome = run_case(session, case, dtype)
        except PortStopped as stopped:
            outcome, ended = Outcome(case, dtype, stopped.verdict, Judgement(), str(stopped)), True
        outcomes.append(replace(waived(outcome, waivers or {}), seconds=time.monotonic() - begun))
        if ended and outcomes[-1].verdict in BAD:  # a process that ends once would do so in most cases of the stage
            break
    outcomes = remembered(session, outcomes)
    report = summarize(session.spec, stage.name, outcomes)
    if report.verdict == "FAIL" and stage is STAGES[stage.name] and stage.name in PIPELINES and not ended:
        tell(report, bisect(session, stage, outcomes), outcomes)
    if report.verdict == "FAIL" and not ended:
        report.notes = [*promised(session, stage, outcomes), *report.notes]
    report.seconds = time.monotonic() - start
    departures = [d for o in outcomes for d in o.judgement.departures] if report.verdict == "PASS" else []
    return report, list(dict.fromkeys(departures))


def remembered(session: Session, outcomes: list[Outcome]) -> list[Outcome]:
    """The outcomes, with suspect K on all failures where the first one passes in a new process, without earlier calls.

    A port that answers from what it kept fails whichever cases come late; what they look for says nothing about it.
    """
    first = next((o for o in outcomes if o.verdict == "FAIL"), None)
    if first is None or not session.renew():
        return outcomes
    try:
        alone = run_case(session, first.case, first.dtype)
    except PortStopped:
        return outcomes
    if alone.verdict != "PASS":
        return outcomes
    return [replace(o, suspect="K") if o.verdict in BAD else o for o in outcomes]


def tell(report: StageReport, finding: Finding, outcomes: Sequence[Outcome]) -> None:
    """Put what bisection found into a stage's report: its lines first, its class where no answer tells it by itself."""
    report.notes = [*finding.notes, *report.notes]
    if finding.suspect is not None:
        bad = [o for o in outcomes if o.verdict in BAD]
        told = zip(report.failures, bad, strict=True)
        report.failures = [f if o.suspect else replace(f, suspect=finding.suspect) for f, o in told]


def summarize(port: str, stage: str, outcomes: Sequence[Outcome]) -> StageReport:
    """One stage's verdict from its cases: the worst of them; NOT_PROVIDED and REFUSED only where nothing was judged.

    A waived case counts as judged, and is neither a failure nor part of the worst ratio.
    """
    judged = [o for o in outcomes if o.verdict not in ("NOT_PROVIDED", "REFUSED")]
    verdicts = {o.verdict for o in judged}
    verdict = next((v for v in ("FAIL", "TIMEOUT", "ERROR") if v in verdicts), "PASS")
    if not judged:
        verdict = "REFUSED" if any(o.verdict == "REFUSED" for o in outcomes) else "NOT_PROVIDED"
    ratios = [ratio for o in judged if (ratio := _ratio(o)) is not None]
    report = StageReport(stage, verdict, max(ratios) if ratios else None, len(judged))
    report.records = [Record(o.name, o.case.kind, o.verdict, _ratio(o), o.text, o.seconds) for o in outcomes]
    diagnosis = diagnose(outcomes)
    for outcome in outcomes:
        if outcome.verdict in BAD:
            report.failures.append(_failure(port, outcome, diagnosis))
    told = ("NOT_PROVIDED", "REFUSED", "WAIVED")
    report.notes = [f"{o.case.id}: {o.verdict}: {o.message}" for o in outcomes if o.verdict in told]
    return report


def _ratio(outcome: Outcome) -> float | None:
    """The case's largest error / bound where it has one."""
    bounded = outcome.case.kind in ("bounded", "metamorphic") or STAGES[outcome.case.stage].bound is not None
    return outcome.judgement.worst_ratio if bounded else None


def diagnose(outcomes: Sequence[Outcome]) -> str | None:
    """The class that the stage's failures point at: the first failing probe's, where some probe failed.

    Probes stand in the order in which they isolate: an earlier one is not upset by the faults that later ones look for.
    Class K comes before them all where a call's memory told it: poison that looks like a number is a failure like any.
    """
    failed = [o for o in outcomes if o.verdict in BAD]
    names = {o.case.name for o in failed}
    told = [o for o in failed if o.case.probe and o.case.base not in names]
    if any(o.suspect == "K" and o.case.trial is None for o in told):
        return "K"
    return next((o.suspect or o.case.suspect for o in told), None)


def _failure(port: str, outcome: Outcome, diagnosis: str | None) -> Failure:
    case = outcome.case
    fault = outcome.judgement.faults[0] if outcome.judgement.faults else Fault("", None, outcome.message)
    suspect = outcome.suspect or diagnosis or case.suspect
    pictures = tuple(f.picture for f in outcome.judgement.faults if f.picture is not None)
    repro = reproduction(case, outcome.dtype, port)
    return Failure(outcome.name, case.kind, fault.index, fault.message, suspect, repro, pictures)


def verify(
    port: str,
    stages: Sequence[str] | None = None,
    profile: str = "default",
    device: str | None = None,
    stage_timeout: float = 20.0,
    progress: Progress | None = None,
    waivers: Waivers | None = None,
    memory_limit: int | None = None,
    python: str | None = None,
) -> Report:
    """Judge ``port`` (a module name or a path) and return the report. Never raises for what the port does.

    ``stages`` limits the stages; ``stage_timeout`` is seconds per call; ``memory_limit`` is MiB of the port's process,
    ``python`` its interpreter.
    A port that cannot be imported, or has none of the stages, gives verdict ERROR.
    """
    return judge_session(
        port, live_session(port, device, stage_timeout, memory_limit, python), stages, profile, progress, waivers
    )


def judge_session(
    port: str,
    opened: AbstractContextManager[Session],
    stages: Sequence[str] | None = None,
    profile: str = "default",
    progress: Progress | None = None,
    waivers: Waivers | None = None,
) -> Report:
    """The report on a session, whether its answers come from a process or from files; a PortError is verdict ERROR."""
    report = Report(port)
    try:
        with opened as session:
            report.dialect = session.declared.dialect
            _judge_all(report, session, stages, profile, progress, waivers or {})
    except PortError as error:
        report.verdict, report.notes = "ERROR", [*report.notes, str(error)]
    return report


def _judge_all(
    report: Report,
    session: Session,
    stages: Sequence[str] | None,
    profile: str,
    progress: Progress | None,
    waivers: Waivers,
) -> None:
    report.notes += misspelt(session.declared.functions)
    rules = session.declared.rules
    report.departures += rules.departures()
    for stage in map(rules.stage, STAGES):
        if stages is not None and stage.name not in stages:
            continue
        if stage.name in session.declared.functions:
            cases = [c for c in rules.cases_of(stage.name) if within_profile(c, profile)]
            row, departures = judge_stage(session, stage, cases, waivers)
            report.departures += [d for d in departures if d not in report.departures]
        else:
            row = StageReport(stage.name, "NOT_PROVIDED")
        report.stages.append(row)
        if progress:
            progress(row)
    if any(row.verdict in BAD for row in report.stages):
        report.verdict = "FAIL"
    elif not any(row.cases for row in report.stages):
        wanted = ", ".join(stages) if stages else "the stages that kvproof list names"
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
