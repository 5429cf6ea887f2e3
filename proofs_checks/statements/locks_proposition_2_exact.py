"""Locks Prop. 2, last clause: from the page's own rank on, the estimate is the exact log-mass."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.locks_proposition_1 import hadamard
from proofs_checks.statements.page_model import model, needs_page, residual_guard, score_guard, svd_guard
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-2-exact",
    source="Locks Prop. 2, r >= rank(D)",
    claim="The estimate equals the exact log-mass whenever r >= rank(D).",
    hypotheses="r >= rank(D), by construction of the page from at most r integer modes.",
    kind=Kind.IDENTITY,
    tight="Every instance.",
    no_constant="an identity; there is no bound to scale",
    hazard="A float SVD leaves a residual of its backward error, and the reference drops modes at the rounding level.",
    finding="A centred page has rank at most B - 1, so r = B - 1 is always exact.",
)


def hypotheses(instance: Instance) -> None:
    """Known modes, at most r of them, reproduce the page exactly."""
    needs_page(instance)
    require(instance["modes"] <= instance["rank"], "r >= rank(D)", f"{instance['modes']} > {instance['rank']}")


def left(instance: Instance) -> FloatArray:
    """The estimate. [N]."""
    return model(instance).estimated_score


def right(instance: Instance) -> FloatArray:
    """The exact log-mass. [N]."""
    return model(instance).exact_score


def guard(instance: Instance) -> FloatArray:
    """Score rounding, and the query times the SVD's backward error. [N]."""
    one = model(instance)
    query = np.linalg.norm(one.queries, axis=-1)
    return score_guard(one) + residual_guard(one) + query * 2 * svd_guard(one) / one.root


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two keys: one mode, rank 1.

    >>> check(tight_instance()).violated.tolist()
    [False]
    """
    keys = np.array([[[0.0, 3.0], [4.0, 3.0]]])
    return {"queries": np.array([[1.0, 2.0]]), "keys": keys, "rank": 1, "modes": 1}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Integer coefficients on a few Hadamard columns, rank at or above their number."""
    width, size = 2 ** small(rng, 1, 3), small(rng, 2, 8)
    modes = small(rng, 1, min(width, size))
    coefficients = rng.integers(-8, 9, (count, size, modes)).astype(np.float64)
    keys = coefficients @ hadamard(width)[:, :modes].T + rng.integers(-3, 4, (count, 1, width))
    rank = small(rng, modes, min(width, size))
    return {"queries": rng.standard_normal((count, width)), "keys": keys, "rank": rank, "modes": modes}
