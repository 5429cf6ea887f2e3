"""How tight the bounds are: the largest error / bound of right ports, by stage. Writes docs/tightness.md and its JSON.

``python -m proofs_checks.judge.tightness`` measures; ``--render`` writes the page from the JSON that is there.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from proofs_checks.judge.report import BAD
from proofs_checks.judge.verify import verify
from proofs_checks.writing import dump_json, write_whole

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SUPPORT = ROOT / "tests" / "support"
PORTS = (
    "examples/ports/numpy_port.py",
    "refimpl.port",
    "examples/ports/torch_port.py",
    "tests/support/honest_reads.py",
)
SEEDS, DRAWS = 10, 3
Row = dict[str, Any]


def on_cases(port: str, profile: str) -> list[Row]:
    """A row per stage of one port: its cases, and the largest error / bound with the case that has it."""
    report = verify(str(ROOT / port) if port.endswith(".py") else port, profile=profile)
    rows = []
    for stage in report.stages:
        told = [record for record in stage.records if record.ratio is not None]
        worst = max(told, key=lambda record: record.ratio or 0.0, default=None)
        failed = sum(record.verdict in BAD for record in stage.records)
        ratio, case = (None, None) if worst is None else (worst.ratio, worst.case)
        rows.append(_row(port, stage.stage, stage.cases, failed, ratio, case))
    return [row for row in rows if row["judged"]]


def on_seeds(seeds: int = SEEDS, count: int = DRAWS) -> list[Row]:
    """A row per honest port of the tests and stage: what was drawn, and the largest error / bound. Needs a checkout."""
    honest = importlib.import_module("honest_ports")
    rows = []
    for name, port in honest.honest_ports().items():
        for stage in port.functions:
            told = [j for seed in range(seeds) for _, j in honest.judgements(port, stage, seed, count)]
            ratios = [j.worst_ratio for j in told if j.worst_ratio is not None]
            failed = sum(bool(j.faults) for j in told)
            rows.append(_row(name, stage, len(told), failed, max(ratios, default=None), None))
    return rows


def _row(port: str, stage: str, judged: int, failed: int, ratio: float | None, case: str | None) -> Row:
    rounded = None if ratio is None else float(f"{ratio:.3g}")
    return {"port": port, "stage": stage, "judged": judged, "failed": failed, "worst_ratio": rounded, "case": case}


def measured(profile: str = "default") -> Row:
    """Everything that the page is made of."""
    missing = importlib.util.find_spec("torch") is None
    ports = [port for port in PORTS if "torch" not in port or not missing]
    rows = [row for port in ports for row in on_cases(port, profile)]
    return {"schema": 1, "profile": profile, "cases": rows, "seeds": SEEDS, "draws": DRAWS, "drawn": on_seeds()}


def _table(rows: Iterable[Row]) -> list[str]:
    rows = list(rows)
    ports = list(dict.fromkeys(row["port"] for row in rows))
    cell = {(row["stage"], row["port"]): row for row in rows}
    lines = [f"| stage | {' | '.join(ports)} |", f"|---|{'---:|' * len(ports)}"]
    for stage in dict.fromkeys(row["stage"] for row in rows):
        found = [cell.get((stage, port)) for port in ports]
        ratios = ["" if f is None else "set" if f["worst_ratio"] is None else f"{f['worst_ratio']:.3g}" for f in found]
        lines.append(f"| `{stage}` | {' | '.join(ratios)} |")
    return lines


def as_markdown(data: Row) -> str:
    """The page from its JSON."""
    cases, drawn = data["cases"], data["drawn"]
    ranked = sorted((r for r in cases if r["worst_ratio"] is not None), key=lambda r: -r["worst_ratio"])
    judged, failed = (sum(r[key] for r in cases) for key in ("judged", "failed"))
    drawn_judged, drawn_failed = (sum(r[key] for r in drawn) for key in ("judged", "failed"))
    largest = [f"- {r['worst_ratio']:.3g} by {r['port']} on `{r['case']}`" for r in ranked[:8]]
    return PAGE.format(
        profile=data["profile"],
        judged=judged,
        failed=failed,
        cases="\n".join(_table(cases)),
        largest="\n".join(largest),
        seeds=data["seeds"],
        draws=data["draws"],
        drawn_judged=drawn_judged,
        drawn_failed=drawn_failed,
        drawn="\n".join(_table(drawn)),
    )


PAGE = """# How tight the bounds are

Every number is the largest error / bound of a right port. Above 1 it would be a failure; the smaller it is, the larger
an error that could hide below the bound. `python -m proofs_checks.judge.tightness` measures and writes this page and
`docs/tightness.json`; with `--render` it writes the page from that file. *set* marks stages that are judged by exact
equality, by sets of pages or by an objective, and have no ratio.

A bound covers the worst order of operations, and sums that truncate, so that no right port fails. Rounding errors of
both signs cancel, and long sums stay a factor of 100 below it. Faults that matter are not of that size: the
[kill matrix](kill-matrix.md) says which ones the bounds find.

## On the cases

The cases of the {profile} profile: {judged} judged, {failed} failed.

{cases}

The largest:

{largest}

A code's error is its distance from the value in steps, and half a step is allowed: exact halves reach 1 in every port.

## On fresh inputs, {seeds} seeds

{draws} inputs of every stage per seed for each of these right ports. They differ in the order of sums, the base of the
exponential, the eigensolver, signs and rotations of bases, and the inputs' dtype. {drawn_judged} answers judged,
{drawn_failed} failed. `tests/proofs_checks/judge/test_honest_seeds.py` runs some of the seeds, all in the deep profile.

{drawn}
"""


def main(arguments: list[str] | None = None) -> int:
    """Exit 0, 1 where a right port failed, 3 outside a checkout."""
    parser = argparse.ArgumentParser(prog="python -m proofs_checks.judge.tightness", description=__doc__)
    parser.add_argument("--render", action="store_true", help="write the page from the JSON that is there")
    args = parser.parse_args(arguments)
    if not (DOCS.is_dir() and SUPPORT.is_dir()):
        print("the page on tightness is made in a checkout: no docs and tests here", file=sys.stderr)
        return 3
    sys.path.insert(0, str(SUPPORT))
    page, file = DOCS / "tightness.md", DOCS / "tightness.json"
    data = json.loads(file.read_text()) if args.render else measured()
    if not args.render:
        write_whole(file, dump_json(data))
    write_whole(page, as_markdown(data))
    return int(any(row["failed"] for row in (*data["cases"], *data["drawn"])))


if __name__ == "__main__":
    raise SystemExit(main())
