"""`kvproof list`: the stages with their cases, and what else is built."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from rich.console import Console

from proofs_checks.coverage import sections
from proofs_checks.judge.commands import UsageError, add_dialect
from proofs_checks.judge.dialects import DIALECTS, PAPER, Dialect
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.systems import SYSTEMS
from proofs_checks.writing import dump_json, write_whole


def add_list(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof list`."""
    parser.add_argument("--json", nargs="?", const="-", metavar="FILE", help="as JSON, on standard output or in FILE")
    parser.add_argument("--cases", action="store_true", help="list every case with the fault it looks for")
    add_dialect(parser)


def listing(rules: Dialect = DIALECTS[PAPER]) -> dict[str, Any]:
    """Everything that `kvproof list --json` prints."""
    stages = [
        {
            "name": stage.name,
            "keywords": list(stage.arguments),
            "optional": list(stage.optional),
            "results": list(stage.results),
            "source": stage.source,
            "cases": [
                {"id": c.id, "kind": c.kind, "suspect": c.suspect, "why": c.why} for c in rules.cases_of(stage.name)
            ],
        }
        for stage in map(rules.stage, STAGES)
    ]
    return {
        "stages": stages,
        "statements": _statements(),
        "systems": [system.row() for system in SYSTEMS],
        "mutants": _mutants(),
        "sections": sections(),
    }


def _statements() -> list[dict[str, str]]:
    from proofs_checks.statements.registry import STATEMENTS

    return [{"id": module.ABOUT.id, "source": module.ABOUT.source} for module in STATEMENTS]


def _mutants() -> list[dict[str, str]]:
    from proofs_checks.mutants.registry import mutants

    return [{"id": m.id, "stage": m.stage, "class": m.suspect, "what": m.what} for m in mutants().values()]


def run_list(args: argparse.Namespace) -> int:
    """Print the stage table, and the papers' systems with their stages."""
    rules = DIALECTS[args.dialect or PAPER]
    if args.json:
        _write_json(args.json, listing(rules))
        return 0
    console = Console()
    for stage in map(rules.stage, STAGES):
        console.print(f"{stage.signature()} -> {', '.join(stage.results)}", highlight=False, soft_wrap=True)
        console.print(f"    {stage.source}; {len(rules.cases_of(stage.name))} cases", highlight=False)
        for case in rules.cases_of(stage.name) if args.cases else ():
            console.print(f"    {case.id} [{case.kind}, {case.suspect}] {case.why}", markup=False, soft_wrap=True)
    for system in SYSTEMS:
        text = f"{system.system} ({system.source}): {', '.join(system.stages)}"
        console.print(text, highlight=False, markup=False, soft_wrap=True)
    return 0


def _write_json(target: str, value: dict[str, Any]) -> None:
    if target == "-":
        sys.stdout.write(dump_json(value))
        return
    try:
        write_whole(target, dump_json(value))
    except OSError as error:
        raise UsageError(f"--json: cannot write {target}: {error.strerror}") from None
