"""Locks Cor. 1: the page's own spectral basis has the least residual among orthonormal bases of its rank."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.page_model import model, svd_guard
from proofs_checks.statements.sampling import page, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-corollary-1",
    source="Locks Cor. 1",
    claim="For every orthonormal W of rank r, the residual energy ||D - D W W^T||^2 is at least the spectral tail "
    "tau_r.",
    hypotheses="1 <= r <= min(B, d), r < d; W has orthonormal columns.",
    kind=Kind.LOWER_BOUND,
    tight="W = V R with any rotation R: equality.",
    hazard="Both sides cancel against ||D||^2; the guard is absolute, from the SVD's backward error and from W^T W - "
    "I, "
    "never a ratio of residuals.",
    finding="Needs r <= min(B - 1, d - 1) to say anything: from rank(D) on both sides are 0.",
)


def hypotheses(instance: Instance) -> None:
    """The rank fits and the columns are orthonormal up to rounding."""
    size, width = instance["keys"].shape[1:]
    basis = instance["basis"]
    rank = basis.shape[2]
    require(1 <= rank <= min(size, width) and rank < width, "1 <= r <= min(B, d) and r < d", f"r = {rank}")
    gram = np.einsum("ndr,nds->nrs", basis, basis) - np.eye(rank)
    require(np.abs(gram) <= gamma(20 * width * (rank + 1)), "W has orthonormal columns", np.abs(gram).max())


def page_of(instance: Instance) -> Instance:
    """The instance in the form of `page_model`; the query plays no part."""
    keys = instance["keys"]
    return {"keys": keys, "queries": np.zeros((len(keys), keys.shape[2])), "rank": instance["basis"].shape[2]}


def left(instance: Instance) -> FloatArray:
    """||D - D W W^T||_F^2. [N]."""
    keys, basis = instance["keys"], instance["basis"]
    deviations = keys - keys.mean(axis=1, keepdims=True)
    residual = deviations - (deviations @ basis) @ np.swapaxes(basis, -1, -2)
    energy: FloatArray = np.sum(residual**2, axis=(-2, -1))
    return energy


def right(instance: Instance) -> FloatArray:
    """tau_r from the singular values. [N]."""
    return model(page_of(instance)).tail


def guard(instance: Instance) -> FloatArray:
    """Singular values within the SVD's backward error; W orthonormal within what the hypothesis admits. [N].

    |tau - tau^| <= 2 sqrt(tau) E + E^2 (E the backward error in the Frobenius norm); a W with W^T W = I + F has
    ||D - D W W^T||^2 >= tau - 2 r |F| ||D||^2; the products round within gamma of ||D||^2.
    """
    one = model(page_of(instance))
    energy = np.sum(one.deviations**2, axis=(-2, -1))
    error = svd_guard(one)
    width, rank = one.basis.shape[1:]
    bound: FloatArray = (
        2.1 * np.sqrt(energy) * error + error**2 + (2 * rank + 1) * gamma(30 * width * (rank + 1)) * energy
    )
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def orthonormal(rng: np.random.Generator, count: int, width: int, rank: int) -> FloatArray:
    """Random orthonormal columns [N, d, r]."""
    basis: FloatArray = np.linalg.qr(rng.standard_normal((count, width, rank)))[0]
    return basis


def tight_instance() -> Instance:
    """Keys along channels 0 and 1 with energies 8 and 2; W = -e_0, whose residual is the tail 2.

    >>> slack = check(tight_instance())
    >>> slack.left.tolist(), slack.tightest > 1 - 1e-12
    ([2.0], True)
    """
    keys = np.array([[[2.0, 0.0], [-2.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    return {"keys": keys, "basis": np.array([[[-1.0], [0.0]]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pages with random bases, or with the page's own basis rotated and nudged."""
    size, width = small(rng, 1, 7), small(rng, 2, 6)
    rank = small(rng, 1, min(size, width - 1))
    keys = page(rng, count, size, width)
    basis = orthonormal(rng, count, width, rank)
    if rng.random() < 0.5:
        deviations = keys - keys.mean(axis=1, keepdims=True)
        own = np.swapaxes(np.linalg.svd(deviations)[2][:, :rank], -1, -2)
        nudge = 10.0 ** rng.uniform(-12, -1) * rng.standard_normal(own.shape)
        basis = np.linalg.qr(own @ orthonormal(rng, count, rank, rank) + nudge)[0]
    return {"keys": keys, "basis": basis}


def cases() -> dict[str, Instance]:
    """A page of identical keys has no residual for any W."""
    return {"zero-residual": {"keys": np.ones((1, 3, 2)), "basis": np.array([[[0.0], [1.0]]])}}


def on_capture(step: Any) -> Instance:
    """Every page against the basis of the whole sequence (a shared basis of the same rank)."""
    pages = step.page_batch()
    keys = step.keys
    shared = np.swapaxes(np.linalg.svd(keys - keys.mean(axis=1, keepdims=True), full_matrices=False)[2], -1, -2)
    group = step.queries.shape[1]
    each_head = shared[:, :, : pages["rank"]]
    repeats = len(pages["keys"]) // len(each_head)
    distinct = np.arange(len(pages["keys"])) % repeats < repeats // group  # the first query's copy of every page
    return {"keys": pages["keys"][distinct], "basis": np.repeat(each_head, repeats, axis=0)[distinct]}
