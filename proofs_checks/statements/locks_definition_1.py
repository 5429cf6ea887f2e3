"""Locks Def. 1: a deterministic value-blind rule picks the same pages whatever the values are."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.locks.decode import locks_decode

ABOUT = About(
    id="locks-definition-1",
    source="Locks Def. 1",
    claim="Locks' selection is deterministic and value-blind: the same keys and query with other values select the "
    "same pages.",
    hypotheses="Two instances that differ in their values alone.",
    kind=Kind.IDENTITY,
    tight="Every pair of instances: the sets are equal as sets.",
    no_constant="an identity between two selections; there is no bound to scale",
    finding="Holds by construction of the reference; it is what Lemma 1(ii)'s minimax clause quantifies over.",
)


def hypotheses(instance: Instance) -> None:
    """The two value arrays have the keys' shape."""
    same = instance["values"].shape == instance["other_values"].shape == instance["keys"].shape
    require(same, "same keys and query, other values", instance["values"].shape)


def selected(instance: Instance, field: str) -> FloatArray:
    """The selected set as the integer sum of 2^page. [N]."""
    decoded = locks_decode(
        queries=instance["queries"],
        keys=instance["keys"],
        values=instance[field],
        rank=1,
        basis_bits=instance["basis_bits"],
        budget_tokens=instance["budget"],
        page_size=2,
    )
    mask: FloatArray = np.sum(np.exp2(decoded["pages"]), axis=-1)
    return mask


def left(instance: Instance) -> FloatArray:
    """The set selected beside the first values. [N]."""
    return selected(instance, "values")


def right(instance: Instance) -> FloatArray:
    """The set selected beside the other values. [N]."""
    return selected(instance, "other_values")


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """Four pages, values zero against values one.

    >>> check(tight_instance()).violated.tolist()
    [False]
    """
    keys = np.arange(16.0).reshape(1, 8, 2)
    values = {"values": 0 * keys, "other_values": 1 + 0 * keys}
    return {"queries": np.array([[[1.0, -1.0]]]), "keys": keys, "budget": 6, "basis_bits": 4, **values}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random caches, with the open page populated or not, quantised or not."""
    tokens, width = small(rng, 1, 11), 2
    return {
        "queries": normal(rng, count, small(rng, 1, 3), width),
        "keys": normal(rng, count, tokens, width),
        "values": normal(rng, count, tokens, width),
        "other_values": normal(rng, count, tokens, width),
        "budget": small(rng, 3, 8),
        "basis_bits": [None, 4, 8][small(rng, 0, 2)],
    }


def cases() -> dict[str, Instance]:
    """k = 2 leaves no free slot (AMB-04): sink and most recent page only."""
    return {"two-pages-of-budget": {**tight_instance(), "budget": 4}}
