"""`kvproof microscope CAPTURE`: the papers' measurements on a capture, beside what the papers print."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from proofs_checks.microscope.combine_study import study_rows
from proofs_checks.microscope.energy import isotropic_null
from proofs_checks.microscope.measure import SECTIONS, Plan, measure_capture
from proofs_checks.microscope.report import Report, as_html, as_json, cell, print_tables
from proofs_checks.microscope.source import CaptureSet, check_digests, load_capture
from proofs_checks.microscope.table import Shape
from proofs_checks.microscope.tables import all_tables
from refimpl.checks import ArgumentError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("capture", type=Path, nargs="?", help=".safetensors file with its manifest (.json) beside it")
    parser.add_argument("--study", choices=["combine"], help="run a synthetic study in place of a capture")
    parser.add_argument("--sections", help=f"comma-separated, of: {','.join(SECTIONS)} (default all)")
    parser.add_argument("--budget", type=int, help="tokens per KV head of single-budget tables (default context / 32)")
    parser.add_argument(
        "--window", type=int, default=1, help="recent pages that Table B.1's protocol keeps (default 1)"
    )
    parser.add_argument(
        "--selector", action="append", default=[], metavar="FILE.py:NAME", help="a Selector of your own"
    )
    parser.add_argument("--processes", type=int, default=1, help="local processes to spread heads over (default 1)")
    parser.add_argument("--cluster", metavar="ADDRESS", help="address of a Dask scheduler to spread heads over")
    parser.add_argument("--json", type=Path, help="write the tables as JSON")
    parser.add_argument("--html", type=Path, help="write the tables and plots as one HTML page (needs matplotlib)")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 0 on success, 2 on wrong usage, 3 if the capture or an extra cannot be used."""
    console = Console()
    if args.study:
        return run_study(args, console)
    if args.capture is None:
        print("microscope: expected a capture file, or --study", file=sys.stderr)
        return 2
    plan = Plan(operating_budget=args.budget, window_pages=args.window, extra_selectors=tuple(args.selector))
    if args.sections:
        wanted = tuple(args.sections.split(","))
        if not set(wanted) <= set(SECTIONS):
            print(
                f"microscope: --sections: expected some of {','.join(SECTIONS)}, got {args.sections}", file=sys.stderr
            )
            return 2
        plan = replace(plan, sections=wanted)
    try:
        report, about, results = measure_report(args.capture, plan, args.processes, args.cluster)
        if args.html:
            from proofs_checks.microscope.plots import all_plots

            args.html.write_text(as_html(report, about, all_plots(results, report)), encoding="utf-8")
    except (ArgumentError, ImportError, KeyError, OSError, ValueError) as error:
        print(f"microscope: {type(error).__name__}: {error}", file=sys.stderr)
        return 3
    print_tables(report, console)
    if args.json:
        args.json.write_text(json.dumps(as_json(report, about), indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return 0


def measure_report(
    path: Path, plan: Plan, processes: int = 1, cluster: str | None = None
) -> tuple[Report, dict[str, Any], Any]:
    """Measure a capture file and build its tables; also the description and the raw results, for plots."""
    check_digests(path)
    sets = load_capture(path)
    results = measure_capture(path, plan, processes, cluster)
    report: Report = []
    for one in sets:
        shape = shape_of(one, plan)
        null = isotropic_null(plan.page_size, shape.head_size, plan.rank) if "energy" in plan.sections else None
        report.append((one.name, all_tables(results, shape, null)))
    return report, sets[0].about if sets else {}, results


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
        args.json.write_text(json.dumps({"schema": 1, "rows": [asdict(row) for row in rows]}, indent=1) + "\n")
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command on its own, without the `kvproof` program."""
    parser = argparse.ArgumentParser(prog="microscope", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
