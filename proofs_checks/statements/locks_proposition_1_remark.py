"""Locks, remark after Prop. 1: a second-moment core is no linear sketch, and does see the perturbation."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_1 as blindness
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.locks_proposition_1 import hypotheses, shifted
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-1-remark",
    source="Locks Sec. 3, after Prop. 1",
    claim="Second-moment cores fall outside Prop. 1: their quadratic q^T S q grows by at least "
    "2 c |q.u| (c |q.u| - |q.(delta_a - delta_b)|) under the perturbation that every shared sketch misses.",
    hypotheses="As Prop. 1.",
    kind=Kind.LOWER_BOUND,
    tight="The two keys' deviations agree along q: equality.",
    hazard="The quadratic grows as c^2: guard gamma relative to its own terms.",
    finding="Codebooks and refitted bases are outside the class too; extreme-based bounds fall to Lemma 2 instead.",
)


def quadratic(queries: FloatArray, keys: FloatArray) -> FloatArray:
    """q^T S q = sum_i (q.delta_i)^2. [N]."""
    deviations = keys - keys.mean(axis=1, keepdims=True)
    total: FloatArray = np.sum(np.einsum("nd,nbd->nb", queries, deviations) ** 2, axis=-1)
    return total


def left(instance: Instance) -> FloatArray:
    """The quadratic of the perturbed page. [N]."""
    return quadratic(instance["queries"], shifted(instance))


def right(instance: Instance) -> FloatArray:
    """The quadratic of the page, and the guaranteed growth. [N]."""
    queries, keys = instance["queries"], instance["keys"]
    along = instance["shift"] * np.abs(np.einsum("nd,nd->n", queries, instance["direction"]))
    apart = np.abs(np.einsum("nd,nd->n", queries, keys[:, 0] - keys[:, 1]))
    return quadratic(queries, keys) + 2 * along * (along - apart)


def guard(instance: Instance) -> FloatArray:
    """Products of at most d + 4 roundings each, B of them, relative to sums of absolute values. [N]."""
    queries, keys = np.abs(instance["queries"]), np.abs(instance["keys"])
    step = instance["shift"][:, None] * np.abs(instance["direction"])
    size = np.einsum("nd,nbd->nb", queries, 2 * keys.max(axis=1, keepdims=True) + step[:, None]) ** 2
    count, width = keys.shape[1:]
    return 4 * gamma(4 * width + 2 * count + 20) * count * size.max(axis=-1)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two equal keys, moved apart by 2c: the quadratic goes from 0 to 2 c^2.

    >>> check(tight_instance()).tightest > 1 - 1e-12
    True
    """
    return blindness.tight_instance()


sample = blindness.sample
