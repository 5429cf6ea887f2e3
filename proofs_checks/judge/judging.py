"""Judging one answer of one case: its form first, then its content; the same for a live port, a file, or a test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.checks.general import exactly
from proofs_checks.judge.judgement import Call, Fault, Judgement, compare, says_nothing
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.numbers import Precision


@dataclass(frozen=True)
class Prepared:
    """A case at one input dtype: what the port receives, the same bits in float64, and the reference's results."""

    case: Case
    stage: Stage
    carried: dict[str, Any]
    exact: dict[str, Any]
    reference: dict[str, Any]
    changed: bool = False
    """Whether this is the second call of a metamorphic case."""

    @property
    def sent(self) -> dict[str, Any]:
        """What the port receives, poison included."""
        return self.case.poison(self.carried) if self.case.poison else self.carried


def prepare(case: Case, dtype: str, inputs: Mapping[str, Any] | None = None, stage: Stage | None = None) -> Prepared:
    """Round the case's inputs to ``dtype`` and run the reference on exactly these bits.

    ``inputs`` stand in for the case's own; ``stage`` is the row that judges, the paper's where none is given.
    """
    stage = stage or STAGES[case.stage]
    carried = stage.round_inputs(case.inputs() if inputs is None else inputs, dtype)
    exact = stage.exact_inputs(carried)
    if case.must_raise:
        return Prepared(case, stage, carried, exact, {})
    return Prepared(case, stage, carried, exact, stage.named(stage.reference(**exact)), inputs is not None)


TYPES = {"int8": "int8", "uint8": "uint8", "index": "an integer type"}


def _fits(role: str, dtype: Any) -> bool:
    if role == "index":
        return bool(dtype.kind in "iu")
    return bool(dtype == role) if role in TYPES else bool(dtype.kind == "f")


def form_fault(stage: Stage, answer: Mapping[str, Any], reference: Mapping[str, Any]) -> Fault | None:
    """The first result whose dtype, shape or finiteness is wrong.

    Floating results may be wider than declared; NaN and +inf never pass, -inf only where the reference has it. An empty
    list has no type, so that of no elements does not matter.
    """
    for name, role in stage.results.items():
        if role == "floats":
            fault = _list_fault(name, answer[name], reference[name])
            if fault is not None:
                return fault
            continue
        value, want = np.asarray(answer[name]), np.asarray(reference[name])
        if value.size and not _fits(role, value.dtype):
            return Fault(name, None, f"{name}: expected {TYPES.get(role, 'a floating type')}, got {value.dtype}")
        if value.shape != want.shape:
            return Fault(name, None, f"{name}: expected shape {list(want.shape)}, got {list(value.shape)}")
        if value.dtype.kind == "f":
            bad = ~np.isfinite(value) & ~(np.isneginf(value) & np.isneginf(want))
            if bad.any():
                index = tuple(int(i) for i in np.argwhere(bad)[0])
                count = f"{int(bad.sum())} of {bad.size} elements are not finite"
                return Fault(name, index, f"{name}{list(index)} is {value[index]}, expected {want[index]:.6g}; {count}")
    return None


def _list_fault(name: str, answer: Any, reference: Any) -> Fault | None:
    """The first entry of a list of floating arrays whose dtype, shape or finiteness is wrong."""
    if not isinstance(answer, (list, tuple)) or len(answer) != len(reference):
        came = f"{len(answer)}" if isinstance(answer, (list, tuple)) else type(answer).__name__
        return Fault(name, None, f"{name}: expected a list of {len(reference)} arrays, got {came}")
    for i, (part, want) in enumerate(zip(answer, reference, strict=True)):
        value = np.asarray(part)
        if value.dtype.kind != "f" or value.shape != want.shape:
            wanted = f"{list(want.shape)} of a floating type"
            return Fault(name, (i,), f"{name}[{i}]: expected {wanted}, got {list(value.shape)} {value.dtype}")
        if not np.isfinite(value).all():
            return Fault(name, (i,), f"{name}[{i}]: expected finite values")
    return None


def judge(
    prepared: Prepared,
    answer: Mapping[str, Any],
    precision: Precision,
    lowest_index: bool = False,
    ask: Callable[[Any], Mapping[str, Any] | None] | None = None,
) -> Judgement:
    """Judge one answer to ``prepared`` by the case's kind. ``ask`` gives the port's answers to other cases."""
    fault = form_fault(prepared.stage, answer, prepared.reference)
    if fault is not None and (prepared.case.judged is None or fault.result in prepared.case.judged):
        return Judgement(faults=[fault])
    case = prepared.case
    call = Call(
        case.stage,
        prepared.exact,
        prepared.reference,
        {n: v if prepared.stage.results.get(n) == "floats" else np.asarray(v) for n, v in answer.items()},
        precision,
        case.kind,
        lowest_index,
        case.judged,
        ask or (lambda case: None),
    )
    plain_exact = case.kind == "exact" and prepared.stage.bound is not None
    judgement = exactly(call) if plain_exact else prepared.stage.check(call)
    if case.kind == "bounded" and prepared.stage.bound is not None:
        judgement.refused = _refusal(prepared, call)
    return judgement


def _refusal(prepared: Prepared, call: Call) -> str | None:
    """Why the bound says nothing, if zeros or the answer shifted by one element would pass."""
    bound = prepared.stage.bound
    if bound is None:
        return None
    bounds = {n: b for n, b in bound(call.inputs, call.reference, call.precision).items() if n in call.names()}
    if all(np.asarray(b).size == 0 for b in bounds.values()):
        return None
    zeros = {name: np.zeros_like(np.asarray(call.reference[name], dtype=np.float64)) for name in bounds}
    if says_nothing(call.reference, bounds, zeros) and any(np.any(call.reference[n] != 0) for n in bounds):
        return f"zeros would pass at {call.precision.input} inputs and {call.precision.accumulate} accumulation"
    return None


def judge_relation(
    first: Prepared, answer: Mapping[str, Any], second: Prepared, changed: Mapping[str, Any], precision: Precision
) -> Judgement:
    """Judge a metamorphic case: the second answer against what the first one implies, within both bounds."""
    judgement = Judgement()
    relation, bound = first.case.relation, first.stage.bound
    if relation is None or bound is None:
        raise ValueError(f"{first.case.id}: a metamorphic case needs a relation and a bound")
    for prepared, given in ((first, answer), (second, changed)):
        fault = form_fault(prepared.stage, given, prepared.reference)
        if fault is not None:
            return Judgement(faults=[fault])
    expected = relation.expect({name: np.asarray(v, dtype=np.float64) for name, v in answer.items()})
    implied = relation.expect(dict(bound(first.exact, first.reference, precision)))
    moved = relation.expect({name: np.zeros_like(np.asarray(v, dtype=float)) for name, v in answer.items()})
    own = bound(second.exact, second.reference, precision)
    for name in first.reference:
        allowed = np.abs(implied[name] - moved[name]) + own[name]
        compare(judgement, name, changed[name], expected[name], allowed)
    return judgement
