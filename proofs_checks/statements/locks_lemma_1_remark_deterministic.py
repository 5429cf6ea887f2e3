"""Locks, remark after Lemma 1: on three equal pages every deterministic choice of one has worst-case error 4R/3."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_lemma_1_ii import adversary
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-1-remark-deterministic",
    source="Locks App. A.1, remark (4/3)",
    claim="With three equal-mass one-token pages, every deterministic value-blind choice of one page has worst-case "
    "error at least 4R/3, so the random choice is strictly better.",
    hypotheses="Three pages of one token and equal mass.",
    kind=Kind.LOWER_BOUND,
    tight="Each of the three choices: exactly 4R/3.",
    finding="Sharp; the gap to the randomised R is 4/3.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """One of three pages is kept."""
    require((instance["kept"].sum(axis=-1) == 1) & (instance["kept"].shape[1] == 3), "one of three pages is kept")


def left(instance: Instance) -> FloatArray:
    """Error against the adversarial values, R = 1. [N]."""
    kept = instance["kept"]
    return adversary(np.full(kept.shape, float(instance["logit"])), kept)


def right(instance: Instance) -> FloatArray:
    """4/3. [N]."""
    return np.full(len(instance["kept"]), 4 / 3)


def guard(instance: Instance) -> FloatArray:
    """Equal logits: a log of 2 and of 1, one exp, one division, then a mean of equal values; 40 roundings. [N]."""
    return np.full(len(instance["kept"]), 4 * gamma(40))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """All three choices.

    >>> check(tight_instance()).left.round(12).tolist() == [round(4 / 3, 12)] * 3
    True
    """
    return {"kept": np.eye(3, dtype=bool), "logit": 0}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """All three choices at another common logit."""
    return {"kept": np.eye(3, dtype=bool), "logit": small(rng, -3, 3)}
