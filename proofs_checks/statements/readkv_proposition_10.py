"""ReadKV Prop. 10, upper bound: integer depths cost at most kappa_int = 1.2637... times fractional ones."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import continuous_lower, geometric, geometric_gains, greedy
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import magnitudes, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

# 3 * 4^(1/3) / (e ln 4) rounded upward; `constants.kappa_int` encloses it.
KAPPA_INT = 1.2637407212158112

ABOUT = About(
    id="readkv-proposition-10",
    source="ReadKV Prop. 10, I <= kappa C",
    claim="On the curve 4^-t the best integer schedule costs at most kappa_int = 3 4^(1/3) / (e ln 4) times the best "
    "fractional one.",
    hypotheses="Weights >= 0; W and B nonnegative integers.",
    kind=Kind.UPPER_BOUND,
    tight="500 equal weights, B = 306: the fraction .612 sits at the maximiser 4/3 - 1/ln 4 = .61198.",
    hazard="A multiplier that bisection has not quite found overstates C: the Lagrangian's value is used, which never "
    "does. Guard gamma_{N+8} of the objective.",
    finding="Sharp in the limit of many equal weights.",
)


def hypotheses(instance: Instance) -> None:
    """Nonnegative weights, whole nonnegative cap and budget."""
    require(instance["weights"] >= 0, "weights are nonnegative")
    require(instance["cap"] >= 0 and instance["budget"] >= 0, "W and B are nonnegative integers")


def left(instance: Instance) -> FloatArray:
    """I_W(B), the integer optimum (greedy, exact by Prop. 8). [N]."""
    weights = instance["weights"]
    return geometric(weights, greedy(geometric_gains(weights, instance["cap"]), instance["budget"]))


def right(instance: Instance) -> FloatArray:
    """kappa_int C_W(B), C from below by duality. [N]."""
    return KAPPA_INT * continuous_lower(instance["weights"], instance["cap"], instance["budget"])


def guard(instance: Instance) -> FloatArray:
    """Rounding of both objectives: M terms, each with a power, two logs and a product. [N].

    The dual's slope term enters with |sum t - B|, at most M W, times ln 4 tau <= ln 4 times the largest weight; it is
    rounded relative to its value, which the bisection makes as small as the resolution of the level (80 halvings).
    """
    weights = instance["weights"]
    cost = geometric(weights, 0 * weights)  # every term is at most its value at depth 0
    terms = weights.shape[1] * (instance["cap"] + 1)
    interior = geometric(weights, greedy(geometric_gains(weights, instance["cap"]), instance["budget"]))
    bound: FloatArray = gamma(terms + 60) * np.minimum(cost, 8 * interior)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """500 equal weights and a budget of 306.

    >>> bool(check(tight_instance()).tightest * KAPPA_INT > 1.263740720)
    True
    """
    return {"weights": np.ones((1, 500)), "cap": 1, "budget": 306}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Equal, spread and partly zero weights; any budget up to past the cap."""
    items, cap = small(rng, 1, 12), small(rng, 0, 8)
    weights = np.power(10.0, rng.uniform(-1, 1) * rng.standard_normal((count, items))) * magnitudes(rng, count, 1)
    if rng.random() < 0.3:
        weights = np.ones((count, items))
    if rng.random() < 0.3:
        weights = weights * (rng.random((count, items)) < 0.7)
    return {"weights": weights, "cap": cap, "budget": small(rng, 0, items * cap + 2)}


def cases() -> dict[str, Instance]:
    """Budget past N x W, no positive weight, and a cap of 0."""
    weights = np.array([[4.0, 1.0]])
    return {
        "budget-beyond-all": {"weights": weights, "cap": 2, "budget": 9},
        "no-positive-weight": {"weights": 0 * weights, "cap": 2, "budget": 2},
        "cap-zero": {"weights": weights, "cap": 0, "budget": 2},
    }
