"""ReadKV Thm. 3, stagewise optimality: both schedules of Algorithm 1 minimise their calibrated objectives."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.allocation import best_gain, gained
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.readkv_step import random_layer, step_of, tie_layer
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray, IntArray

ABOUT = About(
    id="readkv-theorem-3-allocation",
    source="ReadKV Thm. 3, allocation",
    claim="The key schedule minimises S_K over all schedules within B_K, and the value schedule minimises S_V at the "
    "attention that the key schedule gives.",
    hypotheses="Nonnegative nonincreasing gains (Lemma 7); integer budgets B_K, B_V >= 0.",
    kind=Kind.LOWER_BOUND,
    tight="Every layer: equality with the dynamic programme.",
    hazard="Gains from a distortion curve in floats are non-monotone by 1e-16: the stored gains are used.",
    finding="Stagewise, not joint: a worse key schedule can have the better output.",
)


def hypotheses(instance: Instance) -> None:
    """At least one layer with legal budgets."""
    require(len(instance["layers"]) > 0, "at least one layer")
    for layer in instance["layers"]:
        require(layer["key_budget"] >= 0 and layer["value_budget"] >= 0, "B_K >= 0 and B_V >= 0")


def stages(instance: Instance) -> list[tuple[FloatArray, IntArray, int]]:
    """(weighted gains [1, M, 8], chosen depths [1, M], budget) of both stages of every layer."""
    result = []
    for layer in instance["layers"]:
        step = step_of(layer)
        depths = (step.read["key_depths"].ravel(), step.read["value_depths"].ravel())
        for weights, chosen, budget in zip(step.stage_weights(), depths, step.budgets, strict=True):
            result.append((weights[None, :, None] * step.cache.gains, chosen[None], budget))
    return result


def left(instance: Instance) -> FloatArray:
    """Objective reduction of the chosen schedule, key then value stage of every layer. [2 N]."""
    return np.concatenate([gained(gains, depths) for gains, depths, _ in stages(instance)])


def right(instance: Instance) -> FloatArray:
    """The largest reduction of any legal schedule. [2 N]."""
    return np.concatenate([best_gain(gains, budget) for gains, _, budget in stages(instance)])


def guard(instance: Instance) -> FloatArray:
    """Two sums of at most 8 M terms; weighted gains rounded once, which may order near ties either way. [2 N]."""
    return np.concatenate(
        [3 * gamma(8 * gains.shape[1] + 4) * gains.sum(axis=(-2, -1)) for gains, _, _ in stages(instance)]
    )


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The two-token tie: one key bit, one bit per value.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return {"layers": [tie_layer()]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random layers and budgets."""
    return {"layers": [random_layer(rng) for _ in range(min(count, 25))]}


def on_capture(step: Any) -> Instance:
    """The capture step as a layer, cut to 64 tokens: the dynamic programme is quadratic."""
    return {"layers": [step.readkv_layer(tokens=64)]}
