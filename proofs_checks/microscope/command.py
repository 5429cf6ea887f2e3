"""`kvproof microscope CAPTURE`: the papers' measurements on a capture, beside what the papers print."""

from __future__ import annotations

import argparse
import os
import re
import sys
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from proofs_checks.capture import capture_path
from proofs_checks.judge.reports.targets import TargetError, check_target
from proofs_checks.microscope.combine_study import study_rows
from proofs_checks.microscope.energy import isotropic_null
from proofs_checks.microscope.measure import SECTIONS, Plan, measure_capture
from proofs_checks.microscope.report import Report, as_html, as_json, cell, print_tables
from proofs_checks.microscope.source import CaptureSet, check_digests, load_capture
from proofs_checks.microscope.table import Shape
from proofs_checks.microscope.tables import all_tables
from proofs_checks.microscope.trouble import told
from proofs_checks.writing import dump_json, write_whole
from refimpl.checks import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument(
        "capture",
        type=capture_path,
        nargs="?",
        help=".safetensors file with its manifest (.json) beside it, or shipped: the capture that comes with kvproof",
    )
    parser.add_argument("--study", choices=["combine"], help="run a synthetic study in place of a capture")
    parser.add_argument("--sections", help=f"comma-separated, of: {', '.join(SECTIONS)} (default all)")
    parser.add_argument("--set", action="append", default=[], metavar="NAME", help="measure this set only (repeatable)")
    parser.add_argument("--budget", type=int, help="tokens per KV head of single-budget tables (default context / 32)")
    parser.add_argument(
        "--window", type=int, default=1, help="recent pages that the protocol of Locks Table B.1 keeps (default 1)"
    )
    parser.add_argument(
        "--selector", action="append", default=[], metavar="FILE.py:NAME", help="a Selector of your own (repeatable)"
    )
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 1, help="local processes (default: one per core)"
    )
    parser.add_argument("--cluster", metavar="ADDRESS", help="address of a Dask scheduler to spread heads over")
    parser.add_argument("--json", type=Path, help="write the tables as JSON")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="write the plots as SVG files (needs matplotlib)")
    parser.add_argument("--html", type=Path, help="write the tables and plots as one HTML page (needs matplotlib)")


class UsageError(Exception):
    """The command line asks for what does not exist (exit code 2)."""


def run(args: argparse.Namespace) -> int:
    """Measure and print; 0 on success, 2 on wrong usage, 3 if the capture or an extra cannot be used."""
    console = Console()
    try:
        check_target("json", args.json)
        check_target("html", args.html)
        if args.html or args.plots:
            import_module("matplotlib")
        if args.study:
            return run_study(args, console)
        report, about, results = measure_report(*asked(args), args.processes, args.cluster)
        if args.html or args.plots:
            write_plots(args, report, about, results)
    except (TargetError, UsageError) as error:
        print(f"kvproof microscope: {error}", file=sys.stderr)
        return 2
    except (ArgumentError, ImportError, KeyError, OSError, ValueError) as error:
        print(f"kvproof microscope: {told(error)}", file=sys.stderr)
        return 3
    print_tables(report, console)
    if args.json:
        write_whole(args.json, dump_json(as_json(report, about)))
    return 0


def asked(args: argparse.Namespace) -> tuple[Path, Plan]:
    """The capture and the plan of a command line. Raises UsageError."""
    if args.capture is None:
        raise UsageError("expected a capture file, shipped, or --study combine")
    wanted = tuple(args.sections.split(",")) if args.sections else SECTIONS
    if not set(wanted) <= set(SECTIONS):
        raise UsageError(f"--sections: expected some of {', '.join(SECTIONS)}, got {args.sections}")
    plan = Plan(
        sections=tuple(wanted),
        sets=tuple(args.set),
        operating_budget=args.budget,
        window_pages=args.window,
        extra_selectors=tuple(args.selector),
    )
    return args.capture, plan


def measure_report(
    path: Path, plan: Plan, processes: int = 1, cluster: str | None = None
) -> tuple[Report, dict[str, Any], Any]:
    """Measure a capture file and build its tables; also the description and the raw results, for plots."""
    check_digests(path)
    sets = [one for one in load_capture(path) if not plan.sets or one.name in plan.sets]
    if not sets:
        raise ArgumentError(f"--set: expected one of {[one.name for one in load_capture(path)]}, got {plan.sets}")
    results = measure_capture(path, plan, processes, cluster)
    report: Report = []
    for one in sets:
        shape = shape_of(one, plan)
        null = isotropic_null(plan.page_size, shape.head_size, plan.rank) if "energy" in plan.sections else None
        report.append((one.name, all_tables(results, shape, null)))
    return report, sets[0].about if sets else {}, results


def write_plots(args: argparse.Namespace, report: Report, about: dict[str, Any], results: Any) -> None:
    """The HTML page and the SVG files, as asked for. Imports matplotlib."""
    from proofs_checks.microscope.plots import all_plots

    plots = all_plots(results, report)
    if args.html:
        write_whole(args.html, as_html(report, about, plots))
    if args.plots:
        args.plots.mkdir(parents=True, exist_ok=True)
        for title, figure in plots:
            name = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
            figure.savefig(args.plots / f"{name}.svg", bbox_inches="tight", metadata={"Date": None})


def shape_of(capture: CaptureSet, plan: Plan) -> Shape:
    """What the tables need to know of a set."""
    tokens, head_size = capture.keys.shape[2:]
    return Shape(capture.name, head_size, plan.page_size, tokens, plan.operating(tokens))


def run_study(args: argparse.Namespace, console: Console) -> int:
    """The synthetic combine study."""
    rows = study_rows()
    table = RichTable(
        title="Peak-normalised combine against share average, synthetic scores", caption=study_rows.__doc__
    )
    names = ["spread", "common", "different sets", "mean loss", "largest loss", "smallest loss", "worst-head change"]
    for name in names:
        table.add_column(name, justify="right")
    for row in rows:
        worst = row.worst_head["peak_normalised"] - row.worst_head["share_average"]
        different = f"{row.different_sets}/{row.cases}"
        values = (row.spread, row.common, different, row.mean_loss, row.largest_loss, row.smallest_loss, worst)
        table.add_row(*(cell(v) for v in values))
    console.print(table)
    if args.json:
        write_whole(args.json, dump_json({"schema": 1, "rows": [asdict(row) for row in rows]}))
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command on its own, without the `kvproof` program."""
    parser = argparse.ArgumentParser(prog="kvproof microscope", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
