"""Locks Prop. 3, the cumulant remainder: |R_cum| <= L^3 / 3."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT
from proofs_checks.statements.sampling import magnitudes, normal, small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-proposition-3-cumulant",
    source="Locks Prop. 3, R_cum",
    claim="The log-mean of exp z differs from half the second cumulant by at most L^3 / 3, L the largest |z|.",
    hypotheses="The centred logits z of a nonempty page, which sum to zero.",
    kind=Kind.UPPER_BOUND,
    tight="Two keys at z = +-2.1725: ratio .25385.",
    no_constant="the best witness known reaches .2539 (two keys at +-2.17): the paper's step |third cumulant| <= 2 L^3 "
    "is loose",
    hazard="For L below about 1e-5 the remainder is below rounding: guard 4u(1 + B) grown by L, or balls.",
    finding="Loose by a factor 3.9 at least; see locks-proposition-3-cumulant-ours.",
)
SEARCH = ("logits",)


def hypotheses(instance: Instance) -> None:
    """At least one key; the logits are centred by `centred` below, whatever comes."""
    require(instance["logits"].shape[1] >= 1, "a nonempty page", instance["logits"].shape)


def centred(instance: Instance) -> FloatArray:
    """z: the logits less their mean. [N, B]."""
    logits = instance["logits"]
    return logits - logits.mean(axis=-1, keepdims=True)


def left(instance: Instance) -> FloatArray:
    """|log mean exp z - var(z) / 2|. [N]."""
    z = centred(instance)
    remainder: FloatArray = np.abs(log_sum_exp(z) - np.log(z.shape[1]) - 0.5 * np.mean(z**2, axis=-1))
    return remainder


def right(instance: Instance) -> FloatArray:
    """L^3 / 3. [N]."""
    bound: FloatArray = np.abs(centred(instance)).max(axis=-1) ** 3 / 3
    return bound


def guard(instance: Instance) -> FloatArray:
    """Log-sum-exp of B terms, log B, a variance, and the centring, felt once on the left and L^2 times in L^3. [N]."""
    size = instance["logits"].shape[1]
    largest = np.abs(centred(instance)).max(axis=-1)
    raw = np.abs(instance["logits"]).max(axis=-1)
    spread = (size + 30) * UNIT * (2 * largest + np.log(size) + 1)
    cube = (size + 6) * UNIT * (raw + largest) * largest**2
    bound: FloatArray = 1.1 * (spread + (size + 8) * UNIT * largest**2 + size * UNIT * raw + cube)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """z = +-2.1725: (z^2 / 2 - log cosh z) / (z^3 / 3), which is largest there.

    >>> round(check(tight_instance()).tightest, 4)
    0.2539
    """
    return {"logits": np.array([[2.1724516, -2.1724516]])}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random pages from tiny to wide logits, two-valued pages, one outlier."""
    size = small(rng, 1, 12)
    logits = normal(rng, count, size, low=-6, high=1.5)
    kind = rng.integers(3)
    if kind == 0:
        logits = np.where(logits > 0, 1.0, -1.0) * magnitudes(rng, count, 1)
    elif kind == 1:
        logits[:, 0] *= 10
    return {"logits": logits}


def cases() -> dict[str, Instance]:
    """Identical keys: no deviation, both sides 0."""
    return {"identical-keys": {"logits": np.full((1, 4), 3.0)}, "one-key": {"logits": np.ones((1, 1))}}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls."""
    from proofs_checks.statements.rigorous import ball, balls, each, largest, log_sum_exp, total

    z = balls(instance["logits"][0])
    size = len(z)
    z = z - total(z) / size
    remainder = log_sum_exp(z) - ball(size).log() - total(z * z) / (2 * size)
    return abs(remainder), largest(each(abs, z)) ** 3 / 3


def on_capture(step: Any) -> Instance:
    """The logits of every complete page under every query of its group."""
    pages = step.page_batch()
    width = pages["keys"].shape[-1]
    return {"logits": np.einsum("nd,nbd->nb", pages["queries"], pages["keys"]) / np.sqrt(width)}
