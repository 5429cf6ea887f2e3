"""`kvproof mutants`: the kill matrix."""

from __future__ import annotations

import argparse

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from proofs_checks.judge.case import PROFILES
from proofs_checks.judge.commands import UsageError
from proofs_checks.judge.reports.targets import check_target
from proofs_checks.mutants.gpu.matrix import Judge, KernelKill, kernel_matrix
from proofs_checks.mutants.gpu.matrix import as_json as kernels_json
from proofs_checks.mutants.gpu.matrix import as_markdown as kernels_markdown
from proofs_checks.mutants.gpu.registry import kernel_mutants
from proofs_checks.mutants.matrix import Kill, kill_matrix, survivors
from proofs_checks.writing import dump_json, write_whole


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof mutants`."""
    parser.add_argument(
        "--profile", choices=PROFILES, default="quick", help="how many cases judge each port (default quick)"
    )
    parser.add_argument("--json", metavar="FILE", help="write the matrix as JSON")
    parser.add_argument("--markdown", metavar="FILE", help="write the matrix as a Markdown page")
    parser.add_argument("--gpu", action="store_true", help="judge wrong Triton kernels instead")
    parser.add_argument("--device", help="where those run, as cuda; default: as the port declares")
    parser.add_argument("--only", action="append", metavar="ID", help="this wrong kernel only (repeatable)")


def run(args: argparse.Namespace) -> int:
    """Judge every deliberately wrong port. Exit 0 if every one is killed, 1 if one survives."""
    check_target("json", args.json)
    check_target("markdown", args.markdown)
    if args.gpu:
        return _run_kernels(args)
    if args.device or args.only:
        raise UsageError("--device and --only go with --gpu")
    console = Console()

    def seen(kill: Kill) -> None:
        mark = "killed" if kill.named else "killed elsewhere" if kill.killed else "SURVIVES"
        console.print(f"{mark:16s} {kill.mutant.id}: {kill.mutant.what}", soft_wrap=True, highlight=False, markup=False)

    kills = kill_matrix(args.profile, seen)
    console.print(_table(kills))
    console.print(summary(kills), highlight=False, soft_wrap=True)
    if args.json:
        write_whole(args.json, dump_json(as_json(kills)))
    if args.markdown:
        write_whole(args.markdown, as_markdown(kills))
    return 1 if survivors(kills) else 0


def _run_kernels(args: argparse.Namespace) -> int:
    """Judge wrong kernels. Exit 0 if all are killed and the kernels as they are pass, else 1."""
    known = kernel_mutants()
    unknown = sorted(set(args.only or []) - set(known))
    if unknown:
        raise UsageError(f"no wrong kernel {unknown[0]!r}; there are {', '.join(known)}")

    def seen(kill: KernelKill) -> None:
        mark = "survives" if kill.verdict == "PASS" else "told by"
        print(f"{mark:8s} {kill.mutant.id}: {kill.case or ''} {kill.message}", flush=True)

    kills = kernel_matrix(Judge(args.device, args.profile), seen=seen, only=args.only)
    document = kernels_json(kills, args.device or "as declared")
    print(
        f"{sum(kill.right for kill in kills)} of {len(kills)} wrong kernels killed by a case that the right ones pass"
    )
    if args.json:
        write_whole(args.json, dump_json(document))
    if args.markdown:
        write_whole(args.markdown, kernels_markdown(document))
    return 0 if all(kill.right for kill in kills) else 1


def summary(kills: list[Kill]) -> str:
    """One line of counts."""
    killed, named = sum(k.killed for k in kills), sum(k.named for k in kills)
    suspected = sum(k.suspect == k.mutant.suspect for k in kills)
    return (
        f"{killed} of {len(kills)} mutants killed, {named} at the stage that was broken, "
        f"{suspected} with their class of fault named"
    )


def _by_stage(kills: list[Kill]) -> list[tuple[str, list[Kill]]]:
    stages = dict.fromkeys(kill.mutant.stage for kill in kills)
    return [(stage, [k for k in kills if k.mutant.stage == stage]) for stage in stages]


def _table(kills: list[Kill]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for name in ("stage", "mutants", "exact", "bounded", "set", "relation", "survive"):
        table.add_column(name, justify="left" if name == "stage" else "right", no_wrap=True)
    for stage, rows in _by_stage(kills):
        kinds = [sum(k.kind == kind for k in rows) for kind in ("exact", "bounded", "set", "metamorphic")]
        table.add_row(stage, str(len(rows)), *map(str, kinds), str(sum(not k.killed for k in rows)))
    return table


def as_json(kills: list[Kill]) -> dict[str, object]:
    """The matrix as a JSON object."""
    rows = [
        {
            "id": k.mutant.id,
            "stage": k.mutant.stage,
            "class": k.mutant.suspect,
            "what": k.mutant.what,
            "killed": k.killed,
            "first_failing_stage": k.stage,
            "first_failing_case": k.case,
            "kind": k.kind,
            "suspect": k.suspect,
        }
        for k in kills
    ]
    return {"schema": 1, "mutants": rows}


def as_markdown(kills: list[Kill]) -> str:
    """The matrix as a page of the documentation."""
    lines = [
        "# Kill matrix",
        "",
        "Every port below is wrong on purpose, in one stage. `kvproof mutants --markdown docs/kill-matrix.md` judges",
        "them all and writes this page. *Case* is the first that failed; *named* is the class that was suspected.",
        "",
        summary(kills) + ".",
    ]
    head = ["| mutant | what is wrong | class | case | kind | named |", "|---|---|---|---|---|---|"]
    for stage, rows in _by_stage(kills):
        lines += ["", f"## `{stage}`", "", *head]
        for k in rows:
            where = "**survives**" if not k.killed else f"`{k.case}`"
            cells = (k.mutant.id, k.mutant.what, k.mutant.suspect, where, k.kind or "", k.suspect or "")
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
