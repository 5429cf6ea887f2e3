"""The verdict on a terminal: one row per stage as it is judged, then what failed and how to see it again."""

from __future__ import annotations

from types import TracebackType

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from proofs_checks.judge.classes import spelled
from proofs_checks.judge.report import BAD, Report, StageReport

COLOURS = {"PASS": "green", "FAIL": "bold red", "ERROR": "bold red", "TIMEOUT": "bold red"}
SHOWN = 3
"""Failures printed per stage; the JSON has all of them."""

NAMED = 6
"""Stages named as not provided; a port of a few stages lacks nearly all of them, so more are counted."""


def coloured(verdict: str) -> str:
    """A verdict in its colour, as rich markup."""
    colour = COLOURS.get(verdict, "yellow")
    return f"[{colour}]{verdict}[/{colour}]"


class StageProgress:
    """A progress line over the stages on a terminal; nothing where output goes to a file."""

    def __init__(self, console: Console, stages: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("judging", total=stages)

    def __call__(self, row: StageReport) -> None:
        """Count one stage."""
        self._bar.update(self._task, advance=1, description=row.stage)

    def __enter__(self) -> StageProgress:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()


def _table(rows: list[StageReport]) -> Table:
    """The table of stages; a narrow terminal cuts the case's name, the last column, first."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    ratios = ["" if row.worst_ratio is None else f"{row.worst_ratio:.3g}" for row in rows]
    columns = {
        "stage": [row.stage for row in rows],
        "verdict": [row.verdict for row in rows],
        "error / bound": ratios,
        "cases": [str(row.cases) for row in rows],
    }
    for name, cells in columns.items():
        right, width = name in ("error / bound", "cases"), max(map(len, [name, *cells]))
        table.add_column(name, justify="right" if right else "left", no_wrap=True, min_width=width)
    table.add_column("largest in", no_wrap=True)
    for row, ratio in zip(rows, ratios, strict=True):
        table.add_row(row.stage, coloured(row.verdict), ratio, str(row.cases), row.worst_case)
    return table


def print_report(report: Report, console: Console) -> None:
    """Print the table of stages, the failures, the departures and the verdict."""
    provided = [row for row in report.stages if row.verdict != "NOT_PROVIDED"]
    if provided:
        console.print(f"{report.port} ({report.dialect} dialect)", markup=False, soft_wrap=True, highlight=False)
        console.print(_table(provided))
    missing = [row.stage for row in report.stages if row.verdict == "NOT_PROVIDED"]
    if missing and provided:
        others = f"{len(missing)} other stages (kvproof list names all)"
        named = others if len(missing) > NAMED else ", ".join(missing)
        console.print(f"not provided: {named}", soft_wrap=True, highlight=False)
    for row in report.stages:
        _print_failures(row, console)
        for note in row.shown_notes if row.verdict != "NOT_PROVIDED" else []:
            console.print(f"note: {note}", markup=False, soft_wrap=True, highlight=False)
    for departure in report.departures:
        cost = f" ({departure.cost})" if departure.cost else ""
        text = f"departure {departure.id}: {departure.what}{cost}"
        console.print(text, markup=False, soft_wrap=True, highlight=False)
    for note in report.notes:
        console.print(note, markup=False, soft_wrap=True, highlight=False)
    _print_verdict(report, console)


def _print_failures(row: StageReport, console: Console) -> None:
    if row.verdict not in BAD:
        return
    for failure in row.failures[:SHOWN]:
        suspect = f"suspect {spelled(failure.suspect)}"
        console.print(f"\n{coloured(row.verdict)} {escape(failure.case)}  {suspect}", soft_wrap=True, highlight=False)
        console.print(f"  {failure.message}", markup=False, soft_wrap=True, highlight=False)
        console.print(f"  {failure.repro}", markup=False, soft_wrap=True, highlight=False)
    if len(row.failures) > SHOWN:
        console.print(f"  and {len(row.failures) - SHOWN} more of {row.stage}; --json FILE has all", highlight=False)


def _print_verdict(report: Report, console: Console) -> None:
    line = f"verdict: {coloured(report.verdict)}  {escape(report.port)}"
    first = report.first_failing_stage
    if first:
        row = next(r for r in report.stages if r.stage == first)
        beyond = row.worst_ratio is not None and row.worst_ratio > 1
        size = f", {row.worst_ratio:.3g} times its bound" if beyond else ""
        line += f"  first failing stage: {first}{size}"
    console.print(line, soft_wrap=True, highlight=False)
