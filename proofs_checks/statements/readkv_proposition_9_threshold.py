"""ReadKV Prop. 9, the example: a = (64, 1), W = B = 1 has the allocation (1, 0) for every threshold in [1, 16]."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import clipped_depths
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-9-threshold",
    source="ReadKV Prop. 9, tau not unique",
    claim="For weights (64, 1), W = 1 and B = 1 the clipped depths are (1, 0) for every tau in [1, 16].",
    hypotheses="1 <= tau <= 16, tau = 4^x.",
    kind=Kind.IDENTITY,
    tight="Every tau.",
    no_constant="an identity; there is no bound to scale",
    finding="Outside [1, 16] the depths differ, so the interval is exactly this one.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """log4 tau in [0, 2]."""
    require((instance["level"] >= 0) & (instance["level"] <= 2), "1 <= tau <= 16")


def left(instance: Instance) -> FloatArray:
    """How far the clipped depths stand from (1, 0). [N]."""
    level = instance["level"]
    depths = clipped_depths(np.broadcast_to([64.0, 1.0], (len(level), 2)), level, 1.0)
    distance: FloatArray = np.abs(depths - np.array([1.0, 0.0])).sum(axis=-1)
    return distance


def right(instance: Instance) -> FloatArray:
    """0. [N]."""
    return np.zeros(len(instance["level"]))


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """tau = 1, 4, 16.

    >>> check(tight_instance()).left.tolist()
    [0.0, 0.0, 0.0]
    """
    return {"level": np.array([0.0, 1.0, 2.0])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random thresholds inside the interval."""
    return {"level": rng.uniform(0, 2, count)}
