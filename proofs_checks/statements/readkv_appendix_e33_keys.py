"""ReadKV App. E.3.3, sharpness for keys.

M equal residual entries make the exact logit error m times the diagonal one.
"""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.attention_error import AttentionError
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-e33-keys",
    source="ReadKV App. E.3.3, keys",
    claim="One key-residual row of m ones and q = 1/sqrt(m) have ||z - z^||^2 = m A_K: no dimension-free constant can "
    "replace kappa_K.",
    hypotheses="m >= 1, d = m, T = 1.",
    kind=Kind.LOWER_BOUND,
    tight="Every m: equality, and kappa_K = m.",
    finding="Sharp.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """m >= 1."""
    require(instance["m"] >= 1, "m >= 1")


def head(m: int) -> AttentionError:
    """The example at one m."""
    zero, ones = np.zeros((1, 1, m)), np.ones((1, 1, m))
    query = np.full((1, m), 1 / np.sqrt(m))
    return AttentionError({"queries": query, "keys": ones, "keys_hat": zero, "values": zero, "values_hat": zero})


def left(instance: Instance) -> FloatArray:
    """||z - z^||^2 / A_K. [N]."""
    heads = [head(int(m)) for m in instance["m"]]
    return np.array([float(one.step_norm[0] ** 2 / one.key_energy[0]) for one in heads])


def right(instance: Instance) -> FloatArray:
    """m. [N]."""
    return instance["m"].astype(np.float64)


def guard(instance: Instance) -> FloatArray:
    """Sums of m equal terms on both sides of the quotient. [N]."""
    return np.array([4 * gamma(int(m) + 12) * m for m in instance["m"]])


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """m = 1, 2, 64; kappa_K is m as well.

    >>> check(tight_instance()).left.round(9).tolist(), round(float(head(64).key_coherence[0]), 9)
    ([1.0, 2.0, 64.0], 64.0)
    """
    return {"m": np.array([1, 2, 64])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random m up to 200."""
    return {"m": rng.integers(1, 201, min(count, 20))}
