"""From an adapter to an entry of docs/public-ports.json: install, import, judge; whatever fails is the verdict."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofs_checks.fixtures import checkout_directory
from proofs_checks.judge.report import Report
from proofs_checks.judge.suite import find_case
from proofs_checks.judge.verify import verify
from proofs_checks.public.adapters import Adapter
from proofs_checks.public.environments import prepare, versions

SCHEMA = 1
STAGE_TIMEOUT = 300.0
"""Seconds of one call: some packages integrate numerically, cell by cell."""

WORDS = {"PASS": "right", "FAIL": "wrong", "ERROR": "does not run"}

Progress = Callable[[dict[str, Any]], None]


def judge_all(chosen: list[Adapter], folder: Path, profile: str, progress: Progress) -> list[dict[str, Any]]:
    """The entries of all adapters, each with what its ALSO_WITH asks for."""
    entries = []
    for adapter in chosen:
        for extra in ((), *adapter.also_with):
            entries.append(judge_one(adapter, extra, folder, profile))
            progress(entries[-1])
    return entries


def judge_one(adapter: Adapter, extra: tuple[str, ...], folder: Path, profile: str) -> dict[str, Any]:
    """Judge one adapter with extra requirements; never raises for what the package does."""
    name = "-".join([adapter.name, *("".join(c if c.isalnum() else "_" for c in one) for one in extra)])
    requirements = (f"{adapter.package}=={adapter.version}", *adapter.requires, *extra)
    ready = prepare(folder, name, requirements, adapter.install, adapter.modules)
    port = _relative(adapter.path)
    entry: dict[str, Any] = {
        "package": adapter.package,
        "version": adapter.version,
        "adapter": port,
        "environment": name,
        "drives": adapter.drives,
        "with": list(extra),
        "notes": list(ready.notes),
        "versions": {},
    }
    if ready.failure:
        return {**entry, "verdict": WORDS["ERROR"], "reason": ready.failure, "stages": [], "departures": []}
    try:
        entry["versions"] = versions(ready.python)
    except (OSError, subprocess.SubprocessError) as error:
        entry["notes"] += [f"its versions could not be read: {error}"]
    report = verify(str(adapter.path), None, profile, None, STAGE_TIMEOUT, python=str(ready.python))
    return {**entry, **_told(report)}


def _told(report: Report) -> dict[str, Any]:
    """What the page needs of a report: the verdict, and per stage the cases, departures and failures."""
    stages = []
    for row in report.stages:
        if row.verdict in ("NOT_PROVIDED", "REFUSED"):
            continue
        failures = [
            {
                "case": failure.case,
                "why": find_case(failure.case.partition("@")[0]).why,
                "message": failure.message,
            }
            for failure in row.failures
        ]
        ratio = None if row.worst_ratio is None else min(row.worst_ratio, 1e308)
        stages.append(
            {
                "stage": row.stage,
                "verdict": row.verdict,
                "worst_ratio": ratio,
                "cases": row.cases,
                "passed": row.cases - len(row.failures),
                "failures": failures,
            }
        )
    reason = report.notes[-1] if report.verdict == "ERROR" and report.notes else ""
    departures = [{"id": d.id, "what": d.what} for d in report.departures]
    return {"verdict": WORDS[report.verdict], "reason": reason, "stages": stages, "departures": departures}


def _relative(path: Path) -> str:
    root = checkout_directory("examples").parent
    return path.resolve().relative_to(root).as_posix() if path.resolve().is_relative_to(root) else str(path)
