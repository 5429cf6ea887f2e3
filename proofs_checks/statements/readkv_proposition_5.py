"""ReadKV Prop. 5: with no reads the worst-case risk is at least 1, and the answer 0 attains it."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-5",
    source="ReadKV Prop. 5",
    claim="A decoder that reads nothing has worst-case squared error at least 1 over x, y in the unit ball.",
    hypotheses="The answer's law does not depend on x: zero probes, every access class.",
    kind=Kind.LOWER_BOUND,
    tight="The answer 0: risk 1.",
    finding="Sharp; any spread of the answer only adds its second moment.",
)
SEARCH = ("answers",)


def hypotheses(instance: Instance) -> None:
    """Probabilities."""
    probability = instance["probability"]
    require(probability >= 0, "probabilities are nonnegative")
    require(np.abs(probability.sum(axis=-1) - 1) <= gamma(2 * probability.shape[1] + 4), "probabilities sum to 1")


def left(instance: Instance) -> FloatArray:
    """The larger expected squared error at x = y and x = -y, |y| = 1. [N]."""
    answers, probability = instance["answers"], instance["probability"]
    errors = [np.sum(probability * (truth - answers) ** 2, axis=-1) for truth in (1.0, -1.0)]
    return np.maximum(*errors)


def right(instance: Instance) -> FloatArray:
    """1. [N]."""
    return np.ones(len(instance["answers"]))


def guard(instance: Instance) -> FloatArray:
    """Sums of n products, and probabilities that sum to 1 within the hypothesis. [N]."""
    count = instance["answers"].shape[1]
    return 4 * gamma(2 * count + 10) * np.maximum(left(instance), 1.0)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The answer 0.

    >>> check(tight_instance()).left.tolist()
    [1.0]
    """
    return {"answers": np.zeros((1, 1)), "probability": np.ones((1, 1))}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random answers with random probabilities, symmetric ones too."""
    size = small(rng, 1, 6)
    answers = normal(rng, count, size, low=-4, high=1)
    probability = rng.dirichlet(np.ones(size), count)
    if rng.random() < 0.5:
        answers = np.concatenate([answers, -answers], axis=-1)
        probability = np.concatenate([probability, probability], axis=-1) / 2
    return {"answers": answers, "probability": probability}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, the probabilities scaled to sum to 1."""
    from proofs_checks.statements.rigorous import ball, balls, total

    answers, weights = balls(instance["answers"][0]), balls(instance["probability"][0])
    errors = [total(weights * (truth - answers) ** 2) / total(weights) for truth in (ball(1.0), ball(-1.0))]
    return errors[0].max(errors[1]), ball(1.0)
