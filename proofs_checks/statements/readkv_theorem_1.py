"""ReadKV Thm. 1, upper bound.

Reading only the support of a sparse query, ReadKV's squared error is at most k eps^2 / d.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.allocation import greedy
from proofs_checks.statements.guard import UNIT, gamma
from proofs_checks.statements.nested_codes import LLOYD_DEPTH, gains, reconstruct, worst_point
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, require
from refimpl.checks import FloatArray
from refimpl.readkv.rotation import unrotate

ABOUT = About(
    id="readkv-theorem-1",
    source="ReadKV Thm. 1, upper bound",
    claim="For x = U^T z / sqrt(d) and a query with at most k nonzero transformed coordinates and norm at most 1, the "
    "reader with budget Lk has squared error at most k eps_L^2 / d.",
    hypotheses="z in [-1, 1]^d; |q| <= 1; |q|_0 <= k; 1 <= L <= 8; budget Lk.",
    kind=Kind.UPPER_BOUND,
    tight="k equal query coordinates, each z at the code's worst point +-.98159879446: ratio 1 - 2e-14.",
    hazard="|z| <= 1 + 4u after U is harmless. The budget covers every positive gain, so ties do not matter.",
    finding="Sharp for every k and d.",
)


def hypotheses(instance: Instance) -> None:
    """The source and query families, the code's depth."""
    z, q, k = instance["z"], instance["q"], instance["k"]
    require(np.abs(z) <= 1, "z in [-1, 1]^d")
    require(np.sum(q**2, axis=-1) <= 1 + gamma(z.shape[1] + 8), "|q| <= 1")
    require(np.count_nonzero(q, axis=-1) <= k, "|q|_0 <= k", f"k = {k}")
    require(1 <= k <= z.shape[1], "1 <= k <= d")
    require(1 <= instance["depth"] <= len(gains(instance["code"])), "1 <= L <= the code's depth", instance["depth"])


def estimate(instance: Instance) -> FloatArray:
    """The reader's answer: depths from the query alone, then d^(-1/2) sum q_i Q(z_i). [N]."""
    z, q, depth, code = (instance[name] for name in ("z", "q", "depth", "code"))
    width = z.shape[1]
    depths = greedy(q[..., None] ** 2 / width * gains(code)[:depth], depth * instance["k"])
    answer: FloatArray = np.sum(q * reconstruct(code, z, depths), axis=-1) / np.sqrt(width)
    return answer


def left(instance: Instance) -> FloatArray:
    """(x.y - estimate)^2, x and y in the original coordinates. [N]."""
    z, q = instance["z"], instance["q"]
    x, y = (unrotate(x=v, signs=instance["signs"]) for v in (z / np.sqrt(z.shape[1]), q))
    error: FloatArray = (np.einsum("nd,nd->n", x, y) - estimate(instance)) ** 2
    return error


def right(instance: Instance) -> FloatArray:
    """k eps_L^2 / d. [N]."""
    epsilon = float(worst_point(instance["code"], instance["depth"])[1])
    return np.full(len(instance["z"]), instance["k"] * epsilon**2 / instance["z"].shape[1])


def guard(instance: Instance) -> FloatArray:
    """Two inner products of vectors of norms <= 1 and <= 3/sqrt(d) |q|_1, rotated with log2 d + 2 roundings. [N].

    (|e| + g)^2 - e^2 = 2 |e| g + g^2; the query's norm may exceed 1 by what the hypothesis admits.
    """
    width = instance["z"].shape[1]
    absolute = np.sum(np.abs(instance["q"]), axis=-1) / np.sqrt(width)
    rounding = gamma(2 * int(np.log2(width)) + width + 10) * (1 + 3 * absolute)
    admitted = 2 * gamma(width + 8) * right(instance)
    bound: FloatArray = 2 * np.sqrt(left(instance)) * rounding + rounding**2 + admitted + 8 * UNIT * right(instance)
    return bound


check = checker(ABOUT, hypotheses, left, right, guard)


def worst_case(width: int, k: int, depth: int, code: str) -> Instance:
    """k equal query coordinates and z at the worst point of the code."""
    point = worst_point(code, depth)[0]
    q = np.zeros((1, width))
    q[0, :k] = 1 / np.sqrt(k)
    return {"z": np.full((1, width), point), "q": q, "signs": np.ones(width), "k": k, "depth": depth, "code": code}


def tight_instance() -> Instance:
    """d = 4, k = 4, L = 8.

    >>> slack = check(tight_instance())
    >>> slack.tightest > 1 - 1e-11, bool(slack.left[0] / slack.right[0] > 1 - 1e-13)
    (True, True)
    """
    return worst_case(4, 4, 8, "lloyd")


def sample(rng: np.random.Generator, count: int, code: str = "lloyd", deepest: int = LLOYD_DEPTH) -> Instance:
    """Random sources (some at the worst point) and sparse queries, any admissible depth."""
    width, depth = 2 ** small(rng, 0, 5), small(rng, 1, deepest)
    k = small(rng, 1, width)
    q = rng.standard_normal((count, width)) if rng.random() < 0.6 else np.ones((count, width))
    q = q * (rng.permuted(np.broadcast_to(np.arange(width), (count, width)), axis=1) < k)
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    z = rng.uniform(-1, 1, (count, width))
    if rng.random() < 0.4:
        z = np.where(rng.random(z.shape) < 0.7, worst_point(code, depth)[0], z)
    signs = rng.choice([-1.0, 1.0], width)
    return {"z": z, "q": q, "signs": signs, "k": k, "depth": depth, "code": code}


def cases() -> dict[str, Instance]:
    """d = 1, a query shorter than its budget, and the papers' d = 128, k = 32."""
    sparse = worst_case(8, 4, 8, "lloyd")
    sparse["q"] = sparse["q"] * (np.arange(8) < 2)
    return {"d-is-1": worst_case(1, 1, 8, "lloyd"), "sparser-than-k": sparse, "papers": worst_case(128, 32, 8, "lloyd")}


def enclose(instance: Instance) -> tuple[Any, Any]:
    """Both sides as balls in transformed coordinates; a query that exceeds norm 1 by rounding scales the bound."""
    from proofs_checks.statements.constants import as_ball
    from proofs_checks.statements.rigorous import ball, balls, total

    z, q, k, depth, code = (instance[name] for name in ("z", "q", "k", "depth", "code"))
    width = z.shape[1]
    depths = greedy(q[..., None] ** 2 / width * gains(code)[:depth], depth * k)
    query = balls(q[0])
    error = total(query * (balls(z[0]) - balls(reconstruct(code, z, depths)[0])))
    norm_squared = total(query * query).max(ball(1.0))
    return error * error / width, k * as_ball(worst_point(code, depth)[1]) ** 2 * norm_squared / width
