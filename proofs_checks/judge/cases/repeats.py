"""Trials of every stage: called again, and each sequence of a batch alone; bit for bit where a port declares it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.judge.case import Calls, Inputs
from proofs_checks.judge.judgement import Fault, Judgement

AGAIN = "the same call three times: right each time, and the same bits where REPRODUCIBLE is declared"
ALONE = "every sequence of a batch called alone: right too, and the same bits where REPRODUCIBLE is declared"
CALLS = 3
BATCHED = ("queries", "block_table", "tokens", "pages")
"""Inputs of a paged stage that have a row per sequence; pools are shared."""


def called_again(calls: Calls, inputs: Inputs) -> Judgement:
    """Every repetition is judged by itself: state that a call leaves behind must not reach the next one."""
    (first, judgement), *others = calls.judged(inputs, CALLS)
    for i, (answer, again) in enumerate(others, start=2):
        _join(judgement, again, f"call {i}")
        if calls.reproducible:
            _compare_bits(judgement, first, answer, f"call {i} and call 1 of the same inputs")
    return judgement


def batch_of_one(calls: Calls, inputs: Inputs) -> Judgement:
    """Both ways are judged within their bounds of the same answer, so they agree within both bounds together."""
    [(batch, judgement)] = calls.judged(inputs)
    for n in range(len(inputs["tokens"])):
        alone = {name: value[n : n + 1] if name in BATCHED else value for name, value in inputs.items()}
        [(answer, one)] = calls.judged(alone)
        _join(judgement, one, f"sequence {n} alone")
        if calls.reproducible and not one.faults:
            row = {name: _same_width(value[n : n + 1], answer[name]) for name, value in batch.items()}
            _compare_bits(judgement, row, answer, f"sequence {n} in the batch and alone")
    return judgement


def _same_width(row: Any, alone: Any) -> Any:
    """A batch's row cut to the width of a lone call: pages are padded to the longest sequence of the batch."""
    return row[tuple(slice(0, size) for size in np.shape(alone))]


def _join(judgement: Judgement, other: Judgement, where: str) -> None:
    judgement.faults += [
        Fault(f.result, f.index, f"{where}: {f.message}", f.ratio, f.suspect or "K", f.picture) for f in other.faults
    ]
    if other.worst_ratio is not None:
        judgement.see(other.worst_ratio)


def _compare_bits(judgement: Judgement, left: Mapping[str, Any], right: Mapping[str, Any], what: str) -> None:
    for name, value in left.items():
        if not same_bits(value, right[name]):
            text = f"{name}: {what} differ in their bits, and REPRODUCIBLE is declared"
            judgement.faults.append(Fault(name, None, text, suspect="I"))


def same_bits(left: Any, right: Any) -> bool:
    """Whether two results are equal bit for bit, lists of arrays part by part.

    >>> same_bits(np.zeros(2), np.zeros(2)), same_bits(np.zeros(2), -np.zeros(2))
    (True, False)
    """
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(same_bits(a, b) for a, b in zip(left, right, strict=True))
    left, right = np.asarray(left), np.asarray(right)
    return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
