"""From a case and its inputs to what is stored: input tensors, and what every result is judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from proofs_checks.golden import rules_choice, rules_fixed_rate, rules_locks, rules_readkv
from proofs_checks.golden.job import DtypeError, Job, Judged, by_bound, make_job, parts
from proofs_checks.golden.rules_choice import asked
from proofs_checks.judge.case import Case
from proofs_checks.judge.stages import STAGES

Rule = Callable[[Job], dict[str, Judged]]

RULES: dict[str, Rule] = {
    **rules_locks.RULES,
    **rules_readkv.RULES,
    **rules_fixed_rate.RULES,
    **rules_choice.RULES,
}
"""Stages whose answers more can be said of than by a bound of their row, or by their check."""


@dataclass(frozen=True)
class Made:
    """A golden case as arrays. Tensors are called ``kind/name``: inputs/queries, expected/lse, bound/output/float16."""

    case: Case
    dtypes: tuple[str, ...]
    arguments: dict[str, Any]
    lists: dict[str, int]
    tensors: dict[str, Any]
    true_dtypes: dict[str, str]
    results: dict[str, dict[str, Any]]
    """Role, rule and shape of every result that is judged."""


def plain(job: Job) -> dict[str, Judged]:
    """The rule of a stage that has a bound, or whose check is asked."""
    if job.stage.bound is not None:
        return by_bound(job, job.stage.bound)
    return asked(job)


def make(case: Case, inputs: Mapping[str, Any]) -> Made:
    """Evaluate a case on ``inputs``. Dtypes for which it says nothing are left out; GoldenError where none is left."""
    stage = STAGES[case.stage]
    job = make_job(case, stage, inputs)
    rule = RULES.get(stage.name, plain)
    while True:
        try:
            judged = rule(job)
            break
        except DtypeError as error:
            if len(job.dtypes) == 1:
                raise
            job = replace(job, dtypes=tuple(d for d in job.dtypes if d != error.dtype))
    return _stored(job, {n: j for n, j in judged.items() if case.judged is None or n in case.judged})


CARRIED = {"int8": "int8", "uint8": "uint8", "index": "int64"}


def _stored(job: Job, judged: dict[str, Judged]) -> Made:
    arguments: dict[str, Any] = {}
    lists: dict[str, int] = {}
    tensors: dict[str, Any] = {}
    true: dict[str, str] = {}
    for name, value in job.carried.items():
        if not isinstance(value, (np.ndarray, np.generic, list)):
            whole = isinstance(value, float) and value.is_integer()
            arguments[name] = int(value) if whole else value  # 2.0 and 2 are one number in canonical JSON
            continue
        if isinstance(value, list):
            lists[name] = len(value)
        half = job.stage.arguments.get(name) == "input" and "bfloat16" in job.dtypes
        for part, array in parts(name, value).items():
            key = f"inputs/{part}"
            tensors[key] = np.asarray(array)
            true[key] = "bfloat16" if half else tensors[key].dtype.name
    for name, one in judged.items():
        for kind, array in one.tensors.items():
            kind, _, dtype = kind.partition("/")
            key = "/".join(filter(None, (kind, name, dtype)))
            role = job.stage.results.get(name, "float")
            whole = kind in ("expected", "low", "high") and role in CARRIED
            tensors[key] = np.asarray(array).astype(CARRIED[role]) if whole else np.asarray(array)
            true[key] = tensors[key].dtype.name
    return Made(job.case, job.dtypes, arguments, lists, tensors, true, _results(job, judged))


def _results(job: Job, judged: dict[str, Judged]) -> dict[str, dict[str, Any]]:
    results = {}
    for name, value in job.stage.named(job.stage.reference(**job.inputs)).items():
        role = {"floats": "float"}.get(job.stage.results[name], job.stage.results[name])
        for part, array in parts(name, value).items():
            if part in judged:
                results[part] = {"role": role, "rule": judged[part].rule, "shape": list(np.shape(array))}
    return results
