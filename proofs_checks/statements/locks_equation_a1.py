"""Locks Eq. (A.1): the log-mass is the centroid's logit, log B, and the log-mean of the centred exponentials."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_lemma_2
from proofs_checks.statements.guard import UNIT, dot_guard, log_sum_exp_guard
from proofs_checks.statements.locks_lemma_2 import hypotheses
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray
from refimpl.locks.score import exact_page_scores

ABOUT = About(
    id="locks-equation-a1",
    source="Locks Eq. (A.1)",
    claim="s_j(q) = q.mu / sqrt(d) + log B + log of the mean over keys of exp(q.delta_i / sqrt(d)).",
    hypotheses="The page holds at least one key.",
    kind=Kind.IDENTITY,
    tight="Every page.",
    no_constant="an identity; there is no bound to scale",
)


def centred_logits(queries: FloatArray, keys: FloatArray) -> FloatArray:
    """z_i = q.delta_i / sqrt(d). [N, B].

    >>> centred_logits(np.array([[1.0]]), np.array([[[1.0], [3.0]]])).tolist()
    [[-1.0, 1.0]]
    """
    deviations = keys - keys.mean(axis=1, keepdims=True)
    logits: FloatArray = np.einsum("nd,nbd->nb", queries, deviations) / np.sqrt(keys.shape[-1])
    return logits


def left(instance: Instance) -> FloatArray:
    """s_j(q) by the reference. [N]."""
    return exact_page_scores(queries=instance["queries"][:, None], key_pages=instance["keys"][:, None])[:, 0, 0]


def right(instance: Instance) -> FloatArray:
    """a_j + log B + log mean exp z. [N]."""
    queries, keys = instance["queries"], instance["keys"]
    size, width = keys.shape[1:]
    centre = np.einsum("nd,nd->n", queries, keys.mean(axis=1)) / np.sqrt(width)
    mean = log_sum_exp(centred_logits(queries, keys)) - np.log(size)
    return centre + np.log(size) + mean


def guard(instance: Instance) -> FloatArray:
    """Three dot products of at most |q|(|k| + |mu|), B more roundings in mu, two log-sum-exps, two sums. [N]."""
    queries, keys = instance["queries"], instance["keys"]
    size, width = keys.shape[1:]
    extremes = 2 * np.abs(keys).max(axis=1)
    dots = (3 * width + size + 6) / width * dot_guard(queries, extremes) / np.sqrt(width)
    logits = np.einsum("nd,nbd->nb", queries, keys) / np.sqrt(width)
    sizes = np.abs(logits).max(axis=-1) + np.log(size) + 1
    guards = log_sum_exp_guard(logits) + log_sum_exp_guard(centred_logits(queries, keys))
    return 1.1 * (dots + guards + 12 * UNIT * sizes)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """One key: log-mean 0, log B 0.

    >>> check(tight_instance()).violated.tolist()
    [False]
    """
    return locks_lemma_2.tight_instance()


sample, cases, on_capture = locks_lemma_2.sample, locks_lemma_2.cases, locks_lemma_2.on_capture
