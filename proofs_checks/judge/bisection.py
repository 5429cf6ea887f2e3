"""Where in a pipeline a port goes wrong: its own stages one by one among the reference's, then known mistakes.

Notes on a failing stage; a verdict never depends on them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from proofs_checks.judge.ask import asker
from proofs_checks.judge.case import Case
from proofs_checks.judge.hypotheses import Evidence, consistent
from proofs_checks.judge.judging import form_fault, judge, prepare
from proofs_checks.judge.outcome import Outcome
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.registry import Mutant, mutants

Part = tuple[str, ...]
"""Stages that are tried together: a nibble order is free as long as packing and unpacking agree (AMB-13)."""

DECODE: tuple[Part, ...] = (
    ("locks_build_summary",),
    ("locks_quantize_summary",),
    ("locks_pack_basis", "locks_unpack_basis"),
    ("locks_dequantize_summary",),
    ("locks_score_pages",),
    ("exact_page_scores",),
    ("locks_page_shares",),
    ("locks_select_pages",),
    ("sparse_attention",),
)

READER: tuple[Part, ...] = (
    ("readkv_rotate",),
    ("readkv_key_importance",),
    ("readkv_choose_depths",),
    ("readkv_tree", "readkv_decode"),  # a port decodes by its own tree
    ("readkv_value_importance",),
)

PIPELINES: dict[str, tuple[Part, ...]] = {
    "locks_decode": DECODE,
    "locks_decode_paged": (*DECODE, ("locks_decode",)),
    "readkv_attention": READER,
    "readkv_restricted_attention": READER,
}
"""The stages that are made of other stages, with these in the order in which they run."""

SEARCHED = ("locks_decode", "locks_decode_paged")
"""The stages whose answers are compared with those of known mistakes."""

TRIED = 6
"""Failing cases that a port's own stages are tried on, the smallest first."""


class Broken(Exception):  # noqa: N818  (an outcome of trying, not a fault of ours)
    """A stage of the port gave nothing to go on with."""


@dataclass
class Finding:
    """What bisection has to say: lines for the report, and the class of fault where all that is consistent share it."""

    notes: list[str] = field(default_factory=list)
    suspect: str | None = None


def bisect(session: Session, stage: Stage, outcomes: Sequence[Outcome]) -> Finding:
    """Look into the failures of a pipeline stage. Never raises for what the port does."""
    single = [o for o in outcomes if o.case.plain]
    failed = [o for o in single if o.verdict == "FAIL"]
    finding = Finding()
    if not failed:
        return finding
    try:
        failed.sort(key=_size)
        if session.takes(replace(failed[0].case, delivery="strided")):  # a live port: files answer no new calls
            finding.notes += by_parts(session, stage, failed[:TRIED])
        searched = failed if stage.name in SEARCHED else []
        evidence = [e for o in searched if (e := _evidence(session, o)) is not None]
    except PortStopped as stopped:
        return Finding([*finding.notes, f"bisection: stopped: {stopped}"])
    passed = [(o.case, o.dtype) for o in single if o.verdict == "PASS"]
    known = consistent(hypotheses(stage.name), evidence, passed, session.declared.precision)
    if known:
        finding.notes.append(_known(known, len(evidence)))
        classes = {mutant.suspect for mutant in known}
        finding.suspect = classes.pop() if len(classes) == 1 else None
    return finding


def _size(outcome: Outcome) -> int:
    return sum(np.size(value) for value in outcome.case.inputs().values())


def _evidence(session: Session, outcome: Outcome) -> Evidence | None:
    """The port's answer to a failing case, asked for once more; None where it does not come again."""
    prepared = prepare(outcome.case, outcome.dtype)
    reply = session.call(prepared, outcome.dtype)
    if reply["status"] != "ok":
        return None
    answer = {name: np.asarray(value) for name, value in reply["results"].items()}
    return Evidence(prepared, answer, session.declared.precision(outcome.dtype))


def hypotheses(stage: str) -> list[Mutant]:
    """The known mistakes in ``stage`` and in the stages that it is made of, in the order in which they run.

    Those of unusual sizes explain no step of a usual size.

    >>> {mutant.stage for mutant in hypotheses("locks_decode")} - {"locks_decode"} <= set(sum(DECODE, ()))
    True
    """
    order = [name for part in PIPELINES[stage] for name in part] + [stage]
    found = [mutant for mutant in mutants().values() if mutant.stage in order and not mutant.sized]
    return sorted(found, key=lambda mutant: order.index(mutant.stage))


def _known(known: Sequence[Mutant], cases: int) -> str:
    """The line on known mistakes that explain every failing case of one call (relations make two)."""
    whose = "the failing case are" if cases == 1 else f"all {cases} failing cases of one call are"
    if len(known) == 1:
        one = known[0]
        return f"bisection: pages and output of {whose} those of this mistake in {one.stage}: {one.what}"
    listed = "; ".join(f"{mutant.stage}: {mutant.what}" for mutant in known)
    return f"bisection: pages and output of {whose} consistent with each of {len(known)} mistakes: {listed}"


def by_parts(session: Session, stage: Stage, failed: Sequence[Outcome]) -> list[str]:
    """A line for every part that breaks a failing case when it alone is the port's; else how far the parts go."""
    functions = session.declared.functions
    parts = [part for part in PIPELINES[stage.name] if all(name in functions for name in part)]
    if not parts:
        return []
    first: dict[Part, str] = {}
    for outcome in failed:
        broken = _first_broken(session, stage, outcome, parts)
        if broken is not None:
            first.setdefault(broken[0], f"{outcome.name}: {broken[1]}")
    if first:
        return [
            f"bisection: with the port's {' and '.join(part)} and the reference before and after it, {text}"
            for part, text in first.items()
        ]
    return [_all_right(session, stage, failed[0], parts)]


def _first_broken(session: Session, stage: Stage, outcome: Outcome, parts: Sequence[Part]) -> tuple[Part, str] | None:
    for part in parts:
        fault = _fault_with(session, stage, outcome, part)
        if fault is not None:
            return part, fault
    return None


def _all_right(session: Session, stage: Stage, outcome: Outcome, parts: Sequence[Part]) -> str:
    """The line for parts that are right one by one: they break together, or the pipeline does not use them so."""
    together: list[str] = []
    for part in parts:
        together += part
        fault = _fault_with(session, stage, outcome, tuple(together))
        if fault is not None:
            return (
                f"bisection: no stage of the port breaks {outcome.name} alone; up to {part[-1]} together they do, with "
                f"the reference after them: {fault}"
            )
    return (
        f"bisection: the port's {', '.join(together)} give a right answer to {outcome.name} when the reference joins "
        f"them: the fault lies in how {stage.name} joins them, or in its own copies of them"
    )


def _fault_with(session: Session, stage: Stage, outcome: Outcome, names: Part) -> str | None:
    """What is wrong with the reference's pipeline with these stages the port's; None where all is right."""
    prepared = prepare(outcome.case, outcome.dtype)
    pipeline = getattr(build_port({name: ported(session, name, outcome.dtype) for name in names}), stage.name)
    try:
        with np.errstate(all="ignore"):  # what the port's stage hands on may be anything
            answer = stage.named(pipeline(**stage.exact_inputs(prepared.sent)))
    except NotImplementedError:
        return None
    except Broken as broken:
        return str(broken)
    except PortStopped:
        raise
    except Exception as error:
        return f"the reference cannot go on: {error}"
    declared = session.declared
    ask = asker(session) if "readkv_tree" in names else None
    faults = judge(prepared, answer, declared.precision(outcome.dtype), declared.lowest_index, ask).faults
    return faults[0].message if faults else None


def ported(session: Session, name: str, dtype: str) -> Callable[..., Any]:
    """The port's stage ``name`` as a function of float64 arrays, for a pipeline of the reference."""
    stage = STAGES[name]
    case = Case(name, "bisection", "bounded", "A", "one stage of a pipeline", dict, probe=False)

    def call(**inputs: Any) -> Any:
        prepared = prepare(case, dtype, inputs)
        reply: Mapping[str, Any] = session.call(prepared, dtype)
        if reply["status"] == "not_provided":
            raise NotImplementedError(reply["message"])
        if reply["status"] != "ok":
            raise Broken(f"{name}: {reply['message']}")
        fault = form_fault(stage, reply["results"], prepared.reference)
        if fault is not None:
            raise Broken(f"{name}: {fault.message}")
        results = stage.exact_inputs(reply["results"])
        return results if len(results) > 1 else next(iter(results.values()))

    return call
