"""Judges every wrong kernel on a device, several at a time, and then the right ones on the cases that told."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.outcome import Outcome
from proofs_checks.judge.report import BAD
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session, live_session
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.gpu.registry import KernelMutant, kernel_mutants
from proofs_checks.mutants.gpu.source import write_port


@dataclass(frozen=True)
class KernelKill:
    """What became of one wrong kernel: the case that told, and what the kernels as they are answered to it."""

    mutant: KernelMutant
    verdict: str
    case: str | None = None
    message: str = ""
    suspect: str | None = None
    unspoilt: str = ""

    @property
    def right(self) -> bool:
        """Whether the wrong kernel was caught, by a case that the right one passes."""
        return self.verdict in BAD and self.unspoilt == "PASS"


@dataclass(frozen=True)
class Judge:
    """Where and on how many cases kernels are judged."""

    device: str | None
    profile: str = "quick"
    timeout: float = 120.0

    def outcomes(self, session: Session, cases: Iterable[Case]) -> Iterator[Outcome]:
        """Each case in each dtype that the port declares."""
        for case in cases:
            for dtype in session.declared.dtypes:
                if dtype in case.dtypes:
                    try:
                        yield run_case(session, case, dtype)
                    except PortStopped as stopped:
                        yield Outcome(case, dtype, stopped.verdict, Judgement(), str(stopped))

    def wrong(self, mutant: KernelMutant) -> KernelKill:
        """Judge a wrong kernel up to the first case that tells; the one that it names goes first, of any profile."""
        cases = [c for c in cases_of(mutant.stage) if within_profile(c, self.profile) or c.name == mutant.first]
        cases.sort(key=lambda case: case.name != mutant.first)
        with tempfile.TemporaryDirectory() as folder:
            spec = write_port(Path(folder), mutant)
            with live_session(str(spec), self.device, self.timeout) as session:
                for outcome in self.outcomes(session, cases):
                    if outcome.verdict in BAD:
                        faults = outcome.judgement.faults
                        text = faults[0].message if faults else outcome.message
                        suspect = outcome.suspect or outcome.case.suspect
                        return KernelKill(mutant, outcome.verdict, outcome.name, text, suspect)
        return KernelKill(mutant, "PASS")

    def unspoilt(self, port: str, names: set[str]) -> dict[str, str]:
        """The verdicts of the kernels as they are on cases by name, dtype included."""
        verdicts = {}
        stages = {name.partition("/")[0] for name in names}
        cases = [c for stage in stages for c in cases_of(stage) if any(n.partition("@")[0] == c.id for n in names)]
        with tempfile.TemporaryDirectory() as folder:
            spec = write_port(Path(folder), None, port)
            with live_session(str(spec), self.device, self.timeout) as session:
                for outcome in self.outcomes(session, cases):
                    verdicts[outcome.name] = outcome.verdict
        return verdicts


def kernel_matrix(
    judge: Judge,
    workers: int = 12,
    seen: Callable[[KernelKill], None] | None = None,
    only: Iterable[str] | None = None,
) -> list[KernelKill]:
    """Each mutant on its own stage, then the right kernels on the cases that told. ``seen`` hears of each verdict."""
    chosen = [m for name, m in kernel_mutants().items() if only is None or name in set(only)]
    with ThreadPoolExecutor(workers) as pool:
        waiting = [pool.submit(judge.wrong, mutant) for mutant in chosen]
        for done in as_completed(waiting):
            if seen:
                seen(done.result())
        kills = [done.result() for done in waiting]
        told = {p: {k.case for k in kills if k.case and k.mutant.port == p} for p in {m.port for m in chosen}}
        right = dict(zip(told, pool.map(lambda p: judge.unspoilt(p, told[p]), told), strict=True))
    return [
        KernelKill(k.mutant, k.verdict, k.case, k.message, k.suspect, right[k.mutant.port].get(k.case or "", ""))
        for k in kills
    ]


def as_json(kills: list[KernelKill], device: str) -> dict[str, object]:
    """The matrix as a JSON object."""
    rows = []
    for kill in kills:
        m = kill.mutant
        about = {"id": m.id, "port": m.port, "stage": m.stage, "class": m.suspect, "what": m.what}
        found = {"case": kill.case, "message": kill.message, "suspect": kill.suspect, "unspoilt": kill.unspoilt}
        rows.append({**about, "verdict": kill.verdict, **found, "killed": kill.right})
    return {"schema": 1, "device": device, "kernels": rows}


def as_markdown(document: dict[str, object]) -> str:
    """The page of the documentation, out of the JSON object."""
    rows: list[dict[str, str | None]] = document["kernels"]  # type: ignore[assignment]
    killed = sum(bool(row["killed"]) for row in rows)
    lines = [
        "# Kill matrix of kernels",
        "",
        "Each row is `fastimpl` with one edit of its text, compiled and judged on the device up to the first case that",
        "tells, which the kernels as they are pass. `kvproof mutants --gpu --device cuda --json FILE` repeats it.",
        "",
        f"{document['device']}: {killed} of {len(rows)} killed.",
        *(f"\n{note}" for note in document.get("notes", ())),  # type: ignore[attr-defined]
        "",
        "| mutant | stage | what is wrong | class | case | right kernels on it |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        where = f"`{row['case']}`" if row["case"] else "**survives**" if row["verdict"] == "PASS" else "not run"
        cells = (row["id"], row["stage"], row["what"], row["class"], where, row["unspoilt"] or "not run")
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"
