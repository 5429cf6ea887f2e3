"""Locks Lemma 3, capture: the kept modes hold any one key's squared logit up to sigma_{r+1}^2 |q|^2."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements import locks_proposition_2
from proofs_checks.statements.guard import gamma
from proofs_checks.statements.page_model import model, needs_page, svd_guard
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="locks-lemma-3",
    source="Locks Lemma 3, capture",
    claim="sum_{k<=r} sigma_k^2 (v_k.q)^2 >= (q.delta_i)^2 - sigma_{r+1}^2 |q|^2 for every key i.",
    hypotheses="1 <= r < d.",
    kind=Kind.LOWER_BOUND,
    tight="One key of B = 1000 apart from 999 equal ones, q along it: ratio (B-1)/B.",
    hazard="1603 false violations of 20000: guard 64 u d sigma_1^2 |q|^2, here from the SVD's backward error.",
    finding="Off by (delta_i.q)^2 / (B-1) at least: the other keys carry the opposite deviation.",
)
SEARCH = ("queries", "keys")


def hypotheses(instance: Instance) -> None:
    """A page and a rank below the width."""
    needs_page(instance)
    require(instance["rank"] < instance["keys"].shape[2], "1 <= r < d", f"r = {instance['rank']}")


def left(instance: Instance) -> FloatArray:
    """The kept modes' energy along q: sum_k |C_k|^2 (v_k.q)^2. [N]."""
    one = model(instance)
    along = np.einsum("nd,ndr->nr", one.queries, one.basis)
    energy: FloatArray = np.sum(one.sigma[:, : along.shape[1]] ** 2 * along**2, axis=-1)
    return energy


def right(instance: Instance) -> FloatArray:
    """(q.delta_i)^2 - sigma_{r+1}^2 |q|^2 for the key of largest centred logit. [N]."""
    one = model(instance)
    best = np.einsum("nd,nbd->nb", one.queries, one.deviations) ** 2
    bound: FloatArray = best.max(axis=-1) - one.next_sigma**2 * np.sum(one.queries**2, axis=-1)
    return bound


def guard(instance: Instance) -> FloatArray:
    """The quadratic form of D as computed against D: 2.1 sigma_1 E |q|^2 twice, and gamma of the products. [N].

    Modes that the reference drops are within E by AMB-10.
    """
    one = model(instance)
    size, width = one.keys.shape[1:]
    query = np.sum(one.queries**2, axis=-1)
    error = 3 * svd_guard(one)
    energy = one.sigma[:, 0] + error
    bound: FloatArray = query * (4.2 * energy * error + gamma(8 * width + 2 * size + 30) * size * energy**2)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def tight_instance() -> Instance:
    """999 keys at 0 and one at 1000 along channel 0.

    >>> round(check(tight_instance()).tightest, 6)
    0.999
    """
    keys = np.zeros((1, 1000, 2))
    keys[0, 0, 0] = 1000.0
    return {"queries": np.array([[1.0, 0.0]]), "keys": keys, "rank": 1}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Prop. 2's pages with a rank below the width."""
    instance: Instance = {"rank": 1, "keys": np.zeros((1, 1, 1))}
    while instance["rank"] >= instance["keys"].shape[2]:
        instance = locks_proposition_2.sample(rng, count)
    return instance


def on_capture(step: Any) -> Instance:
    """Every complete page under every query of its group."""
    return step.page_batch()


def vacuous(instance: Instance) -> Any:
    """The bound is not positive, and an energy never is negative. Bool [N]."""
    return right(instance) <= 0
