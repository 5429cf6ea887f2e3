"""Locks Thm. 1(ii): the shared selection keeps at least e^(-4 eta) of the exact selection's group-average coverage."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT
from proofs_checks.statements.retention import crowd_step, needs_group, on_capture_group, retention, sample_group
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-theorem-1-ii",
    source="Locks Thm. 1(ii)",
    claim="The selection by group-averaged estimated shares loses at most 4 eta nats of group-average coverage against "
    "the selection by exact shares, sink and most recent page included.",
    hypotheses="Unquantised rank-r summaries; k >= 2 pages with two distinct forced ones; any tie-break.",
    kind=Kind.UPPER_BOUND,
    tight="Two heads and a crowd of 1000 equal pages that moves against the good page in one head and for the bad one "
    "in "
    "the other: exponent .998 of 4 eta.",
    hazard="Shares are compared in logs; a near-tie may break either way within rounding, which the guard covers.",
    finding="Exponent 4 is approached only with G >= 2 and a crowd that holds the mass; for G = 1 it is 2. On the "
    "shipped "
    "capture the selection keeps .97 to 1 of the exact coverage, where the theorem promises 10^-10 to .04.",
)
hypotheses = needs_group


def left(instance: Instance) -> FloatArray:
    """Nats of group-average coverage lost. [N]."""
    return retention(instance).loss


def right(instance: Instance) -> FloatArray:
    """4 eta. [N]."""
    return 4 * retention(instance).eta


def guard(instance: Instance) -> FloatArray:
    """Log-shares and log-coverages of both sets of scores (as computed, they are the instance), and eta's u. [N]."""
    step = retention(instance)
    return 4 * step.share_guard + 8 * UNIT * (step.eta + np.abs(step.exact).max(axis=(-2, -1)))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The crowd of `retention.crowd_step` with eta = 1/4.

    >>> check(tight_instance()).tightest > 0.9973
    True
    """
    return crowd_step(1000, 0.25, 2)


sample = sample_group


def cases() -> dict[str, Instance]:
    """k = 2 leaves no free slot; one query head; all pages tie; P <= k."""
    keys = np.arange(8.0).reshape(1, 4, 2)
    base = {"queries": np.ones((1, 1, 2)), "keys": keys, "values": keys, "rank": 1, "page_size": 1, "k": 3}
    return {
        "k-is-2": {**base, "k": 2},
        "ties": {**base, "keys": 0 * keys},
        "P-at-most-k": {**base, "k": 4},
        "open-page": {**base, "page_size": 3, "keys": keys[:, :4], "k": 2},
    }


on_capture = on_capture_group


def vacuous(instance: Instance) -> Any:
    """The bound promises no more than the two forced pages hold in any case. Bool [N]."""
    step = retention(instance)
    forced = np.broadcast_to(np.array([0, step.exact.shape[-1] - 1]), (len(step.queries), 2))
    promised = step.best - 4 * step.eta
    return promised <= log_sum_exp(np.stack([step.log_coverage(forced)], axis=-1))


def describe(instance: Instance) -> dict[str, FloatArray]:
    """eta in nats, what was kept of the exact selection's coverage, and what the theorem promises."""
    step = retention(instance)
    return {"eta": step.eta, "retention": np.exp(-step.loss), "promised": np.exp(-4 * step.eta)}
