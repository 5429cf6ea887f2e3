"""ReadKV Thm. 2, the upper constant: (p eps_8 + rho)^2 < 9.50e-5."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.constants import EPS_ABOVE, eps_8
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT

ABOUT = About(
    id="readkv-theorem-2-constant",
    source="ReadKV Thm. 2, 9.50e-5",
    claim="(p eps + rho)^2 < 9.50e-5 for the true eps_8 and for its rounding .0097.",
    hypotheses="0 <= eps <= .0097.",
    kind=Kind.UPPER_BOUND,
    tight="eps = .0097: 9.4964e-5 (9.4974e-5 with rho < 1/22001 and p < 1); the true eps_8 gives 9.4076e-5.",
    hazard="Float64 with 64 roundings of guard; `constants.certify` encloses it in balls.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """An eps within the lemma's bound."""
    require((instance["epsilon"] >= 0) & (instance["epsilon"] <= float(EPS_ABOVE)), "0 <= eps <= .0097")


def left(instance: Instance) -> FloatArray:
    """(p eps + rho)^2. [N]."""
    square: FloatArray = (HIGH_WEIGHT * instance["epsilon"] + LOW_WEIGHT) ** 2
    return square


def right(instance: Instance) -> FloatArray:
    """9.50e-5. [N]."""
    return np.full(len(instance["epsilon"]), 9.50e-5)


def guard(instance: Instance) -> FloatArray:
    """64 roundings. [N]."""
    return 64 * 2.0**-53 * left(instance)


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """The bound on eps_8, and eps_8.

    >>> (check(tight_instance()).left * 1e5).round(4).tolist()
    [9.4964, 9.4076]
    """
    return {"epsilon": np.array([float(EPS_ABOVE), float(eps_8())])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Any eps below the bound."""
    return {"epsilon": rng.uniform(0, float(EPS_ABOVE), count)}
