"""ReadKV App. D.1.

The reference's float32 table is the certified rounding of the Gaussian Lloyd tree, entry by entry.
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.certified_tree import certified_table
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.tree import deployed_table

ABOUT = About(
    id="readkv-lemma-7-table",
    source="ReadKV App. D.1, the table",
    claim="Every threshold, centroid and gain of the reference's depth-8 table is the float32 nearest to the exact "
    "Gaussian Lloyd tree's, and the lower half mirrors the upper.",
    hypotheses="Splits stationary inside their fixed parent intervals; every entry rounded once.",
    kind=Kind.IDENTITY,
    tight="All 390 entries of the upper half and the gains.",
    no_constant="an identity between two tables; there is no bound to scale",
    hazard="Needs python-flint. The nearest entry stands 2.6e-3 ulp from a rounding tie, and enclosures are 1e-93 "
    "wide.",
    finding="'Boundary = midpoint of child centroids' is exact before rounding only.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """Levels of a depth-8 tree."""
    require((instance["level"] >= 0) & (instance["level"] <= 16), "one of the 17 lists of the table")


def lists() -> list[tuple[FloatArray, FloatArray]]:
    """(the reference's, the certified) entries: 8 levels of centroids, 8 of thresholds, the gains."""
    table, proven = deployed_table(), certified_table()
    both = [(table.centroids[t], mirrored(proven.centroids[t - 1])) for t in range(1, 9)]
    both += [(table.thresholds[0], np.zeros(1))]
    both += [(table.thresholds[level], mirrored(proven.thresholds[level - 1])) for level in range(1, 8)]
    both += [(table.gains, np.array(proven.gains))]
    return [(np.asarray(a, dtype=np.float64), b) for a, b in both]


def mirrored(upper: tuple[float, ...]) -> FloatArray:
    """A symmetric list from its positive half.

    >>> mirrored((1.0, 2.0)).tolist()
    [-2.0, -1.0, 1.0, 2.0]
    """
    half = np.array(upper)
    return np.concatenate([-half[::-1], half])


def left(instance: Instance) -> FloatArray:
    """How many entries of each list differ. [N]."""
    pairs = lists()
    return np.array([float(np.sum(pairs[int(i)][0] != pairs[int(i)][1])) for i in instance["level"]])


def right(instance: Instance) -> FloatArray:
    """None. [N]."""
    return np.zeros(len(instance["level"]))


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """All 17 lists.

    >>> check(tight_instance()).left.sum().item()
    0.0
    """
    return {"level": np.arange(17)}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """The same lists: there is nothing to draw."""
    return {"level": np.arange(17)}
