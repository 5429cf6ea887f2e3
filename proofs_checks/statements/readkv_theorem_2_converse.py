"""ReadKV Thm. 2, converse.

Readers that do not see the query's sign have squared error above tanh(5)^2 2^(-7-2/m)/(pi e).
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import box_trees
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.readkv_theorem_1_converse import hypotheses
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT

ABOUT = About(
    id="readkv-theorem-2-converse",
    source="ReadKV Thm. 2, converse",
    claim="A reader of at most 8m + 2 probes whose path does not see the query's sign has squared error per "
    "coordinate at "
    "least tanh(5)^2 2^(-7 - 2/m) / (pi e), over the two value vectors.",
    hypotheses="At most r = 8m + 2 probes on every execution, independent of the query.",
    kind=Kind.LOWER_BOUND,
    tight="m = 1, ten probes that halve each value five times: 1.4234 times the bound.",
    no_constant="no protocol is known below 1.4234 times the bound (ratio .7026): scalar boxes lose pi e / 6, and the "
    "weight 1/2 on the sum direction is given away besides",
    finding="The proof also drops the larger eigenvalue 1/2 of the sign-averaged weights, which costs a factor 1.0002.",
)


def left(instance: Instance) -> FloatArray:
    """Risk averaged over the sign: (p^2 + rho^2) / 2 times both values' squared errors, over m. [N].

    Within a box the two values are independent and their error means are 0, so cross terms vanish.
    """
    weight = (HIGH_WEIGHT**2 + LOW_WEIGHT**2) / 2
    sides = [box_trees.side_errors(tree) for tree in instance["trees"]]
    return np.array([weight * 2 * float(side.sum()) / len(side) for side in sides])


def right(instance: Instance) -> FloatArray:
    """tanh(5)^2 2^(-7 - 2/m) / (pi e), 2m the dimension of the trees. [N]."""
    halves = np.array([len(tree[0][1]) / 2 for tree in instance["trees"]])
    return np.tanh(5.0) ** 2 * np.exp2(-7 - 2 / halves) / (np.pi * np.e)


def guard(instance: Instance) -> FloatArray:
    """Sums of powers of four over the leaves. [N]."""
    return gamma(60 + max(map(len, instance["trees"]))) * left(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """m = 1, r = 10.

    >>> round(check(tight_instance()).tightest, 4)
    0.7025
    """
    return {"trees": [box_trees.balanced_tree(2, 10)], "probes": 10}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random ten-probe trees over two values, and balanced ones for larger m."""
    if rng.random() < 0.5:
        m = small(rng, 1, 64)
        return {"trees": [box_trees.balanced_tree(2 * m, 8 * m + 2)], "probes": 8 * m + 2}
    return {"trees": [box_trees.random_tree(rng, 2, 10) for _ in range(4)], "probes": 10}
