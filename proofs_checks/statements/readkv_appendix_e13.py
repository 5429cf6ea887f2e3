"""ReadKV App. E.1.3: on x = y = e_j the deployed (8, 2) reader has squared error above .26052610 in every dimension."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.allocation import greedy
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.nested_codes import gains, reconstruct
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.readkv.rotation import readkv_rotate

ABOUT = About(
    id="readkv-appendix-e13",
    source="ReadKV App. E.1.3, obstruction",
    claim="For x = y = e_j under a normalised Hadamard-sign transform with budget 2d all depths are 2, the estimate is "
    "Q_2(1), and the squared error exceeds .26052610, whatever d.",
    hypotheses="d a power of two; the query e_j lies outside the k-sparse family.",
    kind=Kind.LOWER_BOUND,
    tight="Every d: .260526106590.",
    hazard="H / sqrt(d) keeps all weights bit-equal; a transform that multiplies by 1/sqrt(2) stage by stage may "
    "not, and "
    "then a few channels are read deeper.",
    finding="Checked for d = 1 to 128.",
)


def hypotheses(instance: Instance) -> None:
    """d a power of two, j within it."""
    width = len(instance["signs"])
    require(width & (width - 1) == 0, "d is a power of two", width)
    require((instance["axis"] >= 0) & (instance["axis"] < width), "e_j is a coordinate vector")


def left(instance: Instance) -> FloatArray:
    """(1 - estimate)^2. [N]."""
    signs, axis = instance["signs"], instance["axis"]
    width = len(signs)
    rotated = readkv_rotate(x=np.eye(width)[axis], signs=signs)  # [N, d]: U x = U y
    depths = greedy((rotated**2 / width)[..., None] * gains("lloyd"), 2 * width)
    z = rotated * np.sqrt(width)
    estimate = np.sum(rotated * reconstruct("lloyd", z, depths), axis=-1) / np.sqrt(width)
    error: FloatArray = (1 - estimate) ** 2
    return error


def right(instance: Instance) -> FloatArray:
    """.26052610. [N]."""
    return np.full(len(instance["axis"]), 0.26052610)


def guard(instance: Instance) -> FloatArray:
    """A sum of d equal terms below 2/d, two roots, one square. [N]."""
    return np.full(len(instance["axis"]), 4 * gamma(len(instance["signs"]) + 12))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """d = 8, j = 3.

    >>> check(tight_instance()).left.round(12).tolist()
    [0.26052610659]
    """
    return {"signs": np.array([1.0, -1, 1, 1, -1, 1, -1, -1]), "axis": np.array([3])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random signs and axes up to d = 128."""
    width = 2 ** small(rng, 0, 7)
    return {"signs": rng.choice([-1.0, 1.0], width), "axis": rng.integers(0, width, min(count, 50))}
