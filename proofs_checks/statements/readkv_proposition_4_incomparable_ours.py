"""Ours, beside ReadKV Prop. 4: query-independent branching and staged(1) are incomparable."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.readers import risk
from proofs_checks.statements.readkv_proposition_4 import bits_problem
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-4-incomparable-ours",
    source="beside ReadKV Prop. 4, Table 1",
    claim="Neither of query-independent branching and staged(1) contains the other: each beats the other by a risk "
    "of at "
    "least 1/4 on some problem.",
    hypotheses="One of the two witness problems, at any scale of the answers.",
    kind=Kind.LOWER_BOUND,
    tight="Both problems: 0 against 1/4.",
    finding="Table 1 lists query-independent branching second, but Prop. 4's chain leaves it out, and has to.",
    ours=True,
    proof="Two bits, one probe, query i asks for bit i: staged(1) reads the bit asked for (risk 0), a "
    "query-independent "
    "reader misses one query's bit (risk 1/4). Three bits, two probes, one query that asks for bit 1 or bit 2 as bit 0 "
    "says: reading bit 0 first and branching answers it (risk 0), while any two addresses fixed in one batch leave "
    "some "
    "record undecided between 0 and 1 (risk 1/4). The proof of both zeros is the reader; of both quarters, "
    "enumeration.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """Positive scales."""
    for _, scale in instance["problems"]:
        require(scale > 0, "answers at a positive scale", scale)


def witness(name: str) -> tuple[dict[str, Any], str, str]:
    """A problem, the class that wins on it, and the class that loses."""
    if name == "asked-bit":
        return bits_problem(2, 1, "staged-1", "query-independent"), "staged-1", "query-independent"
    problem = bits_problem(3, 2, "query-independent", "staged-1")
    codes = np.arange(8)
    problem["answers"] = np.where(codes & 1, codes >> 1 & 1, codes >> 2 & 1)[None].astype(np.float64)
    return problem, "query-independent", "staged-1"


def gap(name: str, scale: float) -> float:
    """The loser's risk less the winner's."""
    problem, winner, loser = witness(name)
    shape = (problem["width"], problem["probes"], problem["codes"], scale * problem["answers"])
    return risk(loser, *shape) - risk(winner, *shape)


def left(instance: Instance) -> FloatArray:
    """The winner's advantage. [N]."""
    return np.array([gap(name, scale) for name, scale in instance["problems"]])


def right(instance: Instance) -> FloatArray:
    """A quarter of the squared scale. [N]."""
    return np.array([scale**2 / 4 for _, scale in instance["problems"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """Both problems.

    >>> check(tight_instance()).left.tolist()
    [0.25, 0.25]
    """
    return {"problems": [("asked-bit", 1.0), ("pointed-bit", 1.0)]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Both problems at another power of two."""
    scale = float(2.0 ** rng.integers(-3, 4))
    return {"problems": [("asked-bit", scale), ("pointed-bit", scale)]}
