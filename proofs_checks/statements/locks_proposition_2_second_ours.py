"""Ours, beside Locks Prop. 2: the second bound carries sqrt((B-1)/B), and then it is sharp."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_2 as first
from proofs_checks.statements import locks_proposition_2_second as second
from proofs_checks.statements.locks_proposition_2 import left
from proofs_checks.statements.locks_proposition_2_second import guard
from proofs_checks.statements.page_model import needs_page
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-2-second-ours",
    source="beside Locks Prop. 2",
    claim="|estimated - exact log-mass| <= sqrt((B-1)/B) |q_perp| sqrt(tau_r) / sqrt(d).",
    hypotheses="An unquantised summary of rank 1 <= r <= min(B, d).",
    kind=Kind.UPPER_BOUND,
    tight="One residual mode, one key up and the other two down alike, the logit large: ratio 1 - log(3)/X.",
    hazard="The computed residuals do not sum to zero exactly: twice their mean is in the guard.",
    finding="Sharp for every B >= 3 (a kept mode needs room beside the dropped one).",
    ours=True,
    proof="The residuals of a page sum to zero: sum delta_i = 0, and c_i = V^T delta_i. So x_i = q_perp.residual_i "
    "obeys "
    "sum x_i = 0, hence x_i^2 = (sum of the others)^2 <= (B-1) sum_{i' != i} x_{i'}^2, that is max x_i^2 <= ((B-1)/B) "
    "sum x_i^2. With sum x_i^2 <= |q_perp|^2 tau_r (Cauchy-Schwarz) and Prop. 2's first bound the claim follows.",
)
SEARCH = ("queries", "keys")
hypotheses = needs_page


def right(instance: Instance) -> FloatArray:
    """sqrt((B-1)/B) times Prop. 2's second bound. [N]."""
    size = instance["keys"].shape[1]
    return np.sqrt((size - 1) / size) * second.right(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Three keys, residual logits (1, -1/2, -1/2) times 1e7 / sqrt(2).

    >>> check(tight_instance()).tightest > 0.999999
    True
    """
    return first.tight_instance()


sample, cases, on_capture = first.sample, first.cases, first.on_capture
