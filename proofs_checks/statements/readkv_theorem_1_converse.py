"""ReadKV Thm. 1, converse.

Every query-independent reader of r probes has squared error at least 2^(1-2r/d) / (pi e d).
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import box_trees
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-theorem-1-converse",
    source="ReadKV Thm. 1, converse",
    claim="A reader whose access path does not see the query, with at most r probes of any record and any decoder, has "
    "worst-case squared error at least 2^(1 - 2r/d) / (pi e d).",
    hypotheses="At most r probes on every execution; addresses and stopping independent of the query.",
    kind=Kind.LOWER_BOUND,
    tight="r = d b probes that halve every side b times: pi e / 6 = 1.4233 times the bound.",
    no_constant="no protocol is known below 1.4233 times the bound (ratio .7026): scalar boxes lose pi e / 6 against "
    "the "
    "entropy bound, and the Leech lattice would still stop at ratio .89",
    hazard="Averages over the prior of signed coordinate queries, which the worst case can only exceed.",
    finding="Exhaustive over all decision trees with d <= 3, r <= 3 on binary expansions, early stopping included.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """No leaf needs more than r probes."""
    for tree in instance["trees"]:
        deepest = max(max(n, sum(halvings)) for n, halvings in tree)
        require(deepest <= instance["probes"], "at most r probes", f"{deepest} > {instance['probes']}")


def left(instance: Instance) -> FloatArray:
    """Bayes risk of Y = +-e_K, X = Z / sqrt(d): the mean squared error over d^2. [N]."""
    return np.array([float(side.sum()) / len(side) ** 2 for side in map(box_trees.side_errors, instance["trees"])])


def right(instance: Instance) -> FloatArray:
    """2^(1 - 2r/d) / (pi e d). [N]."""
    width = np.array([len(tree[0][1]) for tree in instance["trees"]], dtype=np.float64)
    return np.exp2(1 - 2 * instance["probes"] / width) / (np.pi * np.e * width)


def guard(instance: Instance) -> FloatArray:
    """Sums of powers of four over the leaves. [N]."""
    return gamma(40 + max(map(len, instance["trees"]))) * left(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """d = 4, r = 8: every side halved twice.

    >>> round(check(tight_instance()).tightest, 4)
    0.7026
    """
    return {"trees": [box_trees.balanced_tree(4, 8)], "probes": 8}


def families() -> list[Instance]:
    """All trees of d <= 3, r <= 3, with r as given and with r to spare."""
    return [{"trees": list(box_trees.all_trees(d, r)), "probes": r} for d in (1, 2, 3) for r in range(4)]


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random trees."""
    d, r = small(rng, 1, 5), small(rng, 0, 6)
    return {"trees": [box_trees.random_tree(rng, d, r) for _ in range(min(count, 50))], "probes": r}
