"""Locks Prop. 1, blindness: a shared sketch with the centroid cannot see content outside its span."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.locks.score import locks_score_pages

ABOUT = About(
    id="locks-proposition-1",
    source="Locks Prop. 1, blindness",
    claim="Adding c u to one key and -c u to another, u orthogonal to a shared basis W, leaves the centroid and every "
    "sketched key, hence any score built from them, unchanged for every query.",
    hypotheses="rho < d; u is orthogonal to span(W); the page has at least two keys; c > 0.",
    kind=Kind.IMPOSSIBILITY,
    tight="Every instance.",
    no_constant="an impossibility: the two pages' sketches are equal bit for bit",
    hazard="In floats the sketch drifts as c times u: integer bases, directions and keys make everything exact.",
    finding="The proof's swap of the two keys for q.u < 0 is not needed: -c u on the other key already grows.",
)


def hypotheses(instance: Instance) -> None:
    """rho < d, u orthogonal to W, two keys, c > 0."""
    basis, direction = instance["basis"], instance["direction"]
    require(basis.shape[2] < basis.shape[1], "rho < d", basis.shape)
    require(np.einsum("ndr,nd->nr", basis, direction) == 0, "u is orthogonal to span(W)")
    require(instance["keys"].shape[1] >= 2, "the page has at least two keys", instance["keys"].shape)
    require(instance["shift"] > 0, "c > 0")


def shifted(instance: Instance) -> FloatArray:
    """P': c u added to key 0 and taken from key 1. [N, B, d]."""
    keys: FloatArray = instance["keys"].copy()
    step = instance["shift"][:, None] * instance["direction"]
    keys[:, 0] += step
    keys[:, 1] -= step
    return keys


def sketch_score(instance: Instance, keys: FloatArray) -> FloatArray:
    """A rule of the stated form: log-sum-exp over the centroid and the sketched deviations. [N]."""
    centroid = keys.mean(axis=1)
    coefficients = (keys - centroid[:, None]) @ instance["basis"]
    scores = locks_score_pages(
        queries=instance["queries"][:, None],
        centroid=centroid[:, None],
        basis=instance["basis"][:, None],
        coefficients=coefficients[:, None],
    )
    return scores[:, 0, 0]


def left(instance: Instance) -> FloatArray:
    """The score of P. [N]."""
    return sketch_score(instance, instance["keys"])


def right(instance: Instance) -> FloatArray:
    """The score of P'. [N]."""
    return sketch_score(instance, shifted(instance))


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def hadamard(size: int) -> FloatArray:
    """The Sylvester matrix of a power of two, entries +-1.

    >>> hadamard(2).tolist()
    [[1.0, 1.0], [1.0, -1.0]]
    """
    matrix = np.ones((1, 1))
    while len(matrix) < size:
        matrix = np.block([[matrix, matrix], [matrix, -matrix]])
    return matrix


def tight_instance() -> Instance:
    """W = e_1, u = e_2, c = 1024: the exact log-mass for q = e_2 moves by hundreds of nats.

    >>> check(tight_instance()).violated.tolist()
    [False]
    """
    return {
        "basis": np.array([[[1.0], [0.0]]]),
        "direction": np.array([[0.0, 1.0]]),
        "queries": np.array([[0.5, 1.0]]),
        "keys": np.zeros((1, 2, 2)),
        "shift": np.array([1024.0]),
    }


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Integer bases inside a Hadamard frame, integer keys on 4 or 8 of them (so that the mean is exact)."""
    width, size = 2 ** small(rng, 1, 3), 2 ** small(rng, 1, 3)
    rank = small(rng, 1, width - 1)
    frame = hadamard(width)
    mix = rng.integers(-3, 4, (count, width - 1, rank)).astype(np.float64)
    return {
        "basis": frame[:, : width - 1] @ mix,
        "direction": np.broadcast_to(frame[:, -1], (count, width)).copy(),
        "queries": rng.integers(-4, 5, (count, width)).astype(np.float64),
        "keys": rng.integers(-50, 51, (count, size, width)).astype(np.float64),
        "shift": np.exp2(rng.integers(-2, 20, count)),
    }
