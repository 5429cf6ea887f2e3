"""``kvproof prove``: every statement of both papers, tried on random, structured, searched and captured instances."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence

from proofs_checks.capture import capture_path, load_capture
from proofs_checks.judge.reports.targets import check_target
from proofs_checks.statements.capture_steps import steps_of
from proofs_checks.statements.on_capture import prove_on_capture
from proofs_checks.statements.prove import PROFILES, Row, prove
from proofs_checks.statements.registry import STATEMENTS, find
from proofs_checks.statements.statement import StatementModule

COLOURS = {"HOLDS": "green", "REFUTED": "bold red", "VACUOUS": "yellow", "NO_CONSTANT": "cyan", "NOT_APPLICABLE": "dim"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``kvproof prove``."""
    parser.add_argument("statements", nargs="*", metavar="ID", help="statement ids; all of them by default")
    parser.add_argument("--profile", choices=sorted(PROFILES), default="ci", help="how hard to try (default: ci)")
    parser.add_argument("--scale-bound", type=float, metavar="FACTOR", help="scale every bound; 0.9 has to be refuted")
    parser.add_argument(
        "--on", metavar="CAPTURE", help="apply the statements to a capture: a .safetensors file, or shipped"
    )
    parser.add_argument("--steps", type=int, default=4, help="decode steps of every part of the capture (default: 4)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random instances")
    parser.add_argument("--json", metavar="FILE", help="write the rows as JSON; - is standard output")


def run(args: argparse.Namespace) -> int:
    """Run and report. Returns 1 if any statement is REFUTED (also with a scaled bound), 2 for wrong usage, else 0."""
    try:
        chosen = [find(name) for name in args.statements] or list(STATEMENTS)
    except KeyError as error:
        print(f"kvproof prove: {error.args[0]}", file=sys.stderr)
        return 2
    if args.scale_bound is not None and not args.scale_bound > 0:
        print(f"kvproof prove: --scale-bound: expected a positive factor, got {args.scale_bound}", file=sys.stderr)
        return 2
    if args.on is not None and (args.scale_bound is not None or args.steps < 1):
        print("kvproof prove: --on: expected --steps of at least 1 and no --scale-bound", file=sys.stderr)
        return 2
    check_target("json", args.json)
    quiet = args.json == "-"
    rows = []
    if not quiet:
        show_head()
    for row in produce(args, chosen):
        rows.append(row)
        if not quiet:
            show(row)
    if not quiet:
        summarise(rows)
    if args.json:
        write(rows, args.json)
    return 1 if any(row.verdict == "REFUTED" for row in rows) else 0


def produce(args: argparse.Namespace, chosen: Sequence[StatementModule]) -> Iterable[Row]:
    """The rows of the run that the options ask for. Raises CaptureError for a capture that cannot be read."""
    if args.on is None:
        return prove(chosen, profile=args.profile, scale=args.scale_bound, seed=args.seed)
    return prove_on_capture(chosen, steps_of(load_capture(capture_path(args.on)), args.steps))


WIDE = 120
"""Columns from which a line has room for the statement's place in its paper."""


def show_head() -> None:
    """Print the names of the columns."""
    from rich.console import Console

    console = Console(soft_wrap=True, highlight=False)
    source = f"{'in the paper':<34}" if console.width >= WIDE else ""
    console.print(f"{'statement':<44}{source}{'verdict':<15}{'instances':>9}  {'tightest':>12}", style="bold")


def show(row: Row) -> None:
    """Print one statement's line; the tightest ratio of both sides that was met is its last number."""
    from rich.console import Console
    from rich.text import Text

    console = Console(soft_wrap=True, highlight=False)
    ratio = "-" if row.tightest_ratio is None else f"{row.tightest_ratio:.9f}"
    line = Text()
    line.append(f"{row.id:<44}")
    if console.width >= WIDE:
        line.append(f"{row.source:<34}")
    line.append(f"{row.verdict:<15}", style=COLOURS[row.verdict])
    line.append(f"{row.instances:>9}  {ratio:>12}  {row.reason}")
    console.print(line)


def summarise(rows: Sequence[Row]) -> None:
    """Print the counts of each verdict."""
    counts = {verdict: sum(row.verdict == verdict for row in rows) for verdict in COLOURS}
    print(f"{len(rows)} statements: " + ", ".join(f"{n} {verdict}" for verdict, n in counts.items() if n))


def write(rows: Sequence[Row], target: str) -> None:
    """Write the rows as JSON to a file, or to standard output for "-"."""
    text = json.dumps({"statements": [row.as_json() for row in rows]}, indent=1)
    if target == "-":
        print(text)
    else:
        with open(target, "w", encoding="utf-8") as file:
            file.write(text + "\n")
