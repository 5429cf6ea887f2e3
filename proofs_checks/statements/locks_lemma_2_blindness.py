"""Locks Lemma 2, content-blindness: pages with equal per-channel extremes have equal envelope scores."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.locks_lemma_2 import envelope
from proofs_checks.statements.sampling import normal, page, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-2-blindness",
    source="Locks Lemma 2, blindness",
    claim="Two pages with equal per-channel extremes receive identical envelope scores for every query.",
    hypotheses="Equal per-channel maxima and minima.",
    kind=Kind.IMPOSSIBILITY,
    tight="Keys (0,0),(4,4) against (0,4),(4,0): equal envelopes, while the query (1,1) sees logits 8 and 0 in one "
    "page "
    "and 4 and 4 in the other.",
    no_constant="an impossibility: two pages that the envelope cannot tell apart, bit for bit",
    finding="Shuffling each channel on its own keeps the envelope and destroys every key.",
)


def hypotheses(instance: Instance) -> None:
    """The two pages' extremes agree exactly."""
    for name in ("max", "min"):
        first, second = (getattr(instance[field], name)(axis=1) for field in ("keys", "other_keys"))
        require(first == second, f"equal per-channel {name}ima")


def left(instance: Instance) -> FloatArray:
    """Envelope score of the first page. [N]."""
    return envelope(instance["queries"], instance["keys"])


def right(instance: Instance) -> FloatArray:
    """Envelope score of the other page. [N]."""
    return envelope(instance["queries"], instance["other_keys"])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """The two pages of `ABOUT.tight`.

    >>> slack = check(tight_instance())
    >>> slack.left.tolist(), slack.right.tolist()
    ([8.0], [8.0])
    """
    first, second = [[0.0, 0.0], [4.0, 4.0]], [[0.0, 4.0], [4.0, 0.0]]
    return {"queries": np.ones((1, 2)), "keys": np.array([first]), "other_keys": np.array([second])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pages, and the same pages with every channel shuffled on its own."""
    size, width = small(rng, 1, 8), small(rng, 1, 8)
    keys = page(rng, count, size, width)
    return {"queries": normal(rng, count, width), "keys": keys, "other_keys": rng.permuted(keys, axis=1)}
