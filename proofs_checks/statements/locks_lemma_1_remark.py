"""Locks, remark after Lemma 1: on three equal pages a random choice of one has expected error at most R."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import magnitudes, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-1-remark",
    source="Locks App. A.1, remark",
    claim="With three equal-mass one-token pages, keeping one uniformly at random has expected error "
    "(1/3) sum |v_i - mean| <= R, R the largest value norm.",
    hypotheses="Three pages of one token and equal mass; values chosen before the coin is tossed.",
    kind=Kind.UPPER_BOUND,
    tight="An equilateral triangle on the sphere of radius R: exactly R.",
    hazard="None: three vectors; guard gamma_{d+6} R.",
    finding="Sharp, against 4R/3 for every deterministic choice.",
)
SEARCH = ("values",)


def hypotheses(instance: Instance) -> None:
    """Exactly three values."""
    require(instance["values"].shape[1] == 3, "three pages of one token", instance["values"].shape)


def left(instance: Instance) -> FloatArray:
    """The expected error of the uniform choice. [N]."""
    values = instance["values"]
    error: FloatArray = np.linalg.norm(values - values.mean(axis=1, keepdims=True), axis=-1).mean(axis=-1)
    return error


def right(instance: Instance) -> FloatArray:
    """R. [N]."""
    largest: FloatArray = np.linalg.norm(instance["values"], axis=-1).max(axis=-1)
    return largest


def guard(instance: Instance) -> FloatArray:
    """A mean, a difference, a norm of d squares and a mean of three: at most d + 10 roundings of at most 4R. [N]."""
    return 4 * gamma(instance["values"].shape[-1] + 10) * right(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Unit vectors at 0, 120 and 240 degrees.

    >>> check(tight_instance()).tightest > 1 - 1e-14
    True
    """
    angles = np.array([0, 2, 4]) * np.pi / 3
    return {"values": np.stack([np.cos(angles), np.sin(angles)], axis=-1)[None]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random triples, on the sphere half of the time."""
    width = small(rng, 1, 5)
    values = rng.standard_normal((count, 3, width))
    if rng.random() < 0.5:
        values = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return {"values": values * magnitudes(rng, count, 2)}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls."""
    from proofs_checks.statements.rigorous import balls, each_row, largest, norm, total

    values = balls(instance["values"][0])
    centred = values - np.array([total(column) / 3 for column in values.T], dtype=object)[None]
    return total(each_row(norm, centred)) / 3, largest(each_row(norm, values))
