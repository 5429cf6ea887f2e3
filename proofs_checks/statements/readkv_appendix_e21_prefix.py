"""ReadKV App. E.2.1, first counter-example.

Gains (0, 100) and (1, 1) with budget 2 cost the greedy rule a factor 50.
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import best_gain, gained, greedy
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-e21-prefix",
    source="ReadKV App. E.2.1, hidden gain",
    claim="Without nonincreasing gains the greedy rule fails: on (0, 100), (1, 1) with budget 2 it collects 2 of "
    "100; with "
    "a hidden gain h the optimum is h/2 times better.",
    hypotheses="Gains (0, h) and (1, 1), h >= 2, budget 2.",
    kind=Kind.LOWER_BOUND,
    tight="Every h: equality.",
    finding="No factor bounds the loss: h is free.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """A hidden gain of at least 2."""
    require(instance["hidden"] >= 2, "h >= 2")


def left(instance: Instance) -> FloatArray:
    """Optimum over greedy total. [N]."""
    hidden = instance["hidden"]
    gains = np.ones((len(hidden), 2, 2))
    gains[:, 0, 0], gains[:, 0, 1] = 0.0, hidden
    ratio: FloatArray = best_gain(gains, 2) / gained(gains, greedy(gains, 2))
    return ratio


def right(instance: Instance) -> FloatArray:
    """h / 2. [N]."""
    half: FloatArray = instance["hidden"] / 2
    return half


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """The papers' h = 100: 100 against 2.

    >>> check(tight_instance()).left.tolist()
    [50.0]
    """
    return {"hidden": np.array([100.0])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Integer h."""
    return {"hidden": rng.integers(2, 10**6, count).astype(np.float64)}
