"""`kvproof golden write|check|copy|list|explain`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from proofs_checks.fixtures import FixtureError, checkout_directory
from proofs_checks.golden import check as checking
from proofs_checks.golden import manifest as manifests
from proofs_checks.golden.flags import FLAGS
from proofs_checks.golden.manifest import Entry, Manifest
from proofs_checks.golden.tensors import ContentError
from proofs_checks.judge.classes import spelled
from proofs_checks.judge.commands import UsageError, check_stages, check_timeout
from proofs_checks.judge.declared import PortError
from proofs_checks.writing import dump_json, write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof golden`."""
    verbs = parser.add_subparsers(dest="golden", required=True, metavar="write|check|copy|list|explain")
    write = verbs.add_parser("write", help="evaluate every case in 50 digits and write the set (needs mpmath)")
    write.add_argument("directory", nargs="?", help="where to (default: fixtures/golden of the checkout)")
    check = verbs.add_parser("check", help="check every file, and the reference or a port by what is stored")
    check.add_argument("directory", nargs="?", help="a golden set (default: the one that comes with kvproof)")
    check.add_argument("--port", help="judge this port by the golden files alone")
    check.add_argument("--stages", help="only these, comma-separated")
    check.add_argument("--stage-timeout", type=float, default=20.0, metavar="SECONDS", help="limit of one call")
    copy = verbs.add_parser("copy", help="copy the set into a folder of your own")
    copy.add_argument("directory", help="a folder that does not exist yet")
    show = verbs.add_parser("list", help="list the cases with their families and flags")
    show.add_argument("--stages", help="only these, comma-separated")
    for one in (check, show):
        one.add_argument("--json", nargs="?", const="-", metavar="FILE", help="as JSON, to standard output or FILE")
    explain = verbs.add_parser("explain", help="say what a case is for and show what is stored")
    explain.add_argument("case", help="an id such as attention/head-map-G7")


def run(args: argparse.Namespace) -> int:
    """Run one of the five. Exit 0 pass, 1 fail, 2 wrong usage, 3 files or port cannot be used."""
    runs: dict[str, Callable[[argparse.Namespace], int]] = {
        "write": run_write,
        "check": run_check,
        "copy": run_copy,
        "list": run_list,
        "explain": run_explain,
    }
    try:
        return runs[args.golden](args)
    except ContentError as error:
        raise PortError(f"golden files: {error}") from None


def run_write(args: argparse.Namespace) -> int:
    """Write the set anew; inputs that are stored already stay as they are."""
    try:
        from proofs_checks.golden.job import GoldenError
        from proofs_checks.golden.write import write
    except ModuleNotFoundError as error:
        raise PortError(f"golden write needs {error.name}: pip install 'kvproof[certify]'") from None
    target = Path(args.directory) if args.directory else checkout_directory("fixtures") / "golden"
    if target.exists() and any(target.iterdir()) and not (target / manifests.NAME).is_file():
        raise UsageError(f"{target} holds something else than a golden set")
    source = target if (target / manifests.NAME).is_file() else _shipped()
    console = Console(stderr=True)
    try:
        count = write(target, source, progress=lambda stage: console.print(stage) if console.is_terminal else None)
    except GoldenError as error:
        print(f"kvproof golden write: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    print(f"{count} cases written to {target}")
    return 0


def _shipped() -> Path | None:
    """The set that comes with kvproof, if it is there: a first one has no inputs to keep."""
    try:
        return checking.golden_directory()
    except FixtureError:
        return None


def run_check(args: argparse.Namespace) -> int:
    """Check the files, and the reference by them; or a port by them."""
    only = check_stages(args.stages)
    check_timeout(args.stage_timeout)
    place = Path(args.directory) if args.directory else checking.golden_directory()
    if not (place / manifests.NAME).is_file():
        raise UsageError(f"{place} holds no {manifests.NAME}")
    if args.port:
        from proofs_checks.golden.port import check_port

        count, failures = check_port(place, args.port, only, args.stage_timeout)
    else:
        count, failures = checking.check(place, only)
    if args.json:
        rows = [{"file": f.file, "case": f.case, "message": f.message} for f in failures]
        _put(args.json, {"checked": count, "failures": rows})
    for failure in failures:
        where = failure.file if failure.case is None else f"{failure.file} ({failure.case})"
        print(f"FAIL {where}: {failure.message}", file=sys.stderr)
    what = f"calls of {args.port}" if args.port else "cases"
    print(f"{count} {what} checked, {len(failures)} failures", file=sys.stderr if args.json == "-" else sys.stdout)
    return 1 if failures else 0


def run_copy(args: argparse.Namespace) -> int:
    """Copy the set, for programs that cannot find an installed package."""
    target = Path(args.directory).absolute()
    if target.exists() or not target.parent.is_dir():
        raise UsageError(f"{args.directory}: expected a new folder inside one that exists")
    try:
        with tempfile.TemporaryDirectory(prefix=f".{target.name}.", dir=target.parent) as building:
            shutil.copytree(checking.golden_directory(), Path(building) / "set")
            os.replace(Path(building) / "set", target)
    except OSError as error:
        raise UsageError(f"cannot write {target}: {error.strerror}") from None
    print(f"{len(_manifest().cases)} cases copied to {args.directory}")
    return 0


def run_list(args: argparse.Namespace) -> int:
    """Print the cases by stage."""
    only = check_stages(args.stages)
    entries = [e for e in _manifest().cases.values() if only is None or e.stage in only]
    if args.json:
        _put(args.json, {"cases": [_row(e) for e in entries], "flags": manifests.described_flags()})
        return 0
    console = Console()
    for entry in entries:
        text = f"{entry.id} [{entry.kind}, {', '.join(entry.dtypes)}; {', '.join(entry.flags)}] {entry.why}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def _row(entry: Entry) -> dict[str, Any]:
    names = ("id", "stage", "family", "kind", "flags", "dtypes", "file", "why")
    return {name: getattr(entry, name) for name in names}


def run_explain(args: argparse.Namespace) -> int:
    """Say what a case is for: its mistake, what that does, and the tensors with their first numbers."""
    place, cases = checking.golden_directory(), _manifest().cases
    if args.case not in cases:
        raise UsageError(f"no golden case {args.case!r}; see kvproof golden list")
    entry = cases[args.case]
    sums = checking.read_sums((place / checking.SUMS).read_bytes())
    tensors = checking.load_case((place / entry.file).read_bytes(), entry, sums)
    print(f"{entry.id}  ({entry.kind}, family {entry.family}, for {', '.join(entry.dtypes)})")
    print(f"  looks for: {entry.why}")
    for name in entry.flags:
        print(f"  flag {name}: {spelled(FLAGS[name].bug_class)}\n    {FLAGS[name].sentence}\n    {FLAGS[name].effect}")
    print(f"  source:    {entry.source}")
    for name, value in entry.arguments.items():
        print(f"  argument {name}: {value!r}")
    for name, about in entry.results.items():
        print(f"  result {name}: {about['role']} {about['shape']}, judged by the rule {about['rule']}")
    for name in sorted(tensors):
        flat = ", ".join(f"{v:.6g}" for v in tensors[name].ravel()[:6])
        print(f"  {name}: {entry.tensors[name]['dtype']} {list(tensors[name].shape)} [{flat}]")
    return 0


def _manifest() -> Manifest:
    place = checking.golden_directory()
    sums = checking.read_sums((place / checking.SUMS).read_bytes())
    return checking.load_manifest((place / manifests.NAME).read_bytes(), sums)


def _put(target: str, value: dict[str, Any]) -> None:
    if target == "-":
        sys.stdout.write(dump_json(value))
        return
    try:
        write_whole(target, dump_json(value))
    except OSError as error:
        raise UsageError(f"--json: cannot write {target}: {error.strerror}") from None
