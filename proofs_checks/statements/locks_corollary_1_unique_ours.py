"""Ours, beside Locks Cor. 1: uniqueness with a number, the spectral gap times the squared sine of the angle."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_corollary_1 as optimality
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_corollary_1 import hypotheses, left, page_of
from proofs_checks.statements.page_model import model, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-corollary-1-unique-ours",
    source="beside Locks Cor. 1, uniqueness",
    claim="tau(W) >= tau_r + (sigma_r^2 - sigma_{r+1}^2) (r - ||V^T W||_F^2): at a spectral gap any other subspace "
    "pays in proportion to its angle, so the minimiser is unique.",
    hypotheses="As Cor. 1.",
    kind=Kind.LOWER_BOUND,
    tight="W turns v_r towards v_{r+1}: equality.",
    hazard="r - ||V^T W||^2 cancels for W near V, where both sides meet anyway; the guard is relative to ||D||^2.",
    finding="Sharp; the paper states uniqueness without a rate.",
    ours=True,
    proof="Write S = D^T D = sum lambda_k v_k v_k^T over a full orthonormal basis and p_k = |W^T v_k|^2 in [0, 1], "
    "with "
    "sum p_k = r. Then tau(W) - tau_r = sum_{k<=r} lambda_k (1 - p_k) - sum_{k>r} lambda_k p_k. Both sums run over the "
    "same total s = sum_{k<=r} (1 - p_k) = sum_{k>r} p_k = r - ||V^T W||_F^2, so the difference is at least "
    "(lambda_r - lambda_{r+1}) s.",
)


def right(instance: Instance) -> FloatArray:
    """tau_r and the price of the angle. [N]."""
    one = model(page_of(instance))
    rank = one.basis.shape[2]
    deviations_basis = np.swapaxes(np.linalg.svd(one.deviations)[2][:, :rank], -1, -2)  # V, also where sigma_k = 0
    overlap = np.sum(np.einsum("ndr,nds->nrs", deviations_basis, instance["basis"]) ** 2, axis=(-2, -1))
    gap = one.sigma[:, rank - 1] ** 2 - one.next_sigma**2
    return one.tail + gap * np.maximum(rank - overlap, 0.0)


def guard(instance: Instance) -> FloatArray:
    """Cor. 1's guard, and the gap term: a computed V is the exact one of a matrix E away, E the backward error. [N].

    For that matrix the statement holds exactly; moving it back changes tau(W) and the tail by 2.1 ||D|| E each.
    """
    one = model(page_of(instance))
    energy = np.sum(one.deviations**2, axis=(-2, -1))
    width, rank = one.basis.shape[1:]
    error = svd_guard(one)
    again = 2 * (2 * rank + 2) * (2.1 * np.sqrt(energy) * error + error**2)
    bound: FloatArray = optimality.guard(instance) + again + 4 * rank * gamma(30 * width * (rank + 1)) * energy
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Energies 8 and 2 along channels 0 and 1; W at 30 degrees: 2 + 6/4.

    >>> slack = check(tight_instance())
    >>> slack.left.round(12).tolist(), slack.tightest > 1 - 1e-11
    ([3.5], True)
    """
    keys = np.array([[[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    return {"keys": keys, "basis": np.array([[[np.sqrt(0.75)], [0.5]]])}


sample = optimality.sample
