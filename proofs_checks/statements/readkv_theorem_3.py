"""ReadKV Thm. 3, the certificate: summed squared output errors within beta_K S_K + beta_V S_V at ReadKV's schedules."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import readkv_proposition_12
from proofs_checks.statements.attention_error import attention_error
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.readkv_step import random_layer, step_of, tie_layer
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-theorem-3",
    source="ReadKV Thm. 3, certificate",
    claim="The squared output errors summed over query heads are at most max_h beta_K S_K + max_h beta_V S_V, with the "
    "factors of Prop. 12 at the schedules that Algorithm 1 chooses.",
    hypotheses="Nonnegative nonincreasing gains (Lemma 7); integer budgets; every head's gamma finite.",
    kind=Kind.UPPER_BOUND,
    tight="Prop. 12's two-token tie as a layer, one key bit and one bit per value: ratio .99999997.",
    hazard="As Prop. 12. Everything is formed in transformed coordinates, where the value transform keeps norms.",
    finding="Sharp for one head; with several heads the maxima over heads cost. On the shipped capture at two bits "
    "per key "
    "and value it is vacuous: the root of the bound is some 10^4 times the error, through kappa_V and the value norm.",
)


def hypotheses(instance: Instance) -> None:
    """Layers whose heads all have finite gamma."""
    for layer in instance["layers"]:
        readkv_proposition_12.hypotheses(step_of(layer).heads())
    require(len(instance["layers"]) > 0, "at least one layer")


def coefficients(heads: Instance) -> dict[str, FloatArray]:
    """beta_K,h and beta_V,h of every query head, with the objectives S_K,h and S_V,h. [H * G]."""
    found, one = readkv_proposition_12.factors(heads), attention_error(heads)
    return {
        "beta_K": 0.5 * one.value_spread**2 * found["kappa_K"] * found["gamma_K"],
        "beta_V": 2 * found["kappa_V"] * found["gamma_V"],
        "S_K": found["S_K"],
        "S_V": found["S_V"],
    }


def left(instance: Instance) -> FloatArray:
    """sum_h ||o_h - o^_h||^2. [N]."""
    return np.array([float(readkv_proposition_12.left(step_of(layer).heads()).sum()) for layer in instance["layers"]])


def certificate(layer: dict[str, Any]) -> float:
    """The right side of one layer."""
    parts = coefficients(step_of(layer).heads())
    return float(parts["beta_K"].max() * parts["S_K"].sum() + parts["beta_V"].max() * parts["S_V"].sum())


def right(instance: Instance) -> FloatArray:
    """max beta_K sum S_K + max beta_V sum S_V. [N]."""
    return np.array([certificate(layer) for layer in instance["layers"]])


def guard(instance: Instance) -> FloatArray:
    """Prop. 12's guards summed, the quotient A / S times S, and the sums over heads. [N]."""
    guards = [float(readkv_proposition_12.guard(step_of(layer).heads()).sum()) for layer in instance["layers"]]
    sizes = np.array([layer["keys"].size * layer["queries"].shape[1] for layer in instance["layers"]])
    return np.array(guards) + gamma(60) * sizes * right(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The two-token tie.

    >>> check(tight_instance()).tightest > 0.9999999
    True
    """
    return {"layers": [tie_layer()]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random layers read at random budgets."""
    return {"layers": [random_layer(rng) for _ in range(min(count, 25))]}


def on_capture(step: Any) -> Instance:
    """The capture step as a layer at the run's rates."""
    return {"layers": [step.readkv_layer()]}


def vacuous(instance: Instance) -> Any:
    """No better than what holds for any two averages, summed over query heads. Bool [N]."""
    result = []
    for layer in instance["layers"]:
        heads = step_of(layer).heads()
        result.append(certificate(layer) >= float(readkv_proposition_12.trivial(heads).sum()))
    return np.array(result)


def describe(instance: Instance) -> dict[str, FloatArray]:
    """Largest coefficients, error and bound (roots of the sums)."""
    parts = [coefficients(step_of(layer).heads()) for layer in instance["layers"]]
    worst = {name: np.array([part[name].max() for part in parts]) for name in ("beta_K", "beta_V")}
    return {**worst, "error": np.sqrt(left(instance)), "bound": np.sqrt(right(instance))}
