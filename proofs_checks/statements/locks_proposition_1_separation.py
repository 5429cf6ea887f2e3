"""Locks Prop. 1, separation: the exact log-mass of the perturbed page grows without bound."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_1 as blindness
from proofs_checks.statements.guard import dot_guard, log_sum_exp_guard
from proofs_checks.statements.locks_proposition_1 import hypotheses as same_hypotheses
from proofs_checks.statements.locks_proposition_1 import shifted
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.locks.score import exact_page_scores

ABOUT = About(
    id="locks-proposition-1-separation",
    source="Locks Prop. 1, separation",
    claim="For q.u > 0 the perturbed page's log-mass is at least q.k_a / sqrt(d) + c q.u / sqrt(d), so it grows "
    "without bound while the sketch stands still.",
    hypotheses="As the blindness clause, and q.u > 0.",
    kind=Kind.LOWER_BOUND,
    tight="c large: the perturbed key alone carries the mass.",
    finding="Sharp as c grows.",
)


def hypotheses(instance: Instance) -> None:
    """Those of the blindness clause, and q.u > 0."""
    same_hypotheses(instance)
    require(np.einsum("nd,nd->n", instance["queries"], instance["direction"]) > 0, "q.u > 0")


def left(instance: Instance) -> FloatArray:
    """The exact log-mass of P'. [N]."""
    return exact_page_scores(queries=instance["queries"][:, None], key_pages=shifted(instance)[:, None])[:, 0, 0]


def right(instance: Instance) -> FloatArray:
    """The perturbed key's logit. [N]."""
    keys, queries = instance["keys"], instance["queries"]
    moved = keys[:, 0] + instance["shift"][:, None] * instance["direction"]
    logit: FloatArray = np.einsum("nd,nd->n", queries, moved) / np.sqrt(keys.shape[-1])
    return logit


def guard(instance: Instance) -> FloatArray:
    """Both dot products, the division and the log-sum-exp. [N]."""
    keys, queries = shifted(instance), instance["queries"]
    root = np.sqrt(keys.shape[-1])
    logits = np.einsum("nd,nbd->nb", queries, keys) / root
    dots = dot_guard(queries[:, None], keys).max(axis=-1) / root
    return 2.1 * dots + 2 * log_sum_exp_guard(logits)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The blindness clause's instance: q.u = 1, c = 1024.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return blindness.tight_instance()


def sample(rng: np.random.Generator, count: int) -> Instance:
    """The blindness clause's instances with the query turned towards u."""
    instance = blindness.sample(rng, count)
    along = np.einsum("nd,nd->n", instance["queries"], instance["direction"])
    width = instance["queries"].shape[-1]
    push = (1 + np.abs(along)) / width  # u has entries +-1, so q + push u has q.u >= 1
    instance["queries"] = instance["queries"] + push[:, None] * instance["direction"]
    return instance
