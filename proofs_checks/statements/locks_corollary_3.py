"""Locks Cor. 3: the top pages by averaged share maximise the group's mean coverage among shared sets."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.locks.combine import head_shares
from refimpl.locks.select import locks_select_pages

ABOUT = About(
    id="locks-corollary-3",
    source="Locks Cor. 3",
    claim="No shared set of k pages with sink and most recent page has a larger group-mean coverage than the one that "
    "adds the k - 2 largest averaged shares.",
    hypotheses="k >= 2; sink and most recent are two distinct pages (P >= 2).",
    kind=Kind.UPPER_BOUND,
    tight="Every instance, P > k or not: the maximum over all sets is attained.",
    hazard="Ties: coverages are compared, never sets.",
    finding="Exhaustive over all sets. The paper needs two distinct forced pages and does not say so.",
)


def hypotheses(instance: Instance) -> None:
    """Two distinct forced pages and k >= 2."""
    require(instance["scores"].shape[2] >= 2, "two distinct forced pages", f"P = {instance['scores'].shape[2]}")
    require(instance["k"] >= 2, "k >= 2", f"k = {instance['k']}")


def averaged(instance: Instance) -> FloatArray:
    """Group-averaged shares. [N, P]."""
    shares: FloatArray = head_shares(instance["scores"]).mean(axis=1)
    return shares


def left(instance: Instance) -> FloatArray:
    """The largest group-mean coverage over all legal sets. [N]."""
    shares, k = averaged(instance), instance["k"]
    pages = shares.shape[1]
    best = np.zeros(len(shares))
    for subset in combinations(range(1, pages - 1), min(k, pages) - 2):
        best = np.maximum(best, shares[:, [0, *subset, pages - 1]].sum(axis=-1))
    return best


def right(instance: Instance) -> FloatArray:
    """The coverage of the reference's selection. [N]."""
    shares = averaged(instance)
    pages = locks_select_pages(shares=shares, budget_tokens=instance["k"], page_size=1)
    covered: FloatArray = np.take_along_axis(shares, pages, axis=-1).sum(axis=-1)
    return covered


def guard(instance: Instance) -> FloatArray:
    """Two sums of at most P shares below 1; the shares themselves are common to both sides. [N]."""
    return np.full(len(instance["scores"]), 2 * gamma(instance["scores"].shape[2] + 1))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Five pages, three kept: 1/8 + 1/8 + 1/2.

    >>> slack = check(tight_instance())
    >>> slack.left.round(12).tolist(), slack.tightest > 1 - 1e-13
    ([0.75], True)
    """
    return {"scores": np.log([[[1.0, 1.0, 4.0, 1.0, 1.0]]]), "k": 3}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random scores of several heads, with ties."""
    pages = small(rng, 2, 9)
    scores = normal(rng, count, small(rng, 1, 3), pages)
    if rng.random() < 0.3:
        scores = np.round(scores)
    return {"scores": scores, "k": small(rng, 2, pages + 1)}


def cases() -> dict[str, Instance]:
    """k = 2 leaves no free slot; k above P keeps all; all pages tie; a single query head."""
    flat = np.zeros((1, 1, 4))
    return {
        "k-is-2": {"scores": flat, "k": 2},
        "k-above-P": {"scores": flat, "k": 9},
        "ties": {"scores": flat, "k": 3},
    }
