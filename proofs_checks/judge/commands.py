"""`kvproof verify`, `explain` and `repro`."""

from __future__ import annotations

import argparse
import difflib
from pathlib import Path
from typing import Any

from rich.console import Console

from proofs_checks.judge import waivers
from proofs_checks.judge.case import PROFILES
from proofs_checks.judge.classes import spelled
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.dialects import DIALECTS, Dialect, find_anywhere
from proofs_checks.judge.files import layout
from proofs_checks.judge.files.session import file_session
from proofs_checks.judge.interpreter import add_python
from proofs_checks.judge.reports import targets
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import live_session
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.terminal import StageProgress, print_report
from proofs_checks.judge.verify import run_case, summarize, verify


class UsageError(Exception):
    """The command cannot do what its words ask (exit code 2); the message says what to write instead."""


def add_verify(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof verify`."""
    parser.add_argument("port", help="a module name, or the path of a Python file or a shared library")
    parser.add_argument("--stages", help="judge only these, comma-separated")
    add_profile(parser)
    parser.add_argument("--device", help="overrides the port's DEVICE, such as cuda")
    parser.add_argument(
        "--stage-timeout", type=float, default=20.0, metavar="SECONDS", help="limit of one call (default 20)"
    )
    parser.add_argument(
        "--memory-limit",
        type=int,
        metavar="MIB",
        help="limit of the port's process (default 8192, or half of the machine)",
    )
    add_python(parser)
    add_expected(parser)
    targets.add_targets(parser)


def add_profile(parser: argparse.ArgumentParser) -> None:
    """The option --profile."""
    parser.add_argument(
        "--profile",
        choices=PROFILES,
        default="default",
        help="quick for every edit, default adds long inputs, deep takes every case; interpreter takes probes alone, "
        "for ports that run in Triton's interpreter",
    )


def add_expected(parser: argparse.ArgumentParser) -> None:
    """The option --expected."""
    parser.add_argument("--expected", metavar="FILE", help=f"known failures (default {waivers.FILE} beside the port)")


def check_stages(text: str | None) -> list[str] | None:
    """The stages that --stages names. Raises UsageError for an unknown one."""
    stages = [name.strip() for name in text.split(",") if name.strip()] if text else None
    if text and not stages:
        raise UsageError(f"--stages: expected stage names, got {text!r}; see kvproof list")
    for name in stages or []:
        if name not in STAGES:
            raise UsageError(f"--stages: no stage {name!r}; see kvproof list")
    return stages


def check_timeout(seconds: float) -> None:
    """Raise UsageError for a limit of one call that is none, NaN included."""
    if not seconds > 0:
        raise UsageError(f"--stage-timeout: expected seconds above 0, got {seconds:g}")


def waivers_of(expected: str | None, port: str) -> waivers.Waivers:
    """The known failures that hold for a port."""
    path = expected or waivers.beside(port)
    return waivers.read_waivers(path) if path else {}


def run_verify(args: argparse.Namespace) -> int:
    """Judge a port. Exit 0 pass, 1 fail, 2 wrong usage, 3 the port could not be used."""
    stages = check_stages(args.stages)
    check_timeout(args.stage_timeout)
    if args.memory_limit is not None and args.memory_limit <= 0:
        raise UsageError(f"--memory-limit: expected MiB above 0, got {args.memory_limit}")
    targets.check_targets(args)
    known = waivers_of(args.expected, args.port)
    with StageProgress(Console(stderr=True), len(stages or STAGES)) as progress:
        report = verify(
            args.port,
            stages,
            args.profile,
            args.device,
            args.stage_timeout,
            progress,
            known,
            args.memory_limit,
            args.python,
        )
    print_report(report, Console(stderr=targets.to_stdout(args)))
    targets.write_reports(args, report)
    return report.exit_code


def add_dialect(parser: argparse.ArgumentParser) -> None:
    """The option --dialect."""
    parser.add_argument("--dialect", choices=tuple(DIALECTS), help="whose cases, default paper")


def add_explain(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof explain`."""
    parser.add_argument("case", help="a case id such as attention/head-map")
    add_dialect(parser)


def run_explain(args: argparse.Namespace) -> int:
    """Say what a case looks for and show its inputs and expected results in short."""
    case, dtype, rules = _case_and_dtype(args.case, args.dialect)
    from proofs_checks.judge.judging import prepare

    stage = rules.stage(case.stage)
    if case.trial is None:
        prepared = prepare(case, dtype, stage=stage)
        shown = (("input", prepared.carried), ("expected", prepared.reference))
    else:  # calls of its own, which have no one answer
        shown = (("input", stage.round_inputs(case.inputs(), dtype)), ("expected", {}))
    print(f"{case.id}  ({case.kind}, profile {case.profile}, {rules.name} dialect)")
    print(f"  looks for: {case.why}")
    print(f"  suspect:   {spelled(case.suspect)}")
    print(f"  source:    {STAGES[case.stage].source}")
    for title, values in shown:
        for name, value in values.items():
            judged = title == "input" or case.judged is None or name in case.judged
            print(f"  {title} {name}: {_short(value)}{'' if judged else '  (not judged here)'}")
    return 0


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} arrays of lengths {', '.join(str(len(part)) for part in value)}"
    if not hasattr(value, "shape"):
        return repr(value)
    flat = ", ".join(f"{v:.6g}" for v in value.ravel()[:6])
    return f"{value.dtype} {list(value.shape)} [{flat}{', ...' if value.size > 6 else ''}]"


def add_repro(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof repro`."""
    parser.add_argument("case", help="a case id such as attention/head-map")
    parser.add_argument(
        "--port",
        required=True,
        help="a module name, the path of a Python file or a shared library, or a folder of answers",
    )
    parser.add_argument("--dtype", default=None, help="input dtype (default float32)")
    parser.add_argument("--device", help="overrides the port's DEVICE")
    add_python(parser)
    parser.add_argument(
        "--stage-timeout", type=float, default=20.0, metavar="SECONDS", help="limit of the call (default 20)"
    )


def run_repro(args: argparse.Namespace) -> int:
    """Make the one call of one case and judge it. Exit codes as `kvproof verify`."""
    case, dtype, _ = _case_and_dtype(args.case)
    check_timeout(args.stage_timeout)
    dtype = args.dtype or dtype
    if dtype not in case.dtypes:
        raise UsageError(f"--dtype: {case.id} has inputs in {', '.join(case.dtypes)}, not {dtype!r}")
    folder = Path(args.port).is_dir() and (Path(args.port) / layout.MANIFEST).is_file()
    live = live_session(args.port, args.device, args.stage_timeout, python=args.python)
    with file_session(args.port) if folder else live as session:
        case, _, _ = _case_and_dtype(args.case, session.declared.dialect)
        try:
            if case.stage not in session.declared.functions:
                raise PortError(f"{args.port} has no {case.stage}")
            outcome = run_case(session, case, dtype)
        except PortStopped as stopped:
            print(f"{stopped.verdict}: {stopped}")
            return 1
    print(f"{outcome.verdict}: {case.id} at {dtype}: {case.why}")
    for failure in summarize(args.port, case.stage, [outcome]).failures:
        print(f"  {failure.message}")
    for fault in outcome.judgement.faults[1:]:
        print(f"  {fault.message}")
    if outcome.judgement.worst_ratio is not None:
        print(f"  largest error / bound: {outcome.judgement.worst_ratio:.4g}")
    return 1 if outcome.verdict in ("FAIL", "ERROR", "TIMEOUT") else 0


def _case_and_dtype(text: str, dialect: str | None = None) -> tuple[Any, str, Dialect]:
    """The case, of ``dialect`` or of the first that has it, with the dtype that its name carries."""
    case_id, _, dtype = text.partition("@")
    try:
        case, rules = find_anywhere(case_id)
    except KeyError:
        raise UsageError(f"no case {case_id!r}; see kvproof list --cases{_nearest(case_id)}") from None
    if dialect is not None:
        rules = DIALECTS[dialect]
        found = rules.find_case(case_id)
        if found is None:
            raise UsageError(
                f"no case {case_id!r} in the dialect {dialect}; see kvproof list --cases --dialect {dialect}"
            )
        case = found
    if dtype and dtype not in case.dtypes:
        raise UsageError(f"{case.id} has inputs in {', '.join(case.dtypes)}, not {dtype!r}")
    return case, dtype or "float32", rules


def _nearest(case_id: str) -> str:
    """What was probably meant, as the end of a message; empty where nothing is close.

    >>> _nearest("attention/headmap"), _nearest("attention"), _nearest("nothing/like/it")
    ('; did you mean attention/head-map?', '; did you mean attention/head-map?', '')
    """
    stage = case_id.partition("/")[0]
    stages = [stage] if stage in STAGES else difflib.get_close_matches(stage, STAGES, n=1)
    ids = [case.id for name in stages for case in cases_of(name)]
    near = ids[:1] if case_id == stage else difflib.get_close_matches(case_id, ids, n=1, cutoff=0.75)
    return f"; did you mean {near[0]}?" if near else ""
