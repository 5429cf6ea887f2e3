"""ReadKV Lemma 7, upper ends: the gains, eps_8, c_1 and Q_2(1) of the deployed float32 table."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from proofs_checks.statements import constants
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.tree import deployed_table

ABOUT = About(
    id="readkv-lemma-7",
    source="ReadKV Lemma 7, upper ends",
    claim="The stored gains Delta_1..8, eps_8, c_1, Q_2(1) and (Q_2(1) - 1)^2 lie below the printed upper ends.",
    hypotheses="The float32 table: the Gaussian Lloyd tree in high precision, every entry rounded once.",
    kind=Kind.UPPER_BOUND,
    tight="Every entry: the printed intervals are a few units of the last digit wide.",
    hazard="Exact rationals of float32 entries, compared as fractions: nothing is rounded the wrong way. The unrounded "
    "tree's Delta_1, Delta_2, c_1, Q_2(1) and eps_8 lie outside.",
    finding="Holds for the float32 table alone. D(8) = .00004795 in the text is the exact curve; the effective curve "
    "that the text defines gives .00004798.",
    exhaustive=True,
)

LOWER = (
    *("0.63661974", "0.24589838", "0.08264372", "0.02504228", "0.00713273", "0.00195518", "0.00052264"),
    *("0.0001373218", "0.0096543431", "0.7978845834", "1.5104175806", "0.26052610"),
)
UPPER = (
    *("0.63661975", "0.24589839", "0.08264373", "0.02504229", "0.00713274", "0.00195519", "0.00052265"),
    *("0.0001373220", "0.0096543432", "0.7978845835", "1.5104175807", "0.26052612"),
)


def values() -> list[Fraction]:
    """The twelve quantities as exact rationals of the table's entries, in the printed order."""
    gains = [Fraction(float(gain)) for gain in deployed_table().gains]
    second = constants.depth_two_at_one()
    return [*gains, constants.eps_8(), constants.depth_one_centroid(), second, (second - 1) ** 2]


def hypotheses(instance: Instance) -> None:
    """Entries of the twelve that the lemma prints."""
    require((instance["entry"] >= 0) & (instance["entry"] < 12), "one of the twelve printed intervals")


def left(instance: Instance) -> FloatArray:
    """The entries, rounded up. [N]."""
    return np.array([constants.float_up(values()[int(i)]) for i in instance["entry"]])


def right(instance: Instance) -> FloatArray:
    """The printed upper ends, rounded down. [N]."""
    return np.array([constants.float_down(Fraction(UPPER[int(i)])) for i in instance["entry"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """All twelve.

    >>> check(tight_instance()).violated.any().item()
    False
    """
    return {"entry": np.arange(12)}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """The same twelve: there is nothing to draw."""
    return tight_instance()
