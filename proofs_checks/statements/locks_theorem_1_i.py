"""Locks Thm. 1(i): the worst log-mass error eta is at most max |q_perp| sqrt(tau) / sqrt(d) over queries and pages."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import locks_proposition_2, locks_proposition_2_second
from proofs_checks.statements.retention import needs_group, retention, sample_group
from proofs_checks.statements.statement import About, Instance, Kind, checker, memo, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-theorem-1-i",
    source="Locks Thm. 1(i)",
    claim="eta, the largest |estimated - exact log-mass| over the group and the pages, is at most the largest "
    "|q_perp| sqrt(tau_r) / sqrt(d); it is 0 where r reaches every page's rank.",
    hypotheses="Unquantised rank-r summaries of complete pages.",
    kind=Kind.UPPER_BOUND,
    tight="One page of B = 64 as in Prop. 2's second bound: sqrt(63/64).",
    hazard="As Prop. 2's second bound, page by page.",
    finding="Carries Prop. 2's sqrt((B-1)/B) and sigma_{r+1} refinements.",
)


def hypotheses(instance: Instance) -> None:
    """A group of queries and complete pages."""
    needs_group(instance)
    tokens, size = instance["keys"].shape[1], instance["page_size"]
    require(tokens % size == 0, "complete pages only", f"T = {tokens}, B = {size}")


def pairs(instance: Instance) -> Instance:
    """Every query with every page, as a batch of Prop. 2 instances [N * G * P]."""
    batch: Instance = memo(instance, "_pairs", lambda: build_pairs(instance))
    return batch


def build_pairs(instance: Instance) -> Instance:
    """`pairs` without its memory."""
    queries, keys, size = instance["queries"], instance["keys"], instance["page_size"]
    count, heads, width = queries.shape
    pages = keys.reshape(count, 1, -1, size, width)
    shape = (count, heads, pages.shape[2])
    return {
        "queries": np.broadcast_to(queries[:, :, None], (*shape, width)).reshape(-1, width),
        "keys": np.broadcast_to(pages, (*shape, size, width)).reshape(-1, size, width),
        "rank": instance["rank"],
    }


def worst(instance: Instance, values: FloatArray) -> FloatArray:
    """The largest of every step's values [N * G * P] -> [N]."""
    largest: FloatArray = values.reshape(len(instance["queries"]), -1).max(axis=-1)
    return largest


def left(instance: Instance) -> FloatArray:
    """eta. [N]."""
    return retention(instance).eta


def right(instance: Instance) -> FloatArray:
    """The largest of Prop. 2's second bounds. [N]."""
    return worst(instance, locks_proposition_2_second.right(pairs(instance)))


def guard(instance: Instance) -> FloatArray:
    """The largest of Prop. 2's second guards. [N]."""
    return worst(instance, locks_proposition_2_second.guard(pairs(instance)))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Prop. 2's page of 64 keys, and a page of zeros.

    >>> round(check(tight_instance()).tightest, 5)
    0.99216
    """
    one = locks_proposition_2.tight_instance(size=64)
    keys = np.concatenate([one["keys"], 0 * one["keys"]], axis=1)
    return {"queries": one["queries"][:, None], "keys": keys, "values": keys, "rank": 1, "page_size": 64, "k": 2}


sample = sample_group


def cases() -> dict[str, Instance]:
    """The rank reaches every page's: eta is rounding."""
    keys = np.arange(8.0).reshape(1, 4, 2) ** 2
    step = {"queries": np.ones((1, 2, 2)), "keys": keys, "values": keys, "rank": 2, "page_size": 2, "k": 2}
    return {"rank-at-least-every-page's": step}


def on_capture(step: Any) -> Instance:
    """The capture step's complete pages, one batch entry per KV head."""
    group: Instance = step.group(complete=True)
    return group


def describe(instance: Instance) -> dict[str, FloatArray]:
    """eta and its bound, nats."""
    return {"eta": left(instance), "bound": right(instance)}
