"""Judges every wrong kernel, and the kernels as they are, on a device; several at a time, each in its own processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from proofs_checks.judge.report import Report
from proofs_checks.judge.verify import verify
from proofs_checks.mutants.gpu.registry import KernelMutant, kernel_mutants
from proofs_checks.mutants.gpu.source import write_port


@dataclass(frozen=True)
class KernelKill:
    """What became of one wrong kernel; ``mutant`` is None for the kernels as they are, which must pass."""

    mutant: KernelMutant | None
    port: str
    judged: str
    verdict: str
    stage: str | None
    case: str | None
    message: str
    suspect: str | None

    @property
    def right(self) -> bool:
        """Whether the verdict is the one that the port deserves."""
        return self.verdict == ("PASS" if self.mutant is None else "FAIL")


def judge_kernels(
    mutant: KernelMutant | None, port: str, stages: list[str], device: str | None, profile: str, timeout: float
) -> KernelKill:
    """Judge one copy of `fastimpl` on ``stages``."""
    with tempfile.TemporaryDirectory() as folder:
        spec = write_port(Path(folder), mutant, port)
        report = verify(str(spec), stages, profile, device, timeout)
    return _kill(mutant, port, ", ".join(stages), report)


def _kill(mutant: KernelMutant | None, port: str, judged: str, report: Report) -> KernelKill:
    failed = next((row for row in report.stages if row.failures), None)
    if failed is None:
        return KernelKill(mutant, port, judged, report.verdict, None, None, "; ".join(report.notes)[:300], None)
    first = failed.failures[0]
    return KernelKill(mutant, port, judged, report.verdict, failed.stage, first.case, first.message, first.suspect)


def kernel_matrix(
    device: str | None,
    profile: str = "quick",
    timeout: float = 120.0,
    workers: int = 12,
    seen: Callable[[KernelKill], None] | None = None,
    only: Iterable[str] | None = None,
) -> list[KernelKill]:
    """The kernels as they are on every stage that a mutant spoils, then each mutant on its own stage; in this order.

    ``seen`` is told of each as it is judged.
    """
    chosen = [m for name, m in kernel_mutants().items() if only is None or name in set(only)]
    tasks: list[tuple[KernelMutant | None, str, list[str]]] = []
    for port, stage in dict.fromkeys((m.port, m.stage) for m in chosen):
        tasks.append((None, port, [stage]))
    tasks += [(m, m.port, [m.stage]) for m in chosen]
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(judge_kernels, *task, device, profile, timeout) for task in tasks]
        for done in as_completed(waiting):
            if seen:
                seen(done.result())
    return [done.result() for done in waiting]


def as_json(kills: list[KernelKill], device: str) -> dict[str, object]:
    """The matrix as a JSON object."""
    rows = []
    for kill in kills:
        mutant = kill.mutant
        about = {"id": None, "stage": kill.judged, "class": None, "what": "the kernels as they are", "port": kill.port}
        if mutant:
            about |= {"id": mutant.id, "stage": mutant.stage, "class": mutant.suspect, "what": mutant.what}
        found = {"first_failing_stage": kill.stage, "first_failing_case": kill.case, "message": kill.message}
        rows.append({**about, "verdict": kill.verdict, **found, "suspect": kill.suspect})
    return {"schema": 1, "device": device, "kernels": rows}


def as_markdown(document: dict[str, object]) -> str:
    """The page of the documentation, out of the JSON object."""
    rows: list[dict[str, str | None]] = document["kernels"]  # type: ignore[assignment]
    wrong = [row for row in rows if row["id"]]
    killed = sum(row["verdict"] == "FAIL" for row in wrong)
    lines = [
        "# Kill matrix of kernels",
        "",
        "Each row is `fastimpl` with one edit of its text, compiled and judged on the device; *case* is the first that",
        "failed. `kvproof mutants --gpu --device cuda --markdown docs/kill-matrix-gpu.md` repeats it.",
        "",
        f"{document['device']}: {killed} of {len(wrong)} killed; the kernels as they are pass the same stages.",
        "",
        "| mutant | stage | what is wrong | class | case | named |",
        "|---|---|---|---|---|---|",
    ]
    for row in wrong:
        where = f"`{row['first_failing_case']}`" if row["verdict"] == "FAIL" else "**survives**"
        cells = (row["id"], row["stage"], row["what"], row["class"], where, row["suspect"] or "")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"
