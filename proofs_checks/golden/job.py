"""One golden case in the making: its inputs in every dtype that holds them exactly, and what a result is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from proofs_checks.golden import (
    fifty_digits,
    fifty_digits_choices,
    fifty_digits_codes,
    fifty_digits_fixed_rate,
    fifty_digits_quantiser,
    fifty_digits_readkv,
    fifty_digits_scores,
)
from proofs_checks.golden.manifest import DTYPES
from proofs_checks.golden.rounding import rounded, three_digits_up
from proofs_checks.judge.case import Case
from proofs_checks.judge.judgement import says_nothing
from proofs_checks.judge.stage import Stage
from proofs_checks.numbers import Precision, round_to

EVALUATORS = (
    fifty_digits,
    fifty_digits_codes,
    fifty_digits_readkv,
    fifty_digits_quantiser,
    fifty_digits_scores,
    fifty_digits_fixed_rate,
    fifty_digits_choices,
)
"""Where the stages are evaluated without rounding: one function of the stage's name each. A new stage adds its own."""

HALF_STEP = 2.0**-24
"""The smallest positive number of float16."""

Array = Any
Bounds = Mapping[str, Mapping[str, Any]]
"""Bounds by dtype and result."""


class GoldenError(ValueError):
    """A case cannot be stored as it is; the message names it and says why."""


class DtypeError(GoldenError):
    """The case says nothing for ports of one dtype, or leaves them a choice that it cannot store."""

    def __init__(self, message: str, dtype: str) -> None:
        super().__init__(message)
        self.dtype = dtype


@dataclass(frozen=True)
class Judged:
    """How one result is judged: a rule of `proofs_checks.golden.judging`, and the tensors that it needs, by kind."""

    rule: str
    tensors: dict[str, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class Job:
    """A case of a stage: what a port receives, the same bits in float64, and the input dtypes that hold them."""

    case: Case
    stage: Stage
    carried: dict[str, Any]
    dtypes: tuple[str, ...]

    @property
    def inputs(self) -> dict[str, Any]:
        """The inputs in float64 and int64."""
        return self.stage.exact_inputs(self.carried)

    def evaluate(self) -> dict[str, Any]:
        """The stage's results without rounding."""
        return dict(evaluator(self.stage.name)(**self.inputs))

    def exact(self) -> dict[str, Array]:
        """The results as arrays: numbers rounded once to float64, integers as int64; empty ones keep their shape."""
        shapes = {n: np.shape(v) for n, v in self.stage.named(self.stage.reference(**self.inputs)).items()}
        found = {}
        for name, value in self.evaluate().items():
            whole = self.stage.results[name] in ("int8", "uint8", "index")
            array = np.array(value, dtype=np.int64) if whole else rounded(value)
            found[name] = array.reshape(shapes[name])
        return found

    def names(self) -> tuple[str, ...]:
        """The results that the case judges."""
        return self.case.judged or tuple(self.stage.results)


def evaluator(stage: str) -> Callable[..., Any]:
    """The function that evaluates a stage without rounding. Raises GoldenError where there is none."""
    for module in EVALUATORS:
        if hasattr(module, stage):
            function: Callable[..., Any] = getattr(module, stage)
            return function
    raise GoldenError(f"{stage}: no evaluation in 50 digits; add a function of this name to a module of EVALUATORS")


def precision(dtype: str) -> Precision:
    """A port's precision where it declares nothing but its input dtype."""
    return Precision(dtype, "float32", dtype)


def common_grid(x: Any) -> Array:
    """Nearest numbers that bf16 and fp16 both hold, where fp16's range allows it.

    >>> common_grid(np.array([1 / 3, 1e-6, 2.0**-26])).tolist()
    [0.333984375, 1.0132789611816406e-06, 0.0]
    """
    near = round_to(x, "bfloat16").astype(np.float64)
    return np.round(near / HALF_STEP) * HALF_STEP


def make_job(case: Case, stage: Stage, inputs: Mapping[str, Any]) -> Job:
    """Put the inputs on a grid that as many of the case's dtypes as possible hold exactly."""
    wanted = [d for d in DTYPES if d in case.dtypes]
    given = dict(inputs)
    if len(wanted) > 1:
        given |= {n: common_grid(v) for n, v in given.items() if stage.arguments.get(n) == "input"}
    carried = stage.round_inputs(given, "float32")
    dtypes = tuple(d for d in wanted if _holds(stage, carried, d))
    if not dtypes:
        raise GoldenError(f"{case.id}: no dtype holds its inputs")
    return Job(case, stage, carried, dtypes)


def _holds(stage: Stage, carried: Mapping[str, Any], dtype: str) -> bool:
    arrays = [v for n, v in carried.items() if stage.arguments.get(n) == "input"]
    rounded_arrays = [round_to(a, dtype).astype(np.float64) for a in arrays]
    return all(
        np.array_equal(r, a.astype(np.float64), equal_nan=True) for r, a in zip(rounded_arrays, arrays, strict=True)
    )


def parts(name: str, value: Any) -> dict[str, Any]:
    """A result as arrays under the names that files use: a list of arrays becomes name_0, name_1, ..."""
    return {f"{name}_{i}": part for i, part in enumerate(value)} if isinstance(value, list) else {name: value}


def equal(expected: Any) -> Judged:
    """Every element exactly."""
    return Judged("equal", {"expected": expected})


def within(expected: Any, bounds: Mapping[str, Any], rule: str = "within") -> Judged:
    """Every element within its bound; one tensor of bounds where all dtypes have the same."""
    upward = {dtype: three_digits_up(np.broadcast_to(b, expected.shape)) for dtype, b in bounds.items()}
    first = next(iter(upward.values()))
    if all(np.array_equal(first, b) for b in upward.values()):
        return Judged(rule, {"expected": expected, "bound": first})
    return Judged(rule, {"expected": expected, **{f"bound/{dtype}": b for dtype, b in upward.items()}})


def by_bound(job: Job, bound: Callable[..., Mapping[str, Any]], rule: str = "within") -> dict[str, Judged]:
    """Results in 50 digits, each within what ``bound`` gives a port of every dtype; exact cases exactly."""
    exact = job.exact()
    if job.case.kind == "exact" and rule == "within":
        return {name: equal(exact[name]) for name in job.names()}
    found: dict[str, dict[str, Any]] = {name: {} for name in job.names()}
    for dtype in job.dtypes:
        bounds = {n: b for n, b in bound(job.inputs, exact, precision(dtype)).items() if n in found}
        zeros = {name: np.zeros_like(exact[name]) for name in bounds}
        if any(np.any(exact[n]) for n in bounds) and says_nothing(exact, bounds, zeros):
            raise DtypeError(f"{job.case.id}: zeros would pass in {dtype}", dtype)
        for name, values in bounds.items():
            found[name][dtype] = values
    return {name: within(exact[name], bounds, rule) for name, bounds in found.items()}
