"""ReadKV App. D.2: E[(q.e)^2 | q] = q^T E[e e^T | q] q, without zero-mean errors."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.guard import gamma
from proofs_checks.statements.sampling import normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-appendix-d2",
    source="ReadKV App. D.2",
    claim="The expected squared logit error at a realised query is the quadratic form of the conditional second-moment "
    "matrix, whatever the errors' mean; its diagonal is what Eq. (2) keeps.",
    hypotheses="A finite law of errors (weights that are nonnegative).",
    kind=Kind.IDENTITY,
    tight="Every law.",
    no_constant="an identity; there is no bound to scale",
    finding="The off-diagonal part can have either sign, so the diagonal surrogate is no bound (see E.3.3).",
)


def hypotheses(instance: Instance) -> None:
    """Nonnegative weights."""
    require(instance["probability"] >= 0, "probabilities are nonnegative")


def left(instance: Instance) -> FloatArray:
    """sum_s p_s (q.e_s)^2. [N]."""
    products = np.einsum("nd,nsd->ns", instance["queries"], instance["errors"])
    mean: FloatArray = np.sum(instance["probability"] * products**2, axis=-1)
    return mean


def right(instance: Instance) -> FloatArray:
    """q^T (sum_s p_s e_s e_s^T) q. [N]."""
    moment = np.einsum("ns,nsd,nse->nde", instance["probability"], instance["errors"], instance["errors"])
    form: FloatArray = np.einsum("nd,nde,ne->n", instance["queries"], moment, instance["queries"])
    return form


def guard(instance: Instance) -> FloatArray:
    """gamma of S + d^2 products, relative to sum_s p_s (|q|.|e_s|)^2. [N]."""
    samples, width = instance["errors"].shape[1:]
    absolute = np.einsum("nd,nsd->ns", np.abs(instance["queries"]), np.abs(instance["errors"])) ** 2
    size = np.sum(instance["probability"] * absolute, axis=-1)
    return 2.1 * gamma(samples + width**2 + 2 * width + 10) * size


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """Two equally likely errors, (1, 1) and (3, -1), under q = (1, 2): (9 + 1) / 2.

    >>> check(tight_instance()).left.tolist(), check(tight_instance()).right.tolist()
    ([5.0], [5.0])
    """
    errors = np.array([[[1.0, 1.0], [3.0, -1.0]]])
    return {"queries": np.array([[1.0, 2.0]]), "errors": errors, "probability": np.array([[0.5, 0.5]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random laws with a mean."""
    samples, width = small(rng, 1, 8), small(rng, 1, 6)
    errors = normal(rng, count, samples, width) + normal(rng, count, 1, width)
    return {
        "queries": normal(rng, count, width),
        "errors": errors,
        "probability": rng.dirichlet(np.ones(samples), count),
    }
