"""Ours, beside Locks Prop. 2: sigma_{r+1} may stand where the paper has the whole tail's root."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_2 as first
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_proposition_2 import left
from proofs_checks.statements.page_model import model, needs_page, residual_guard, score_guard, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-2-spectral-ours",
    source="beside Locks Prop. 2",
    claim="|estimated - exact log-mass| <= sqrt((B-1)/B) |q_perp| sigma_{r+1} / sqrt(d).",
    hypotheses="An unquantised summary of rank 1 <= r <= min(B, d).",
    kind=Kind.UPPER_BOUND,
    tight="As locks-proposition-2-second-ours: one residual mode.",
    hazard="sigma_{r+1} is off by the SVD's backward error, which is in the guard.",
    finding="Sharp, and never above the paper's bound: with m equal tail modes it is sqrt(m) times smaller.",
    ours=True,
    proof="As locks-proposition-2-second-ours, with sum x_i^2 = q_perp^T (sum residual_i residual_i^T) q_perp <= "
    "sigma_{r+1}^2 |q_perp|^2, because the residuals' second-moment matrix has the eigenvalues sigma_k^2, k > r.",
)
SEARCH = ("queries", "keys")
hypotheses = needs_page


def right(instance: Instance) -> FloatArray:
    """sqrt((B-1)/B) |q_perp| sigma_{r+1} / sqrt(d). [N]."""
    one = model(instance)
    size = one.keys.shape[1]
    return np.sqrt((size - 1) / size) * np.linalg.norm(one.outside, axis=-1) * one.next_sigma / one.root


def guard(instance: Instance) -> FloatArray:
    """The first bound's guard, the residuals' mean, and sigma_{r+1} within twice the SVD's backward error. [N]."""
    one = model(instance)
    outside = np.linalg.norm(one.outside, axis=-1)
    mean = np.linalg.norm(one.residuals.mean(axis=1), axis=-1)
    width = one.keys.shape[-1]
    spectral = outside * (2 * svd_guard(one) + 2 * mean + gamma(4 * width + 20) * one.sigma[:, 0]) / one.root
    return score_guard(one) + residual_guard(one) + spectral


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Three keys, one dropped mode.

    >>> check(tight_instance()).tightest > 0.999999
    True
    """
    return first.tight_instance()


sample, cases, on_capture = first.sample, first.cases, first.on_capture
