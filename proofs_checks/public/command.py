"""`kvproof public`: judge public packages, each in an environment of its own."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from proofs_checks.fixtures import checkout_directory
from proofs_checks.judge.commands import add_profile
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.reports.targets import check_target
from proofs_checks.public.adapters import adapters, read_adapter
from proofs_checks.public.judge import SCHEMA, judge_all
from proofs_checks.public.page import render
from proofs_checks.writing import dump_json, write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof public`."""
    parser.add_argument("--package", metavar="NAME", help="one package, or one adapter (default all)")
    parser.add_argument("--adapter", metavar="FILE", help="an adapter that is not in the checkout")
    add_profile(parser)
    parser.set_defaults(profile="quick")  # the long inputs of the default profile take some packages an hour
    parser.add_argument("--environments", metavar="FOLDER", help="where environments are kept (default .public)")
    parser.add_argument("--markdown", metavar="FILE", help="write the page")
    parser.add_argument(
        "--json", metavar="FILE", help="write the verdicts; with --package, the others in FILE stay as they are"
    )
    parser.add_argument("--from-json", metavar="FILE", help="judge nothing: write the page from these verdicts")


def run(args: argparse.Namespace) -> int:
    """Judge public packages. Exit 0 whatever the verdicts, 2 wrong usage, 3 no adapter, no checkout, no installer."""
    check_target("json", args.json)
    check_target("markdown", args.markdown)
    if args.from_json:
        document = _read(args.from_json)
    else:
        chosen = [read_adapter(Path(args.adapter))] if args.adapter else adapters(args.package)
        folder = Path(args.environments or checkout_directory("examples").parent / ".public").resolve()
        console = Console()

        def seen(entry: dict[str, Any]) -> None:
            extra = f" with {', '.join(entry['with'])}" if entry["with"] else ""
            wrong = ", ".join(s["stage"] for s in entry["stages"] if s["verdict"] != "PASS")
            text = f"{entry['verdict']:13s} {entry['package']} {entry['version']}{extra} ({entry['adapter']})"
            detail = entry["reason"] or wrong
            console.print(f"{text}{': ' + detail if detail else ''}", soft_wrap=True, highlight=False, markup=False)

        try:
            entries = judge_all(chosen, folder, args.profile, seen)
        except OSError as error:
            raise PortError(str(error)) from None
        partial = bool(args.package or args.adapter) and bool(args.json) and Path(args.json).exists()
        document = {"schema": SCHEMA, "ports": _merged(_read(args.json)["ports"] if partial else [], entries)}
    if args.json:
        write_whole(args.json, dump_json(document))
    if args.markdown:
        write_whole(args.markdown, render(document))
    return 0


def _merged(before: list[dict[str, Any]], entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All entries by adapter, new ones in the place of old ones."""
    names = {entry["environment"] for entry in entries}
    every = [*(entry for entry in before if entry["environment"] not in names), *entries]
    return sorted(every, key=lambda entry: (entry["package"], entry["environment"]))


def _read(path: str) -> dict[str, Any]:
    """A document of verdicts. Raises PortError where it is none."""
    try:
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        if document["schema"] != SCHEMA or not isinstance(document["ports"], list):
            raise ValueError(f"schema {document['schema']!r}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PortError(f"{path}: expected verdicts of kvproof public --json: {error}") from None
    return dict(document)
