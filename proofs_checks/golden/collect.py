"""Which cases are golden: the families of this package, and every case of the judge that is small and plain."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np

from proofs_checks.golden.families import attention, baselines, capture, locks, readkv, statements
from proofs_checks.golden.job import GoldenError
from proofs_checks.golden.storable import storable
from proofs_checks.judge.case import Case
from proofs_checks.judge.files.layout import in_files
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of

LARGEST = 12600
"""Numbers in the inputs of a case that comes from the judge: what 50 digits evaluate in a second."""

LARGEST_WIDTH = 16
"""Channels of such a case of `locks_build_summary`: projectors are stored whole."""

LEFT_OUT = {
    **dict.fromkeys(
        (
            *(f"lloyd_max_codebook/normal-d64-{bits}-bits" for bits in (5, 6, 7, 8)),
            "lloyd_max_codebook/sphere-d16-8-bits",
        ),
        "many levels may stray far from the optimum's at a thousandth of its distortion; verify judges by that",
    ),
    **dict.fromkeys(
        ("sparq_attention/mean-of-all", "sparq_attention/norm-factor", "sparq_attention/zero-query"),
        "tokens are equal, so that the choice is free and the results hang on it",
    ),
    **dict.fromkeys(
        (
            "readkv_attention/large-logits",
            "readkv_attention/light-tokens",
            "readkv_attention/one-live-channel",
            "readkv_attention/pooled-values",
            "readkv_restricted_attention/large-logits",
            "readkv_restricted_attention/light-tokens",
            "readkv_restricted_attention/odd-tail",
            "readkv_restricted_attention/odd-tail-waits",
            "readkv_restricted_attention/one-live-channel",
        ),
        "budget is left for channels that the query sees by a port's rounding alone",
    ),
}
"""Cases of the judge that are small, plain and not stored, with the reason."""


@cache
def own_cases() -> dict[str, list[Case]]:
    """The cases of this package, by stage."""
    found: dict[str, list[Case]] = {stage: [] for stage in STAGES}
    for module in (attention, locks, readkv, baselines, capture, statements):
        for case in module.cases():
            found[case.stage].append(case)
    return found


def golden_cases(stage: str) -> list[Case]:
    """The golden cases of a stage; none where its results are drawn at random.

    Raises GoldenError where another stage has none, or where an id stands twice.
    """
    if not storable(stage):
        return []
    cases = own_cases()[stage] + [c for c in cases_of(stage) if _small(c) and c.id not in LEFT_OUT]
    names = [case.name for case in cases]
    twice = {name for name in names if names.count(name) > 1}
    if twice or not cases:
        raise GoldenError(f"{stage}: {f'the id {min(twice)!r} stands twice' if twice else 'no golden case'}")
    return cases


def _small(case: Case) -> bool:
    if not in_files(case) or case.relation is not None or case.poison is not None or case.profile != "quick":
        return False
    if case.base is not None:  # a stored case over again
        return False
    inputs = case.inputs()
    if case.stage == "locks_build_summary" and inputs["key_pages"].shape[-1] > LARGEST_WIDTH:
        return False
    return numbers(inputs) <= LARGEST


def numbers(arrays: Mapping[str, Any]) -> int:
    """How many numbers some arrays hold.

    >>> numbers({"x": np.zeros((2, 3)), "bits": 4})
    7
    """
    return sum(np.size(value) for value in arrays.values())
