"""ReadKV Prop. 9: the clipped logarithmic depths minimise the geometric objective under a budget and a cap."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import geometric
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import magnitudes, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.readkv.waterfilling import continuous_depths

ABOUT = About(
    id="readkv-proposition-9",
    source="ReadKV Prop. 9",
    claim="t_i = min(W, max(0, log_4(a_i / tau))) with sum B costs no more than any other feasible fractional depths.",
    hypotheses="Weights >= 0, W > 0, B >= 0; the competitor lies in [0, W] and sums to at most B.",
    kind=Kind.UPPER_BOUND,
    tight="The competitor is the optimum itself: equality.",
    hazard="Depths that sum to B only up to rounding: each ulp of depth costs ln 4 times its term.",
    finding="SciPy's SLSQP finds nothing better (9e-15); the threshold is not unique, see "
    "readkv-proposition-9-threshold.",
)


def hypotheses(instance: Instance) -> None:
    """A feasible problem and a feasible competitor."""
    weights, rival, cap = instance["weights"], instance["rival"], instance["cap"]
    require(weights >= 0, "weights are nonnegative")
    require(cap > 0 and np.all(instance["budget"] >= 0), "W > 0 and B >= 0")
    require((rival >= 0) & (rival <= cap), "the competitor lies in [0, W]")
    slack = gamma(rival.shape[1] + 2) * (instance["budget"] + 1)
    require(rival.sum(axis=-1) <= instance["budget"] + slack, "the competitor sums to at most B")


def optimum(instance: Instance) -> FloatArray:
    """The reference's depths. [N, M]."""
    rows = zip(instance["weights"], instance["budget"], strict=True)
    return np.array([continuous_depths(importance=a, depth_cap=instance["cap"], budget=float(b)) for a, b in rows])


def left(instance: Instance) -> FloatArray:
    """The objective at the clipped depths. [N]."""
    return geometric(instance["weights"], optimum(instance))


def right(instance: Instance) -> FloatArray:
    """The objective at the competitor. [N]."""
    return geometric(instance["weights"], instance["rival"])


def guard(instance: Instance) -> FloatArray:
    """Depths carry M + 20 roundings of W + |log a|, felt ln 4 times the objective; the competitor's slack as well. [N].

    The marginal price of a unit of budget is at most ln 4 times the objective's largest term.
    """
    weights = instance["weights"]
    logs = np.abs(np.log(np.where(weights > 0, weights, 1.0))).max(axis=-1)
    depth_error = gamma(4 * weights.shape[1] + 40) * (instance["cap"] + logs + instance["budget"] + 1)
    terms = geometric(weights, np.minimum(optimum(instance), instance["rival"]))
    return 3 * depth_error * weights.shape[1] * terms


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Weights 16 and 1, budget 3: depths 2.5 and .5.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    weights = np.array([[16.0, 1.0]])
    return {"weights": weights, "rival": np.array([[2.5, 0.5]]), "cap": 8.0, "budget": np.array([3.0])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random weights and budgets, competitors near the optimum or anywhere feasible."""
    items, cap, count = small(rng, 1, 8), float(small(rng, 1, 8)), min(count, 200)
    weights = np.power(10.0, rng.uniform(0, 1.5) * rng.standard_normal((count, items))) * magnitudes(rng, count, 1)
    weights = weights * (rng.random((count, items)) < 0.9)
    budget = rng.random(count) * (items * cap + 1)
    rival = rng.random((count, items)) * cap
    if rng.random() < 0.5:
        best = optimum({"weights": weights, "budget": budget, "cap": cap})
        rival = np.clip(best + 10.0 ** rng.uniform(-9, 0) * rng.standard_normal(best.shape), 0, cap)
    total = rival.sum(axis=-1)
    rival = rival * np.minimum(1.0, budget / np.where(total > 0, total, 1.0))[:, None]
    return {"weights": weights, "rival": rival, "cap": cap, "budget": budget}


def cases() -> dict[str, Instance]:
    """No budget, a budget past the cap, and no positive weight."""
    weights, zero = np.array([[4.0, 1.0]]), np.zeros((1, 2))
    base = {"weights": weights, "rival": zero, "cap": 2.0, "budget": np.zeros(1)}
    return {
        "zero-budget": base,
        "budget-beyond-all": {**base, "budget": np.array([9.0]), "rival": np.array([[2.0, 2.0]])},
        "no-positive-weight": {**base, "weights": zero, "budget": np.ones(1)},
    }


def families() -> list[Instance]:
    """Competitors that SciPy's SLSQP finds from the proportional start."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(9)
    found = []
    for _ in range(8):
        weights, cap = 10.0 ** rng.uniform(-1, 1, 5), 4.0
        budget = float(rng.uniform(1, 18))
        solved = minimize(
            lambda t, a=weights: float(np.sum(a * 4.0**-t)),
            np.full(5, budget / 5),
            method="SLSQP",
            bounds=[(0, cap)] * 5,
            constraints={"type": "ineq", "fun": lambda t, b=budget: b - np.sum(t)},
            options={"ftol": 1e-15},
        )
        rival = np.clip(solved.x, 0, cap)
        rival = rival * min(1.0, budget / rival.sum())
        found.append({"weights": weights[None], "rival": rival[None], "cap": cap, "budget": np.array([budget])})
    return found
