"""Ours, beside Locks Lemma 2: the envelope also bounds the page's log-mass, up to the log of its length."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_lemma_2
from proofs_checks.statements.guard import UNIT, dot_guard, log_sum_exp_guard
from proofs_checks.statements.locks_lemma_2 import hypotheses
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray
from refimpl.locks.score import exact_page_scores

ABOUT = About(
    id="locks-lemma-2-log-mass-ours",
    source="beside Locks Lemma 2",
    claim="A page's log-mass is at most its envelope score over sqrt(d) plus the log of its number of keys.",
    hypotheses="The page holds at least one key.",
    kind=Kind.UPPER_BOUND,
    tight="Copies of one key: every logit is the envelope score, and n of them weigh log n more than one.",
    hazard="Guard: the two dot products, the log-sum-exp, and the last sum.",
    finding="Sharp, and the reason why Quest's ranking is that of an upper bound among pages of equal length only.",
    ours=True,
    proof="Lemma 2 bounds every logit by the envelope score over sqrt(d); a log-sum-exp of n numbers exceeds the "
    "largest by at most log n, with equality where all are equal.",
)
SEARCH = ("queries", "keys")


def left(instance: Instance) -> FloatArray:
    """The page's log-mass by the reference. [N]."""
    return exact_page_scores(queries=instance["queries"][:, None], key_pages=instance["keys"][:, None])[:, 0, 0]


def right(instance: Instance) -> FloatArray:
    """The envelope score over sqrt(d), plus log n. [N]."""
    return locks_lemma_2.right(instance) + np.log(instance["keys"].shape[1])


def guard(instance: Instance) -> FloatArray:
    """Lemma 2's two sums, the log-sum-exp, log n (4 ulp) and the addition of both. [N]."""
    queries, keys = instance["queries"], instance["keys"]
    size, width = keys.shape[1:]
    dots = 2 * (width + 4) / width * dot_guard(queries, np.abs(keys).max(axis=1)) / np.sqrt(width)
    logits = np.einsum("nd,nbd->nb", queries, keys) / np.sqrt(width)
    last = UNIT * (9 * np.log(size) + 2 * np.abs(right(instance)))
    return 1.1 * (dots + log_sum_exp_guard(logits) + last)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Four copies of the key (2, -1) and the query (1, -1): both sides are 3 / sqrt(2) + log 4.

    >>> check(tight_instance()).tightest > 1 - 1e-13
    True
    """
    return {"queries": np.array([[1.0, -1.0]]), "keys": np.array([[[2.0, -1.0]] * 4])}


sample, cases, on_capture = locks_lemma_2.sample, locks_lemma_2.cases, locks_lemma_2.on_capture
