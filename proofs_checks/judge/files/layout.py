"""What lies where in a folder of cases: `cases.json`, and per call a folder with its scalars and its tensors.

DIR/cases.json                                    format, dialect, profile, stages and dtypes that were written
DIR/port.json                                     optional, by the port: DTYPES, ACCUMULATE, OUTPUT, TIES
DIR/attention/head-map@float32/call.json          scalars, dtypes, shapes, and the results to write
DIR/attention/head-map@float32/inputs.safetensors
DIR/attention/head-map@float32/outputs.safetensors  by the port
DIR/attention/shift.changed@float32/...           the second call of a metamorphic case
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.dialects import DIALECTS, PAPER
from proofs_checks.judge.files.tensors import STORED
from proofs_checks.judge.judging import Prepared, prepare
from proofs_checks.numbers import FORMATS

FORMAT = 1
MANIFEST, PORT, CALL, INPUTS, OUTPUTS = (
    "cases.json",
    "port.json",
    "call.json",
    "inputs.safetensors",
    "outputs.safetensors",
)


def in_files(case: Case) -> bool:
    """Whether files can deliver a case: not how arrays lie in memory, that a port raised, or calls of a trial."""
    return case.delivery == "plain" and not case.must_raise and case.trial is None


def folder_of(case: Case, dtype: str, changed: bool = False) -> PurePosixPath:
    """The folder of one call, relative to DIR."""
    return PurePosixPath(case.stage, f"{case.name}{'.changed' if changed else ''}@{dtype}")


def chosen_cases(
    stages: Sequence[str], profile: str, dtypes: Sequence[str], dialect: str = PAPER
) -> Iterator[tuple[Case, str]]:
    """Every case and dtype that the files hold, in the order of the stages."""
    for stage in stages:
        for case in DIALECTS[dialect].cases_of(stage):
            if within_profile(case, profile) and in_files(case):
                yield from ((case, dtype) for dtype in dtypes if dtype in case.dtypes)


def calls_of(case: Case, dtype: str, dialect: str = PAPER) -> list[Prepared]:
    """The calls of a case: one, or two for a metamorphic one."""
    stage = DIALECTS[dialect].stage(case.stage)
    first = prepare(case, dtype, stage=stage)
    if case.relation is None:
        return [first]
    return [first, prepare(case, dtype, case.relation.change(first.carried), stage)]


@dataclass(frozen=True)
class CallFiles:
    """The content of one call's folder."""

    call: dict[str, Any]
    tensors: dict[str, Any]
    dtypes: dict[str, str]


def call_files(prepared: Prepared, dtype: str) -> CallFiles:
    """What a program is given for one call."""
    tensors: dict[str, Any] = {}
    dtypes: dict[str, str] = {}
    lists: dict[str, int] = {}
    scalars: dict[str, Any] = {}
    for name, value in prepared.sent.items():
        if isinstance(value, (list, tuple)):
            lists[name] = len(value)
        parts = {f"{name}_{i}": part for i, part in enumerate(value)} if name in lists else {name: value}
        for part, array in parts.items():
            if isinstance(array, (np.ndarray, np.generic)):
                tensors[part] = np.asarray(array)
                dtypes[part] = dtype if prepared.stage.arguments.get(name) == "input" else tensors[part].dtype.name
            else:
                scalars[part] = array
    described = {name: _described(dtypes[name], array.shape) for name, array in sorted(tensors.items())}
    call = {
        "format": FORMAT,
        "id": prepared.case.id,
        "call": "changed" if prepared.changed else "first",
        "stage": prepared.case.stage,
        "dtype": dtype,
        "arguments": scalars,
        "lists": lists,
        "tensors": described,
        "results": results_of(prepared, dtype),
    }
    return CallFiles(call, tensors, dtypes)


def _described(dtype: str, shape: Sequence[int]) -> dict[str, Any]:
    return {"dtype": dtype, "stored": STORED[dtype], "shape": list(shape)}


def results_of(prepared: Prepared, dtype: str) -> dict[str, Any]:
    """The results to write: role, dtype of a port that declares nothing, and shape; a list counts its parts."""
    types = {"output": dtype, "float": "float32", "index": "int64"}
    described: dict[str, Any] = {}
    for name, kind in prepared.stage.results.items():
        role = "float" if kind == "floats" else kind
        value = prepared.reference[name]
        several = isinstance(value, (list, tuple))
        for part, array in ({f"{name}_{i}": v for i, v in enumerate(value)} if several else {name: value}).items():
            described[part] = {"role": role, **_described(types.get(role, role), np.shape(array))}
    return described


def check_dtypes(dtypes: Sequence[str]) -> str | None:
    """What is wrong with a list of dtypes, if anything."""
    unknown = [d for d in dtypes if d not in FORMATS]
    if unknown or not dtypes:
        return f"expected some of {', '.join(FORMATS)}, got {unknown[0]!r}" if unknown else "expected a dtype"
    return "each dtype once" if len(set(dtypes)) < len(dtypes) else None
