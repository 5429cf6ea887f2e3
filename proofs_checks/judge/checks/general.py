"""The two plain checks: every element within its bound, and every element equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proofs_checks.judge.judgement import Call, Judgement, compare, compare_exactly
from proofs_checks.numbers import Precision

BoundFunction = Callable[[Mapping[str, Any], Mapping[str, Any], Precision], Mapping[str, Any]]
Check = Callable[[Call], Judgement]


def exactly(call: Call) -> Judgement:
    """Every judged result equals the reference, bit for bit up to the sign of zero."""
    judgement = Judgement()
    for name in call.names():
        compare_exactly(judgement, name, call.answer[name], call.reference[name])
    return judgement


def within(bound_function: BoundFunction) -> Check:
    """A check that asks error / bound <= 1 of every element of every judged result."""

    def check(call: Call) -> Judgement:
        judgement = Judgement()
        bounds = bound_function(call.inputs, call.reference, call.precision)
        for name in call.names():
            compare(judgement, name, call.answer[name], call.reference[name], bounds[name])
        return judgement

    return check
