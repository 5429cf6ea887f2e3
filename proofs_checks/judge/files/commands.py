"""`kvproof cases` and `kvproof judge`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from rich.console import Console

from proofs_checks.judge.case import PROFILES
from proofs_checks.judge.commands import (
    UsageError,
    add_dialect,
    add_expected,
    add_profile,
    check_stages,
    waivers_of,
)
from proofs_checks.judge.dialects import PAPER
from proofs_checks.judge.files.layout import MANIFEST, OUTPUTS, check_dtypes
from proofs_checks.judge.files.session import file_session, strangers
from proofs_checks.judge.files.write import FolderError, write_cases
from proofs_checks.judge.reports import targets
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.terminal import StageProgress, print_report
from proofs_checks.judge.verify import judge_session


def add_cases(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof cases`."""
    parser.add_argument("directory", metavar="DIR", help="a folder that does not exist yet, or is empty")
    parser.add_argument("--stages", help="write only these, comma-separated")
    add_profile(parser)
    parser.add_argument("--dtypes", default="float32", help="input dtypes, comma-separated (default float32)")
    add_dialect(parser)


def run_cases(args: argparse.Namespace) -> int:
    """Write every call of the suite as a folder of files, for a port in any language."""
    stages = check_stages(args.stages) or list(STAGES)
    dtypes = args.dtypes.split(",")
    wrong = check_dtypes(dtypes)
    if wrong:
        raise UsageError(f"--dtypes: {wrong}")
    console = Console(stderr=True)
    try:
        count = write_cases(
            args.directory,
            stages,
            args.profile,
            dtypes,
            lambda stage: console.print(stage) if console.is_terminal else None,
            args.dialect or PAPER,
        )
    except FolderError as error:
        raise UsageError(str(error)) from None
    print(f"{count} calls written; write {OUTPUTS} beside each, then: kvproof judge {args.directory}")
    return 0


def add_judge(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof judge`."""
    parser.add_argument("directory", metavar="DIR", help="a folder that kvproof cases wrote and a port has answered")
    parser.add_argument("--stages", help="judge only these, comma-separated")
    add_expected(parser)
    targets.add_targets(parser)


def run_judge(args: argparse.Namespace) -> int:
    """Judge the answers in a folder. Exit codes as `kvproof verify`."""
    stages = check_stages(args.stages)
    targets.check_targets(args)
    if not Path(args.directory).is_dir():
        raise UsageError(f"no folder {args.directory}; write one with kvproof cases DIR")
    if not (Path(args.directory) / MANIFEST).exists():
        raise UsageError(f"{args.directory} holds no {MANIFEST}; write cases with kvproof cases DIR")
    waivers = waivers_of(args.expected, args.directory)
    with StageProgress(Console(stderr=True), len(stages or STAGES)) as progress:
        # the deepest profile: the session takes only the cases that its folder was written with
        report = judge_session(args.directory, file_session(args.directory), stages, PROFILES[-1], progress, waivers)
    if report.verdict != "ERROR":
        with file_session(args.directory) as session:
            report.notes += strangers(session)
    print_report(report, Console(stderr=targets.to_stdout(args)))
    sys.stdout.flush()
    targets.write_reports(args, report)
    return report.exit_code
