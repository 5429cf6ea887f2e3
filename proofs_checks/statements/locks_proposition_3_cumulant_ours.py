"""Ours, beside Locks Prop. 3: the cumulant remainder is at most 2 L^3 / (9 sqrt 3) = .1283 L^3."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import locks_proposition_3_cumulant as paper
from proofs_checks.statements.locks_proposition_3_cumulant import guard, hypotheses, left
from proofs_checks.statements.statement import About, Instance, Kind, checker
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-3-cumulant-ours",
    source="beside Locks Prop. 3, R_cum",
    claim="|R_cum| <= 2 L^3 / (9 sqrt 3), which is 2.6 times smaller than the paper's L^3 / 3.",
    hypotheses="As Prop. 3.",
    kind=Kind.UPPER_BOUND,
    tight="Two keys at z = +-2.1725: ratio .66.",
    no_constant="the best witness known reaches .66: the extremal tilt cannot persist along the whole path",
    finding="Not known to be sharp.",
    ours=True,
    proof="Under the tilted law the deviations lie in an interval of length 2L. At a fixed mean the third central "
    "moment "
    "is linear in the law, so it is largest at a law on two points, w apart with weight p: w^3 p(1-p)(1-2p) <= "
    "w^3 / (6 sqrt 3) at p = (1 - 1/sqrt 3) / 2. With w <= 2L this gives |K'''| <= 8 L^3 / (6 sqrt 3), and the "
    "integral of (1-t)^2 / 2 contributes 1/6.",
)
SEARCH = ("logits",)


def right(instance: Instance) -> FloatArray:
    """2 L^3 / (9 sqrt 3). [N]."""
    return paper.right(instance) * (2 / (3 * np.sqrt(3)))


check = checker(ABOUT, hypotheses, left, right, guard)
tight_instance, sample, cases, on_capture = paper.tight_instance, paper.sample, paper.cases, paper.on_capture
