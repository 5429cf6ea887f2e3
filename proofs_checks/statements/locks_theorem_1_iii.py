"""Locks Thm. 1(iii): the group-average output error is at most 2R (1 - e^(-4 eta) times the exact coverage)."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import locks_lemma_1_i
from proofs_checks.statements.guard import UNIT
from proofs_checks.statements.retention import needs_group, on_capture_group, retention, sample_group
from proofs_checks.statements.statement import About, Instance, Kind, checker, memo
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-theorem-1-iii",
    source="Locks Thm. 1(iii)",
    claim="The output error, averaged over the group, is at most 2R (1 - e^(-4 eta) gamma*), gamma* the exact "
    "selection's group-average coverage.",
    hypotheses="As Thm. 1(ii); R bounds the cached value norms.",
    kind=Kind.UPPER_BOUND,
    tight="eta = 0 and values +R on the dropped pages, -R on the kept ones: equality.",
    hazard="1 - coverage cancels; formed with expm1. Softmax means as in Lemma 1(i).",
    finding="Sharp at eta = 0. On the shipped capture at rank 8 and 256 tokens eta is .8 to 6, and the bound is "
    "vacuous for "
    "nearly every group while the error stays below .05 R.",
)
hypotheses = needs_group


def dropped(instance: Instance) -> Instance:
    """Lemma 1(i)'s instance for every query: logits [N*G, T], the kept tokens, the values."""
    batch: Instance = memo(instance, "_dropped", lambda: build_dropped(instance))
    return batch


def build_dropped(instance: Instance) -> Instance:
    """`dropped` without its memory."""
    step = retention(instance)
    queries, keys, size = instance["queries"], instance["keys"], instance["page_size"]
    count, heads, width = queries.shape
    logits = np.einsum("ngd,ntd->ngt", queries, keys) / np.sqrt(width)
    token_page = np.arange(keys.shape[1]) // size
    kept = (step.chosen[:, :, None] == token_page).any(axis=1)  # [N, T]
    values = np.repeat(instance["values"], heads, axis=0)
    return {"logits": logits.reshape(count * heads, -1), "kept": np.repeat(kept, heads, axis=0), "values": values}


def group_mean(instance: Instance, values: FloatArray) -> FloatArray:
    """Mean over the group: [N*G] -> [N]."""
    mean: FloatArray = values.reshape(instance["queries"].shape[:2]).mean(axis=1)
    return mean


def radius(instance: Instance) -> FloatArray:
    """R. [N]."""
    largest: FloatArray = np.linalg.norm(instance["values"], axis=-1).max(axis=-1)
    return largest


def left(instance: Instance) -> FloatArray:
    """Group-average ||o_S - o||. [N]."""
    return group_mean(instance, locks_lemma_1_i.left(dropped(instance)))


def right(instance: Instance) -> FloatArray:
    """2R (1 - e^(-4 eta) gamma*). [N]."""
    step = retention(instance)
    return -2 * radius(instance) * np.expm1(np.minimum(step.best, 0.0) - 4 * step.eta)


def guard(instance: Instance) -> FloatArray:
    """Lemma 1(i)'s guard per query, and the log-coverage's, felt at most 2R times; logits agree but for d u. [N]."""
    step = retention(instance)
    queries, keys = np.abs(instance["queries"]), np.abs(instance["keys"])
    width = keys.shape[2]
    logit = 2 * (width + 4) * UNIT * np.einsum("ngd,ntd->ngt", queries, keys).max(axis=(-2, -1)) / np.sqrt(width)
    means = group_mean(instance, locks_lemma_1_i.guard(dropped(instance)))
    return means + 2 * radius(instance) * (4 * step.share_guard + 4 * logit + 16 * UNIT)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Four one-key pages of equal mass (eta = 0), two kept: error 1, bound 2 (1 - 1/2).

    >>> slack = check(tight_instance())
    >>> slack.left.round(12).tolist(), slack.tightest > 1 - 1e-12
    ([1.0], True)
    """
    values = np.array([[[-1.0], [1.0], [1.0], [-1.0]]])
    return {"queries": np.ones((1, 1, 1)), "keys": 0 * values, "values": values, "rank": 1, "page_size": 1, "k": 2}


sample = sample_group


def cases() -> dict[str, Instance]:
    """Nothing is dropped: both sides are 0."""
    return {"P-at-most-k": {**tight_instance(), "k": 4}}


on_capture = on_capture_group


def vacuous(instance: Instance) -> Any:
    """No better than Lemma 1(i) with the forced pages alone, which needs no summary. Bool [N]."""
    step = retention(instance)
    forced = np.broadcast_to(np.array([0, step.exact.shape[-1] - 1]), (len(step.queries), 2))
    return right(instance) >= -2 * radius(instance) * np.expm1(step.log_coverage(forced))


def describe(instance: Instance) -> dict[str, FloatArray]:
    """Group-average error and its bound, in units of R."""
    return {"error/R": left(instance) / radius(instance), "bound/R": right(instance) / radius(instance)}
