"""Locks Lemma 1(i), the bound: dropping pages moves the output by at most 2R times the dropped mass."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT
from proofs_checks.statements.sampling import normal, page, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-1-i",
    source="Locks Lemma 1(i)",
    claim="Attending only the pages in S moves the output by at most 2R(1 - gamma_S), R the largest value norm.",
    hypotheses="S keeps at least one token. If nothing is dropped, both sides are 0.",
    kind=Kind.UPPER_BOUND,
    tight="Values -Ru on the kept tokens and +Ru on the dropped ones: equality for every S.",
    hazard="1 - gamma_S cancels, and so does o - o_S: both sides are formed from softmax means within S and within its "
    "complement. Guard 2(2n + 20) u R times the dropped mass's error, else thousands of false violations.",
    finding="Sharp for every keys, query and S.",
)


def hypotheses(instance: Instance) -> None:
    """S, a bool mask ``kept`` [N, T] over tokens, keeps something in every instance."""
    require(instance["kept"].any(axis=-1), "S is nonempty", "an instance keeps no token")


def softmax_within(logits: FloatArray, mask: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Softmax weights [N, T] over the tokens of ``mask`` alone, and their log-mass [N]; an empty mask gives 0, -inf.

    >>> softmax_within(np.zeros((1, 3)), np.array([[True, True, False]]))[0].tolist()
    [[0.5, 0.5, 0.0]]
    """
    masked = np.where(mask, logits, -np.inf)
    total = log_sum_exp(masked)
    return np.exp(masked - np.where(np.isneginf(total), 0.0, total)[:, None]), total


def dropped_mass(instance: Instance) -> FloatArray:
    """1 - gamma_S without cancellation: sigmoid of the difference of the two log-masses. [N]."""
    logits, kept = instance["logits"], instance["kept"]
    inside, outside = softmax_within(logits, kept)[1], softmax_within(logits, ~kept)[1]
    gap = inside - outside  # +inf if nothing is dropped
    with np.errstate(over="ignore"):
        mass: FloatArray = 1.0 / (1.0 + np.exp(gap))
    return mass


def left(instance: Instance) -> FloatArray:
    """||o_S - o|| = eps ||mean over S^c - mean over S||, by the exact identity. [N]."""
    logits, kept, values = instance["logits"], instance["kept"], instance["values"]
    means = [np.einsum("nt,ntd->nd", softmax_within(logits, mask)[0], values) for mask in (kept, ~kept)]
    return dropped_mass(instance) * np.linalg.norm(means[1] - means[0], axis=-1)


def right(instance: Instance) -> FloatArray:
    """2R(1 - gamma_S). [N]."""
    return 2 * np.max(np.linalg.norm(instance["values"], axis=-1), axis=-1) * dropped_mass(instance)


def guard(instance: Instance) -> FloatArray:
    """Rounding of the two means, given the logits and the dropped mass, which enters both sides as one number.

    A softmax within a set has weights that sum to 1 within 2n + 20 roundings; two means, each at most R.
    """
    tokens, width = instance["values"].shape[1:]
    largest = np.max(np.linalg.norm(instance["values"], axis=-1), axis=-1)
    spread = np.ptp(instance["logits"], axis=-1)
    roundings = 2 * tokens + 20 + width + 2 * np.minimum(spread, 745.0)  # shifted exponents round by u |x - m|
    bound: FloatArray = 2 * roundings * UNIT * largest * dropped_mass(instance)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """One channel, R = 1: the kept token carries -1, the two dropped ones +1.

    >>> check(tight_instance()).tightest > 1 - 1e-13
    True
    """
    return {
        "logits": np.array([[0.0, 1.0, -2.0]]),
        "kept": np.array([[True, False, False]]),
        "values": np.array([[[-1.0], [1.0], [1.0]]]),
    }


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Logits of random queries and keys, random nonempty S, values aligned or not."""
    tokens, width = small(rng, 1, 12), small(rng, 1, 6)
    kept = rng.random((count, tokens)) < rng.uniform(0.1, 0.9)
    kept[~kept.any(axis=1), 0] = True
    values = page(rng, count, tokens, width)
    if rng.random() < 0.3:  # near the worst case
        values = np.where(kept, -1.0, 1.0)[:, :, None] + normal(rng, count, tokens, width, low=-12, high=-1)
    return {"logits": normal(rng, count, tokens), "kept": kept, "values": values}


def cases() -> dict[str, Instance]:
    """An unpopulated complement: nothing is dropped, both sides are 0."""
    return {
        "unpopulated-complement": {
            "logits": np.zeros((1, 2)),
            "kept": np.ones((1, 2), bool),
            "values": np.ones((1, 2, 1)),
        },
        "one-token": {"logits": np.zeros((1, 1)), "kept": np.ones((1, 1), bool), "values": np.ones((1, 1, 1))},
    }


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, for one instance of dyadic inputs."""
    from proofs_checks.statements.rigorous import balls, each_row, largest, norm, softmax, total

    logits, values = balls(instance["logits"][0]), balls(instance["values"][0])
    kept = instance["kept"][0]
    weights = softmax(logits)
    output = weights @ values
    within = softmax(logits[kept]) @ values[kept]
    return norm(within - output), 2 * largest(each_row(norm, values)) * total(weights[~kept])


def on_capture(step: Any) -> Instance:
    """Locks' own selection as S, one batch entry per query head."""
    from proofs_checks.statements.locks_theorem_1_iii import dropped

    instance: Instance = dropped(step.group())
    return instance
