"""The report as Markdown, for a pull request or a job summary."""

from __future__ import annotations

import re

from proofs_checks.judge.classes import spelled
from proofs_checks.judge.report import BAD, Report, StageReport

SHOWN = 5
"""Failures listed per stage."""


def cell(text: str) -> str:
    """Text that stays inside one cell of a table and is no markup.

    >>> cell("a|b <c>")
    'a\\\\|b &lt;c&gt;'
    """
    return " ".join(text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").split()).replace("|", "\\|")


def code(text: str) -> str:
    """Text as inline code, in a fence longer than any run of backticks in it.

    >>> code("plain"), code("a `b`")
    ('`plain`', '`` a `b` ``')
    """
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence, space = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{space}{' '.join(text.split())}{space}{fence}"


def markdown(report: Report) -> str:
    """The verdict, a table of stages, and the failures with the lines that reproduce them."""
    lines = [f"## kvproof: {report.verdict}", "", f"{code(report.port)}, {report.dialect} dialect"]
    if report.first_failing_stage:
        lines[-1] += f", first failing stage {code(report.first_failing_stage)}"
    judged = [row for row in report.stages if row.verdict != "NOT_PROVIDED"]
    if judged:
        lines += ["", "| stage | verdict | error / bound | cases |", "|---|---|---:|---:|"]
    for row in judged:
        ratio = "" if row.worst_ratio is None else f"{row.worst_ratio:.3g}"
        verdict = f"**{row.verdict}**" if row.verdict in BAD else row.verdict
        lines.append(f"| {code(row.stage)} | {verdict} | {ratio} | {row.cases} |")
    missing = [code(row.stage) for row in report.stages if row.verdict == "NOT_PROVIDED"]
    if missing and judged:
        lines += ["", f"Not provided: {', '.join(missing)}."]
    for row in report.stages:
        lines += _failures(row)
    said = [note for row in judged for note in row.shown_notes]
    said += [f"departure {d.id}: {d.what} {f'({d.cost})' if d.cost else ''}" for d in report.departures]
    said += report.notes
    lines += ["", *(f"- {cell(text)}" for text in said)] if said else []
    return "\n".join(lines) + "\n"


def _failures(row: StageReport) -> list[str]:
    if row.verdict not in BAD:
        return []
    lines = ["", f"### {row.stage}", ""]
    for failure in row.failures[:SHOWN]:
        lines.append(f"- {code(failure.case)}, suspect {spelled(failure.suspect)}: {cell(failure.message)}")
        lines.append(f"  {code(failure.repro)}")
    if len(row.failures) > SHOWN:
        lines.append(f"- and {len(row.failures) - SHOWN} more")
    return lines
