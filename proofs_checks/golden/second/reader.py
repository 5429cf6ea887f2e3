"""The two-stage reader of ReadKV (Sec. 3.2, 3.3, Alg. 1) and the restricted reader of its App. F.8 and G.

Inputs are rational, so everything before the softmax is computed exactly: the rotation is an integer matrix divided by
sqrt(d), and sqrt(d) enters the importance of Eq. (2) squared and the logits together with their own 1/sqrt(d). Ties of
importances and of logits are therefore true ties. Only the softmax and the last division by sqrt(d) round, to 70
digits. Every KV head has at least one query head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from math import floor
from typing import Any

import mpmath
from mpmath import mpf

from proofs_checks.golden.second.allocation import choose_depths
from proofs_checks.golden.second.exact import WORKING_DIGITS, dot, fractions, real, transposed
from proofs_checks.golden.second.tree import LEAF_BITS, decode, deployed_tree

Vector = list[Any]  # of fractions or of mpf
Matrix = list[list[Any]]
ChooseRows = Callable[[Matrix], list[list[int]]]  # importance of every head's items -> their depths


@dataclass(frozen=True)
class Cache:
    """What the encoder stored: codes [H,T,d], calibration [H,d] and the signs [d] of both rotations."""

    key_codes: list[list[list[int]]]
    value_codes: list[list[list[int]]]
    key_mean: Matrix
    key_scale: Matrix
    value_mean: Matrix
    value_scale: Matrix
    key_signs: list[int]
    value_signs: list[int]


@dataclass(frozen=True)
class Reading:
    """What a reader returns: output [H,G,d], depths [H,d] and [H,T], attention weights [H,G,T]; logits are exact."""

    output: list[Matrix]
    key_depths: list[list[int]]
    value_depths: list[list[int]]
    weights: list[Matrix]
    logits: list[Matrix]


def signed_hadamard(signs: list[int]) -> list[list[int]]:
    """Give sqrt(d) U = H diag(signs), the rotation as a matrix of integers (ReadKV Sec. 3.1; AMB-16).

    H in natural order has entry (-1)^(number of ones common to the binary forms of its row and column).
    """
    size = len(signs)
    if size == 0 or size & (size - 1):
        raise ValueError(f"signs: expected a power of two of them, got {size}")
    return [[(-1) ** (row & column).bit_count() * int(signs[column]) for column in range(size)] for row in range(size)]


def rotate(x: Vector, signs: list[int]) -> list[mpf]:
    """Give U x = H diag(signs) x / sqrt(d) (ReadKV Sec. 3.1)."""
    exact = fractions("x", x)
    with mpmath.workdps(WORKING_DIGITS):
        return [real(dot(row, exact)) / mpmath.sqrt(len(signs)) for row in signed_hadamard(signs)]


def rotate_back(y: Vector, signs: list[int]) -> list[mpf]:
    """Give U^T y: column i of H diag(signs), divided by sqrt(d), against y (ReadKV Sec. 3.1, 3.2)."""
    exact = fractions("y", y)
    with mpmath.workdps(WORKING_DIGITS):
        return [real(dot(column, exact)) / mpmath.sqrt(len(signs)) for column in transposed(signed_hadamard(signs))]


def key_importance(rotated_queries: list[Matrix], key_scale: Matrix) -> Matrix:
    """Give a^K[g][c] = sum over the sharing query heads of (q'_c sigma_c)^2, exactly (ReadKV Eq. (2))."""
    q, sigma = fractions("rotated_queries", rotated_queries), fractions("key_scale", key_scale)
    return [
        [sum((query[c] * sigma_c) ** 2 for query in group) for c, sigma_c in enumerate(row)]
        for group, row in zip(q, sigma, strict=True)
    ]


def value_importance(weights: list[Matrix], value_head_weight: Vector) -> Matrix:
    """Give a^V[g][j] = s_g x sum over the sharing query heads of alpha_j^2, exactly (ReadKV Eq. (3))."""
    alpha, s = fractions("weights", weights), fractions("value_head_weight", value_head_weight)
    return [
        [s_g * sum(one**2 for one in token) for token in transposed(group)] for group, s_g in zip(alpha, s, strict=True)
    ]


def softmax(logits: Vector) -> list[mpf]:
    """Give the attention weights of one query head; no token gives no weight."""
    exact = fractions("logits", logits)
    with mpmath.workdps(WORKING_DIGITS):
        masses = [mpmath.exp(real(logit - max(exact))) for logit in exact]
        total = mpmath.fsum(masses)
        return [one / total for one in masses]


def reconstruct(codes: list[int], depths: list[int], mean: Vector, scale: Vector) -> Vector:
    """Give mu + sigma z_hat per channel of one token, each read to its own depth (ReadKV Sec. 3.1)."""
    channels = zip(codes, depths, mean, scale, strict=True)
    return [mu + sigma * decode(code, depth) for code, depth, mu, sigma in channels]


def read_keys(cache: Cache, queries: list[Matrix], choose: ChooseRows) -> tuple[list[list[int]], list[Matrix]]:
    """First stage: key depths from the queries alone, then logits q' . K_hat / sqrt(d) (ReadKV Sec. 3.2, Alg. 1).

    Both are exact. With p = sqrt(d) q', the importance is that of p divided by d, and the logit is p . K_hat / d.
    """
    size = len(cache.key_signs)
    matrix = signed_hadamard(cache.key_signs)
    spread = [[[dot(row, query) for row in matrix] for query in group] for group in queries]
    depths = choose([[a / size for a in head] for head in key_importance(spread, cache.key_scale)])
    logits = []
    for head, group in enumerate(spread):
        calibration = depths[head], cache.key_mean[head], cache.key_scale[head]
        keys = [reconstruct(codes, *calibration) for codes in cache.key_codes[head]]
        logits.append([[dot(query, key) / size for key in keys] for query in group])
    return depths, logits


def read_values(cache: Cache, weights: list[Matrix], depths: list[list[int]]) -> list[Matrix]:
    """Second stage's decoder: U_V^T sum_j alpha_j V_hat_j for each query head (ReadKV Sec. 3.2, Alg. 1)."""
    size = len(cache.value_signs)
    output = []
    for head, group in enumerate(fractions("weights", weights)):
        calibration = cache.value_mean[head], cache.value_scale[head]
        tokens = zip(cache.value_codes[head], depths[head], strict=True)
        values = [reconstruct(codes, [depth] * size, *calibration) for codes, depth in tokens]
        mixed = [[dot(alpha, [value[c] for value in values]) for c in range(size)] for alpha in group]
        output.append([rotate_back(y, cache.value_signs) for y in mixed])
    return output


def two_stages(
    cache: Cache, queries: list[Matrix], choose_keys: ChooseRows, choose_values: ChooseRows, value_head_weight: Vector
) -> Reading:
    """Run both stages of Alg. 1; only the allocators differ between the flexible and the restricted reader."""
    calibration = "key_mean", "key_scale", "value_mean", "value_scale"
    cache = replace(cache, **{name: fractions(name, getattr(cache, name)) for name in calibration})
    key_depths, logits = read_keys(cache, fractions("queries", queries), choose_keys)
    weights = [[softmax(row) for row in group] for group in logits]
    value_depths = choose_values(value_importance(weights, value_head_weight))
    return Reading(read_values(cache, weights, value_depths), key_depths, value_depths, weights, logits)


def pooled(budget: int, stored_depth: int) -> ChooseRows:
    """One budget over all heads, items numbered head after head (ReadKV Sec. 3.3; AMB-19, AMB-21, AMB-34)."""

    def choose(importance: Matrix) -> list[list[int]]:
        flat = [a for head in importance for a in head]
        depths = iter(choose_depths(flat, deployed_tree().gains[:stored_depth], budget))
        return [[next(depths) for _ in head] for head in importance]

    return choose


def per_head(rate: Fraction, stored_depth: int, packet: int) -> ChooseRows:
    """Each head its own floor(rate x items), depth 1 at least, `packet` neighbours at one depth (ReadKV F.8, G).

    A packet's importance is the sum of its items', and its step costs one refinement per item.
    """

    def choose(importance: Matrix) -> list[list[int]]:
        rows = []
        for head in importance:
            packets = [head[start : start + packet] for start in range(0, len(head), packet)]
            costs = [len(one) for one in packets]
            sums = [sum(one) for one in packets]
            gains = deployed_tree().gains[:stored_depth]
            depths = choose_depths(sums, gains, floor(rate * len(head)), minimum_depth=1, costs=costs)
            rows.append([depth for depth, cost in zip(depths, costs, strict=True) for _ in range(cost)])
        return rows

    return choose


def pooled_reader(
    cache: Cache,
    queries: list[Matrix],
    key_budget: int,
    value_budget: int,
    stored_depth: int = LEAF_BITS,
    value_head_weight: Vector | None = None,
) -> Reading:
    """Read with budgets pooled over the KV heads: queries [H,G,d] -> output, depths, weights (ReadKV Alg. 1)."""
    choices = pooled(key_budget, stored_depth), pooled(value_budget, stored_depth)
    return two_stages(cache, queries, *choices, [1] * len(queries) if value_head_weight is None else value_head_weight)


def restricted_reader(cache: Cache, queries: list[Matrix], rate: Any, stored_depth: int = LEAF_BITS) -> Reading:
    """Read as the timed kernel does: equal rates, per head, depth 1 at least, values in pairs (ReadKV F.8, G).

    A float rate means the shortest decimal that stands for it (AMB-33).
    """
    exact = Fraction(repr(rate)) if isinstance(rate, float) else Fraction(rate)
    if exact < 1:
        raise ValueError(f"rate: expected at least 1, got {rate}")
    choices = per_head(exact, stored_depth, packet=1), per_head(exact, stored_depth, packet=2)
    return two_stages(cache, queries, *choices, [1] * len(queries))
