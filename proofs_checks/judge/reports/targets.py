"""Where reports are written: the options that `kvproof verify` and `kvproof judge` share."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from proofs_checks.judge.report import Report
from proofs_checks.judge.reports.html import html
from proofs_checks.judge.reports.junit import junit
from proofs_checks.judge.reports.markdown import markdown
from proofs_checks.writing import dump_json, write_whole

FORMS: dict[str, tuple[str, Callable[[Report], str]]] = {
    "json": ("the report as JSON (- for standard output)", lambda report: dump_json(report.as_json())),
    "markdown": ("the report as Markdown", markdown),
    "junit": ("every case as JUnit XML", junit),
    "html": ("the report as one HTML page with plots", html),
}


class TargetError(Exception):
    """A report cannot be written where it was asked for (exit code 2)."""


def add_targets(parser: argparse.ArgumentParser) -> None:
    """The options --json, --markdown, --junit and --html."""
    for form, (what, _) in FORMS.items():
        parser.add_argument(f"--{form}", metavar="FILE", help=f"write {what}")


def to_stdout(args: argparse.Namespace) -> bool:
    """Whether a report takes standard output, so that all else must go to standard error."""
    return any(getattr(args, form) == "-" for form in FORMS)


def check_targets(args: argparse.Namespace) -> None:
    """Before any work: raise TargetError where a report has nowhere to go."""
    targets = {form: getattr(args, form) for form in FORMS if getattr(args, form) is not None}
    for form, target in targets.items():
        check_target(form, target)
    if len(set(targets.values())) < len(targets):
        raise TargetError(f"{', '.join(f'--{form}' for form in targets)}: name a file for each")


def check_target(option: str, target: str | Path | None) -> None:
    """Raise TargetError where ``--option target`` names no place for a file; None and "-" always pass.

    >>> check_target("json", "no/such/folder/report.json")
    Traceback (most recent call last):
    proofs_checks.judge.reports.targets.TargetError: --json: no folder no/such/folder; create it first
    """
    if target is None or str(target) == "-":
        return
    if not Path(target).resolve().parent.is_dir():
        raise TargetError(f"--{option}: no folder {Path(target).parent}; create it first")
    if Path(target).is_dir():
        raise TargetError(f"--{option}: {target} is a folder; name a file")


def write_reports(args: argparse.Namespace, report: Report) -> None:
    """Write every report that was asked for, each whole or not at all. Raises TargetError."""
    for form, (_, render) in FORMS.items():
        target = getattr(args, form)
        if target == "-":
            sys.stdout.write(render(report))
        elif target is not None:
            try:
                write_whole(target, render(report))
            except OSError as error:
                raise TargetError(f"--{form}: cannot write {target}: {error.strerror}") from None
