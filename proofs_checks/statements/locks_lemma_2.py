"""Locks Lemma 2, the bound: the envelope score is above every logit of its page."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import dot_guard
from proofs_checks.statements.sampling import normal, page, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-2",
    source="Locks Lemma 2, the bound",
    claim="Every logit of a page is at most the envelope score of its per-channel extremes, divided by sqrt(d).",
    hypotheses="The page holds at least one key.",
    kind=Kind.UPPER_BOUND,
    tight="One key, or one key that holds the extreme of every channel on the query's side: equality.",
    hazard="The two sums may round differently: 1512 false violations of 20000. Guard 2 gamma_d sum |q||k|.",
    finding="Sharp, for any page whose best key is extreme in every channel.",
)
SEARCH = ("queries", "keys")


def hypotheses(instance: Instance) -> None:
    """At least one key per page."""
    require(instance["keys"].shape[1] >= 1, "the page holds at least one key", instance["keys"].shape)


def envelope(queries: FloatArray, keys: FloatArray) -> FloatArray:
    """Envelope score e_j(q) = sum_c max(q_c max_i k_ic, q_c min_i k_ic): [N, d], [N, B, d] -> [N].

    >>> float(envelope(np.array([[1.0, -1.0]]), np.array([[[0.0, 2.0], [3.0, 5.0]]]))[0])   # 3 - 2
    1.0
    """
    upper, lower = queries * keys.max(axis=1), queries * keys.min(axis=1)
    score: FloatArray = np.maximum(upper, lower).sum(axis=-1)
    return score


def left(instance: Instance) -> FloatArray:
    """The page's largest logit. [N]."""
    keys = instance["keys"]
    logits: FloatArray = np.einsum("nd,nbd->nb", instance["queries"], keys).max(axis=-1) / np.sqrt(keys.shape[-1])
    return logits


def right(instance: Instance) -> FloatArray:
    """The envelope score over sqrt(d). [N]."""
    return envelope(instance["queries"], instance["keys"]) / np.sqrt(instance["keys"].shape[-1])


def guard(instance: Instance) -> FloatArray:
    """2 gamma_{d+2} max_i sum |q||k_i|, the summations of both sides with the division, which is monotone. [N]."""
    keys = instance["keys"]
    extremes = np.abs(keys).max(axis=1)  # bounds both the best key and the envelope, channel by channel
    return 2 * dot_guard(instance["queries"], extremes) / np.sqrt(keys.shape[-1]) * 1.01


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Key (2, -1) is extreme on both sides of the query (1, -1).

    >>> check(tight_instance()).tightest > 1 - 1e-14
    True
    """
    return {"queries": np.array([[1.0, -1.0]]), "keys": np.array([[[2.0, -1.0], [0.5, 3.0]]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pages of five kinds."""
    size, width = small(rng, 1, 10), small(rng, 1, 12)
    return {"queries": normal(rng, count, width), "keys": page(rng, count, size, width)}


def cases() -> dict[str, Instance]:
    """One key: the envelope is its logit."""
    return {"one-key": {"queries": np.array([[1.0, -2.0]]), "keys": np.array([[[3.0, 4.0]]])}}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls."""
    from proofs_checks.statements.rigorous import ball, balls, largest, total

    query, keys = balls(instance["queries"][0]), balls(instance["keys"][0])
    root = ball(keys.shape[1]).sqrt()
    upper, lower = query * balls(instance["keys"][0].max(axis=0)), query * balls(instance["keys"][0].min(axis=0))
    best = np.array([a.max(b) for a, b in zip(upper, lower, strict=True)], dtype=object)
    return largest(keys @ query) / root, total(best) / root


def on_capture(step: Any) -> Instance:
    """Every complete page against every query of its group."""
    return {name: step.page_batch()[name] for name in ("queries", "keys")}
