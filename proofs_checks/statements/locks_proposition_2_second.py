"""Locks Prop. 2, second bound: the score error is at most |q_perp| sqrt(tau_r) / sqrt(d)."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import locks_proposition_2 as first
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_proposition_2 import left
from proofs_checks.statements.page_model import PageModel, model, needs_page, residual_guard, score_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-2-second",
    source="Locks Prop. 2, second bound",
    claim="|estimated - exact log-mass| <= |q_perp| sqrt(tau_r) / sqrt(d).",
    hypotheses="An unquantised summary of rank 1 <= r <= min(B, d).",
    kind=Kind.UPPER_BOUND,
    tight="One residual mode, one key of B = 64 up and the others down alike: the ratio is sqrt((B-1)/B).",
    hazard="As the first bound; tau_r from the singular values is off by the SVD's backward error.",
    finding="Loose by sqrt((B-1)/B) at least: the residuals sum to zero. See locks-proposition-2-second-ours.",
)
SEARCH = ("queries", "keys")
hypotheses = needs_page


def right(instance: Instance) -> FloatArray:
    """|q_perp| sqrt(tau_r) / sqrt(d). [N]."""
    one = model(instance)
    return np.linalg.norm(one.outside, axis=-1) * np.sqrt(one.tail) / one.root


def tail_guard(one: PageModel) -> FloatArray:
    """How far |q_perp| sqrt(tau_r) / sqrt(d) may stand below the same with the residuals as computed. [N].

    The inequality holds exactly for the Frobenius norm of the computed residuals; the difference to the singular
    values' tail is measured, not estimated. The residuals' own mean (zero but for rounding) is added.
    """
    residual = np.linalg.norm(one.residuals, axis=(-2, -1))
    outside = np.linalg.norm(one.outside, axis=-1)
    short = np.maximum(residual - np.sqrt(one.tail), 0.0)
    mean = np.linalg.norm(one.residuals.mean(axis=1), axis=-1)
    width = one.keys.shape[-1]
    bound: FloatArray = outside * (short + 2 * mean + gamma(4 * width + 20) * residual) / one.root
    return bound


def guard(instance: Instance) -> FloatArray:
    """The first bound's guard, and the tail's. [N]."""
    one = model(instance)
    return score_guard(one) + residual_guard(one) + tail_guard(one)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The first bound's instance with 64 keys: sqrt(63/64) = .99216.

    >>> round(check(tight_instance()).tightest, 5)
    0.99216
    """
    return first.tight_instance(size=64)


sample, cases = first.sample, first.cases


on_capture = first.on_capture


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls for the summary as computed.

    The residuals' own norm stands for sqrt(tau_r), never below it; V^T residual, 0 for an exact basis, is added.
    """
    from proofs_checks.statements.rigorous import ball, balls, norm

    one = model(instance)
    query, basis = balls(one.queries[0]), balls(one.basis[0])
    summary = balls(one.centroid[0])[None] + balls(one.coefficients[0]) @ basis.T
    inside, residuals = basis.T @ query, balls(one.keys[0]) - summary
    bound = norm(query - basis @ inside) * norm(residuals) + norm(inside) * norm(residuals @ basis)
    return first.enclose(instance)[0], bound / ball(len(query)).sqrt()
