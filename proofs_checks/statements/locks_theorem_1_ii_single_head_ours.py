"""Ours, beside Locks Thm. 1(ii): with a single query head the exponent is 2."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.locks_theorem_1_ii import guard, left
from proofs_checks.statements.retention import crowd_step, needs_group, retention, sample_group
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-theorem-1-ii-single-head-ours",
    source="beside Locks Thm. 1(ii)",
    claim="For G = 1 the selection loses at most 2 eta nats of coverage: exponent 2, not 4.",
    hypotheses="As Thm. 1, and G = 1.",
    kind=Kind.UPPER_BOUND,
    tight="A good page underestimated by eta, a bad one overestimated by eta, the estimates tied: equality.",
    hazard="As Thm. 1(ii).",
    finding="Sharp.",
    ours=True,
    proof="One head's share is e^s / Z with a Z that no page index touches, so ranking by estimated shares is ranking "
    "by "
    "estimated scores. Cor. 2 applies to the scores themselves, with c = 0 and Delta = eta, not to the shares with "
    "Delta = 2 eta. For G >= 2 the heads' normalisers differ and the average is not monotone in any one score.",
)


def hypotheses(instance: Instance) -> None:
    """Thm. 1's, and a single query head."""
    needs_group(instance)
    require(instance["queries"].shape[1] == 1, "G = 1", f"G = {instance['queries'].shape[1]}")


def right(instance: Instance) -> FloatArray:
    """2 eta. [N]."""
    return 2 * retention(instance).eta


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two free pages, eta = 1.

    >>> check(tight_instance()).tightest > 1 - 1e-8
    True
    """
    return crowd_step(0, 1.0, 1)


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Thm. 1's random steps with the first query alone."""
    instance = sample_group(rng, count)
    return {**instance, "queries": instance["queries"][:, :1]}
