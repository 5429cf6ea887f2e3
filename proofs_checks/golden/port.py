"""Judging a port by the golden files alone: its calls are the stored inputs, right is what is stored beside them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from proofs_checks.golden import manifest as manifests
from proofs_checks.golden.check import SUMS, Failure, flat, inputs_of, load_case, load_manifest, read_sums
from proofs_checks.golden.flags import FLAGS
from proofs_checks.golden.judging import faults
from proofs_checks.golden.manifest import Entry
from proofs_checks.judge.case import Case
from proofs_checks.judge.declared import PortError
from proofs_checks.judge.judging import prepare
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session, live_session
from proofs_checks.judge.stages import STAGES

ACCUMULATES = ("float32", "float64")


def check_port(
    place: Path, port: str, only: Sequence[str] | None = None, timeout: float = 20.0
) -> tuple[int, list[Failure]]:
    """Judge ``port`` on every stored case of its stages and dtypes; how many calls were judged, and what is wrong.

    Raises PortError where the port cannot be used, accumulates in another type than the bounds are for, or has no case;
    ContentError where a golden file is not what it was.
    """
    with live_session(port, timeout=timeout) as session:
        return check_session(place, session, only)


def check_session(place: Path, session: Session, only: Sequence[str] | None = None) -> tuple[int, list[Failure]]:
    """`check_port` of a port that is open already."""
    sums = read_sums((place / SUMS).read_bytes())
    manifest = load_manifest((place / manifests.NAME).read_bytes(), sums)
    declared, judged, found = session.declared, 0, []
    if declared.accumulate not in ACCUMULATES or declared.output not in (None, *declared.dtypes):
        raise PortError(
            f"{session.spec}: stored bounds are for float32 sums and outputs of the input dtype; use verify"
        )
    for entry in manifest.cases.values():
        if entry.stage not in declared.functions or (only is not None and entry.stage not in only):
            continue
        tensors = load_case((place / entry.file).read_bytes(), entry, sums)
        for dtype in (d for d in declared.dtypes if d in entry.dtypes):
            messages = call(session, entry, tensors, dtype)
            judged += messages is not None
            found += [Failure(entry.file, f"{entry.id}@{dtype}", text) for text in messages or []]
    if not judged:
        raise PortError(f"{session.spec} has none of the stages at a stored dtype; see kvproof golden list")
    return judged, found


def call(session: Session, entry: Entry, tensors: dict[str, object], dtype: str) -> list[str] | None:
    """Make one call; what is wrong with the answer, or None where the port does not provide it."""
    name = entry.id.partition("/")[2]
    case = Case(entry.stage, name, "bounded", FLAGS[entry.flags[0]].bug_class, entry.why, dict)
    prepared = prepare(case, dtype, inputs_of(entry, tensors), STAGES[entry.stage])
    try:
        reply = session.call(prepared, dtype)
    except PortStopped as stopped:
        return [str(stopped)]
    if reply["status"] == "not_provided":
        return None
    if reply["status"] != "ok":
        return [reply["message"]]
    return faults(entry, tensors, flat(reply["results"]), dtype)
