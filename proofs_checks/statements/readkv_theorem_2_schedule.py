"""ReadKV Thm. 2, the schedule: all eight value levels go to the attended token."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements import readkv_theorem_2
from proofs_checks.statements.readkv_theorem_2 import hypotheses, value_depths
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-theorem-2-schedule",
    source="ReadKV Thm. 2, schedule",
    claim="The value schedule is (8, 0) or (0, 8) with the eight levels on the token of larger attention: of the 8m "
    "value "
    "bits all lie in the attended value.",
    hypotheses="As Theorem 2.",
    kind=Kind.LOWER_BOUND,
    tight="Every instance: 8 levels of 8.",
    finding="The margin is e^20 Delta_8 / Delta_1 > 104400, see readkv-theorem-2-separation.",
)


def left(instance: Instance) -> FloatArray:
    """Levels read of the attended value. [N]."""
    attended = (instance["b"] * instance["eta"] < 0).astype(np.int64)
    levels: FloatArray = np.take_along_axis(value_depths(instance), attended[:, None], axis=1)[:, 0].astype(np.float64)
    return levels


def right(instance: Instance) -> FloatArray:
    """8. [N]."""
    return np.full(len(instance["b"]), 8.0)


check = checker(ABOUT, hypotheses, left, right, no_rounding)
tight_instance, sample = readkv_theorem_2.tight_instance, readkv_theorem_2.sample
