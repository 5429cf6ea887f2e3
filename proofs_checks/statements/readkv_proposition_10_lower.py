"""ReadKV Prop. 10, lower bound: fractional depths cost no more than the best integer ones."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import readkv_proposition_10
from proofs_checks.statements.allocation import continuous_lower, geometric, geometric_gains, greedy
from proofs_checks.statements.readkv_proposition_10 import guard, hypotheses
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-10-lower",
    source="ReadKV Prop. 10, C <= I",
    claim="C_W(B) <= I_W(B): every integer schedule is a fractional one.",
    hypotheses="Weights >= 0; W and B nonnegative integers.",
    kind=Kind.UPPER_BOUND,
    tight="Equal weights and a budget that divides evenly: equality.",
    hazard="C enters as its Lagrangian value, which never overstates it and equals it at the true multiplier.",
    finding="Sharp.",
)


def left(instance: Instance) -> FloatArray:
    """C_W(B). [N]."""
    return continuous_lower(instance["weights"], instance["cap"], instance["budget"])


def right(instance: Instance) -> FloatArray:
    """I_W(B). [N]."""
    weights = instance["weights"]
    return geometric(weights, greedy(geometric_gains(weights, instance["cap"]), instance["budget"]))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Four equal weights, budget 8: depths 2 each.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return {"weights": np.ones((1, 4)), "cap": 3, "budget": 8}


sample, cases = readkv_proposition_10.sample, readkv_proposition_10.cases
