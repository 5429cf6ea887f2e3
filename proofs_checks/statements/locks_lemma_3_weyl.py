"""Locks Lemma 3, Weyl: sigma_{r+1}^2 is at most the r-th eigenvalue of the page without one key."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_lemma_3
from proofs_checks.statements.locks_lemma_3 import hypotheses
from proofs_checks.statements.page_model import model, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-3-weyl",
    source="Locks Lemma 3, Weyl",
    claim="sigma_{r+1}^2 <= lambda_r of the second-moment matrix of the other keys' deviations, for every key left "
    "out.",
    hypotheses="1 <= r < d.",
    kind=Kind.UPPER_BOUND,
    tight="The key left out is orthogonal to the others' leading r modes, which stay as they are: equality.",
    hazard="Small eigenvalues beside large ones: guard from the SVD's backward error, relative to sigma_1.",
    finding="Sharp.",
)
SEARCH = ("keys",)


def left(instance: Instance) -> FloatArray:
    """sigma_{r+1}^2. [N]."""
    energy: FloatArray = model(instance).next_sigma ** 2
    return energy


def right(instance: Instance) -> FloatArray:
    """The least lambda_r(sum over i != i*) over all keys i* left out. [N]."""
    one = model(instance)
    size, rank = one.keys.shape[1], one.basis.shape[2]
    best = np.full(len(one.keys), np.inf)
    keys = range(size)
    for key in keys:
        others = np.delete(one.deviations, key, axis=1)
        sigma = np.linalg.svd(others, compute_uv=False)
        best = np.minimum(best, sigma[:, rank - 1] ** 2 if rank <= sigma.shape[1] else 0.0)
    return best


def guard(instance: Instance) -> FloatArray:
    """Two singular values, each within the SVD's backward error, squared. [N]."""
    one = model(instance)
    error = 2 * svd_guard(one)
    bound: FloatArray = 2 * (2.1 * one.sigma[:, 0] * error + error**2)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Energy 20 along channel 0 (with the key left out), 8 along channel 1 from two other keys.

    >>> slack = check(tight_instance())
    >>> slack.left.round(12).tolist(), slack.tightest > 1 - 1e-12
    ([8.0], True)
    """
    keys = np.array([[[4.0, 0.0], [-1.0, 2.0], [-1.0, -2.0], [-1.0, 0.0], [-1.0, 0.0]]])
    return {"queries": np.array([[1.0, 0.0]]), "keys": keys, "rank": 1}


sample = locks_lemma_3.sample
