"""Locks Lemma 1(i), the identity: o - o_S = eps (mean over the dropped set - mean over the kept set)."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_lemma_1_i as bound
from proofs_checks.statements.guard import average_guard
from proofs_checks.statements.locks_lemma_1_i import dropped_mass, hypotheses, softmax_within
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.attention import attend
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-1-i-identity",
    source="Locks Lemma 1(i), identity",
    claim="o - o_S equals the dropped mass times the difference of the dropped and the kept set's mean values.",
    hypotheses="S keeps at least one token; if nothing is dropped the identity reads o = o_S.",
    kind=Kind.IDENTITY,
    tight="Every instance.",
    no_constant="an identity; there is no bound to scale",
    hazard="o - o_S cancels: the error is measured against the value norm, not against the difference.",
)


def left(instance: Instance) -> FloatArray:
    """||(o - o_S) - eps (mean over S^c - mean over S)||, o from the reference's attention. [N]."""
    logits, kept, values = instance["logits"], instance["kept"], instance["values"]
    ones = np.ones((len(logits), 1, 1))
    output = attend(ones, logits[..., None], values, 1.0)["output"][:, 0]  # [N, d]
    inside, outside = (np.einsum("nt,ntd->nd", softmax_within(logits, m)[0], values) for m in (kept, ~kept))
    error: FloatArray = np.linalg.norm(output - inside - dropped_mass(instance)[:, None] * (outside - inside), axis=-1)
    return error


def right(instance: Instance) -> FloatArray:
    """0. [N]."""
    return np.zeros(len(instance["logits"]))


def guard(instance: Instance) -> FloatArray:
    """Four softmax averages of the same values: o, o_S twice, and the dropped mean. [N]."""
    return 5 * average_guard(instance["logits"], instance["values"])


check = checker(ABOUT, hypotheses, left, right, guard)
tight_instance = bound.tight_instance
sample = bound.sample
cases, on_capture = bound.cases, bound.on_capture
