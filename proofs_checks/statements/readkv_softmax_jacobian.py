"""ReadKV App. E.3.1, the Jacobian: diag(p) - p p^T has operator norm at most 1/2, and 1/2 is sharp."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-softmax-jacobian",
    source="ReadKV App. E.3.1, Jacobian",
    claim="||diag(p) - p p^T|| <= 1/2 for every probability vector p.",
    hypotheses="p >= 0 with sum 1.",
    kind=Kind.UPPER_BOUND,
    tight="p = (1/2, 1/2): (1, -1) is an eigenvector with eigenvalue 1/2.",
    hazard="A float p sums to 1 within gamma_T only.",
    finding="Sharp.",
)
SEARCH = ("p",)


def hypotheses(instance: Instance) -> None:
    """Probability vectors, up to the rounding of their sum."""
    p = instance["p"]
    require(p >= 0, "p >= 0")
    require(np.abs(p.sum(axis=-1) - 1) <= gamma(2 * p.shape[1] + 4), "p sums to 1")


def left(instance: Instance) -> FloatArray:
    """The largest eigenvalue. [N]."""
    p = instance["p"]
    jacobian = p[..., None] * np.eye(p.shape[1]) - p[:, :, None] * p[:, None]
    largest: FloatArray = np.linalg.eigvalsh(jacobian)[:, -1]
    return largest


def right(instance: Instance) -> FloatArray:
    """1/2. [N]."""
    return np.full(len(instance["p"]), 0.5)


def guard(instance: Instance) -> FloatArray:
    """Entries below 1 within 2u, p's sum as the hypothesis admits, an eigenvalue within T gamma_{16 T}. [N]."""
    tokens = instance["p"].shape[1]
    return np.full(len(instance["p"]), gamma(16 * tokens) * tokens + 3 * gamma(2 * tokens + 4))


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """p = (1/2, 1/2).

    >>> check(tight_instance()).left.round(15).tolist()
    [0.5]
    """
    return {"p": np.array([[0.5, 0.5]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Dirichlet vectors of all concentrations."""
    return {"p": rng.dirichlet(np.full(small(rng, 1, 7), 10.0 ** rng.uniform(-1, 1.5)), count)}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls, p scaled to sum to 1."""
    from proofs_checks.statements.rigorous import ball, balls, symmetric_norm, total

    p = balls(instance["p"][0])
    p = p / total(p)
    outer = p[:, None] * p[None]
    diagonal = np.array([[p[i] if i == j else ball(0.0) for j in range(len(p))] for i in range(len(p))], dtype=object)
    return symmetric_norm(diagonal - outer), ball(0.5)
