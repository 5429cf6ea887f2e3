"""Locks Lemma 1(ii): among deterministic value-blind rules, the top pages by mass have the least worst-case error."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from proofs_checks.statements import locks_lemma_1_i
from proofs_checks.statements.guard import log_sum_exp_guard
from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-1-ii",
    source="Locks Lemma 1(ii)",
    claim="Whatever k pages a deterministic value-blind rule picks, some values make its error at least 2R times the "
    "mass that the top k pages by log-mass drop.",
    hypotheses="1 <= k <= P; the rule sees keys and query only.",
    kind=Kind.LOWER_BOUND,
    tight="The top-k rule itself, and every rule where pages tie: equality.",
    hazard="Ties: several sets are optimal, so masses are compared, never sets.",
    finding="Exhaustive over all k-subsets of up to 7 pages; the adversary (+R on the dropped, -R on the kept) attains "
    "2R eps for every subset.",
)


def hypotheses(instance: Instance) -> None:
    """1 <= k <= P."""
    pages = instance["scores"].shape[1]
    require(1 <= instance["k"] <= pages, "1 <= k <= P", f"k = {instance['k']}, P = {pages}")


def adversary(scores: FloatArray, kept: FloatArray) -> FloatArray:
    """Error of keeping ``kept`` when the dropped pages hold +1 and the kept ones -1 (R = 1). [N]."""
    values = np.where(kept, -1.0, 1.0)[..., None]
    return locks_lemma_1_i.left({"logits": scores, "kept": kept, "values": values})


def left(instance: Instance) -> FloatArray:
    """The least worst-case error over all k-subsets. [N]."""
    scores, k = instance["scores"], instance["k"]
    best = np.full(len(scores), np.inf)
    for subset in combinations(range(scores.shape[1]), k):
        kept = np.zeros(scores.shape, dtype=bool)
        kept[:, list(subset)] = True
        best = np.minimum(best, adversary(scores, kept))
    return best


def right(instance: Instance) -> FloatArray:
    """2R times the mass dropped by the k largest log-masses. [N]."""
    scores, k = instance["scores"], instance["k"]
    order = np.argsort(-scores, axis=-1, kind="stable")
    kept = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(kept, order[:, :k], True, axis=-1)
    return 2 * locks_lemma_1_i.dropped_mass({"logits": scores, "kept": kept})


def guard(instance: Instance) -> FloatArray:
    """Two dropped masses, each sigma(x) with x within two log-sum-exp guards: relative error 2 guards, and the means.

    A mean of equal values +-1 by weights that sum to 1 within a softmax's error.
    """
    relative = 8 * log_sum_exp_guard(instance["scores"])
    return relative * np.maximum(right(instance), np.finfo(np.float64).tiny)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Three pages of mass 4 : 2 : 1, keeping one: every rule drops at least 3/7.

    >>> slack = check(tight_instance())
    >>> round(float(slack.right[0]), 12) == round(6 / 7, 12), slack.tightest > 1 - 1e-12
    (True, True)
    """
    return {"scores": np.log([[1.0, 4.0, 2.0]]), "k": 1}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random log-masses with ties, any k."""
    pages = small(rng, 1, 7)
    scores = normal(rng, count, pages)
    if rng.random() < 0.3:
        scores = np.round(scores)
    return {"scores": scores, "k": small(rng, 1, pages)}


def cases() -> dict[str, Instance]:
    """All pages tie; every page is kept."""
    return {
        "ties": {"scores": np.zeros((1, 4)), "k": 2},
        "nothing-dropped": {"scores": np.zeros((1, 2)), "k": 2},
    }
