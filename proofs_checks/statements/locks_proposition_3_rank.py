"""Locks Prop. 3, the rank remainder: at most min(sigma_{r+1}^2, tail) |q|^2 / (2 B d)."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_2
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.page_model import model, needs_page, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-3-rank",
    source="Locks Prop. 3, R_rank",
    claim="Dropping the modes beyond r takes at most min(sigma_{r+1}^2, tau_r) |q|^2 / (2 B d) from the moment core.",
    hypotheses="1 <= r <= min(B, d).",
    kind=Kind.UPPER_BOUND,
    tight="q = v_{r+1}: equality.",
    hazard="Both sides cancel against ||D||^2 where the tail is small: the SVD's backward error is in the guard.",
    finding="Sharp. The minimum is always sigma_{r+1}^2: the tail's sum is never smaller.",
)
SEARCH = ("queries", "keys")
hypotheses = needs_page


def left(instance: Instance) -> FloatArray:
    """R_rank: the quadratic of the residuals, sum_i (q.residual_i)^2 / (2 B d). [N]."""
    one = model(instance)
    size, width = one.keys.shape[1:]
    remainder: FloatArray = np.sum(np.einsum("nd,nbd->nb", one.queries, one.residuals) ** 2, axis=-1) / (
        2 * size * width
    )
    return remainder


def right(instance: Instance) -> FloatArray:
    """min(sigma_{r+1}^2, tau_r) |q|^2 / (2 B d). [N]."""
    one = model(instance)
    size, width = one.keys.shape[1:]
    energy = np.minimum(one.next_sigma**2, one.tail)
    bound: FloatArray = energy * np.sum(one.queries**2, axis=-1) / (2 * size * width)
    return bound


def guard(instance: Instance) -> FloatArray:
    """(sigma_{r+1} + 2E)^2 - sigma_{r+1}^2 with E the SVD's backward error, and gamma of the products. [N]."""
    one = model(instance)
    size, width = one.keys.shape[1:]
    error, sigma = 3 * svd_guard(one), one.next_sigma
    rounding = gamma(4 * width + 2 * size + 20) * (sigma + error) ** 2 * size
    spread = 2 * sigma * error + error**2 + rounding
    bound: FloatArray = spread * np.sum(one.queries**2, axis=-1) / (2 * size * width)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Energies 8 and 2 along channels 0 and 1, r = 1, q = e_1: 2 / (2 * 4 * 2) = 1/8.

    >>> slack = check(tight_instance())
    >>> slack.left.tolist(), slack.tightest > 1 - 1e-12
    ([0.125], True)
    """
    keys = np.array([[[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    return {"queries": np.array([[0.0, 1.0]]), "keys": keys, "rank": 1}


sample, cases, on_capture = locks_proposition_2.sample, locks_proposition_2.cases, locks_proposition_2.on_capture
