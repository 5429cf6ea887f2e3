"""ReadKV Lemma 7, lower ends: the gains, eps_8, c_1 and Q_2(1) of the deployed float32 table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from proofs_checks.statements import constants, readkv_lemma_7
from proofs_checks.statements.readkv_lemma_7 import LOWER, hypotheses, values
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-lemma-7-lower",
    source="ReadKV Lemma 7, lower ends",
    claim="The same twelve quantities lie above the printed lower ends; in particular Delta_1 > ... > Delta_8 > 0, "
    "because the printed intervals are disjoint and ordered.",
    hypotheses="As the upper ends.",
    kind=Kind.LOWER_BOUND,
    tight="Every entry.",
    hazard="As the upper ends.",
    exhaustive=True,
)


def left(instance: Instance) -> FloatArray:
    """The entries, rounded down. [N]."""
    return np.array([constants.float_down(values()[int(i)]) for i in instance["entry"]])


def right(instance: Instance) -> FloatArray:
    """The printed lower ends, rounded up. [N]."""
    return np.array([constants.float_up(Fraction(LOWER[int(i)])) for i in instance["entry"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)
tight_instance, sample = readkv_lemma_7.tight_instance, readkv_lemma_7.sample
