"""Locks Eq. (A.2): the second-order score is the centroid's logit and half the variance of the centred logits."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_lemma_2
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_equation_a1 import centred_logits
from proofs_checks.statements.locks_lemma_2 import hypotheses
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-equation-a2",
    source="Locks Eq. (A.2)",
    claim="The moment core q.mu / sqrt(d) + q^T S q / (2 B d) equals the centroid's logit and half the second cumulant "
    "of the centred logits.",
    hypotheses="The page holds at least one key.",
    kind=Kind.IDENTITY,
    tight="Every page.",
    no_constant="an identity; there is no bound to scale",
)


def left(instance: Instance) -> FloatArray:
    """The quadratic term through the d x d second-moment matrix, q^T S q / (2 B d). [N]."""
    queries, keys = instance["queries"], instance["keys"]
    size, width = keys.shape[1:]
    deviations = keys - keys.mean(axis=1, keepdims=True)
    moment = np.einsum("nbd,nbe->nde", deviations, deviations)
    quadratic: FloatArray = np.einsum("nd,nde,ne->n", queries, moment, queries) / (2 * size * width)
    return quadratic


def right(instance: Instance) -> FloatArray:
    """Half the variance of z. [N]."""
    variance: FloatArray = 0.5 * np.var(centred_logits(instance["queries"], instance["keys"]), axis=-1)
    return variance


def guard(instance: Instance) -> FloatArray:
    """Sums of B d^2 products relative to (sum_c |q_c| max_i |delta_ic|)^2 / (2 d). [N]."""
    queries, keys = instance["queries"], instance["keys"]
    size, width = keys.shape[1:]
    extremes = 2 * np.abs(keys).max(axis=1)
    scale = np.einsum("nd,nd->n", np.abs(queries), extremes) ** 2 / (2 * width)
    return gamma(2 * width**2 + 4 * size + 4 * width + 20) * 1.1 * scale


check = checker(ABOUT, hypotheses, left, right, guard)
tight_instance, sample = locks_lemma_2.tight_instance, locks_lemma_2.sample
cases, on_capture = locks_lemma_2.cases, locks_lemma_2.on_capture
