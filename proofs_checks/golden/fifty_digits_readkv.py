"""ReadKV in mpmath with 50 digits and in exact rationals, in plain loops over the definitions of the paper.

The tree is solved here, split by split, and rounded to float32 once; nothing is taken from the reference.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits import exact_list, factor
from proofs_checks.golden.rounding import round_once

LEAF_DEPTH = 8


def conditional_mean(low: Any, high: Any) -> Any:
    """E[Z | low < Z < high] of N(0, 1)."""
    density = [mp.npdf(e) if mp.isfinite(e) else mpf(0) for e in (low, high)]
    return (density[0] - density[1]) / cell_mass(low, high)


def cell_mass(low: Any, high: Any) -> Any:
    """P[low < Z < high] of N(0, 1), from the tails on the side where it lies, so that nothing cancels."""
    if low < 0:
        low, high = -high, -low  # the law is even; a cell that holds 0 has no small mass
    return (mp.erfc(low / mp.sqrt(2)) - mp.erfc(high / mp.sqrt(2))) / 2


def stationary_split(low: Any, high: Any) -> Any:
    """The t between 0 <= low < high that is as far from the mean below it as from the mean above it."""

    def off(t: Any) -> Any:
        return 2 * t - conditional_mean(low, t) - conditional_mean(t, high)

    least, most = mpf(low), low + 2 if high == mp.inf else mpf(high)
    ends = (least + (most - least) / 1000, most - (most - least) / 1000)  # off rises, and is < 0 and > 0 near the ends
    return mp.findroot(off, ends, solver="anderson", tol=mpf(10) ** -90)


@cache
def exact_tree(depth: int) -> Any:
    """Thresholds by level, centroids by depth, and gains of the tree, in 50 digits."""
    edges, thresholds, centroids = [mpf(0), mp.inf], [[mpf(0)]], [[mpf(0)]]
    for level in range(1, depth + 1):
        means = [conditional_mean(a, b) for a, b in pairwise(edges)]
        centroids.append([-m for m in reversed(means)] + means)
        if level < depth:
            splits = [stationary_split(a, b) for a, b in pairwise(edges)]
            thresholds.append([-t for t in reversed(splits)] + splits)
            edges = sorted([*edges, *splits])
    energies: Any = []
    inner: Any = []
    for t in range(depth + 1):  # D(t) = 1 - E[c_t^2], since a centroid is its cell's mean
        cells = pairwise([mp.ninf, *sorted(inner), mp.inf])
        energies.append(mp.fsum(cell_mass(a, b) * c**2 for (a, b), c in zip(cells, centroids[t], strict=True)))
        inner += thresholds[t] if t < depth else []
    return thresholds, centroids, [b - a for a, b in pairwise(energies)]


def readkv_tree(depth: Any) -> Any:
    """`readkv_tree` before it is rounded."""
    thresholds, centroids, gains = exact_tree(depth)
    return {"thresholds": thresholds, "centroids": centroids, "gains": gains}


@cache
def float32_tree() -> Any:
    """The tree of the stages: `exact_tree` of depth 8 rounded to float32 once, as Fractions."""
    return tuple(
        [[Fraction(round_once(x, "float32")) for x in level] for level in part] for part in exact_tree(LEAF_DEPTH)[:2]
    )


@cache
def float32_gains() -> Any:
    """The gains of that tree, rounded to float32 once, as Fractions."""
    return [Fraction(round_once(g, "float32")) for g in exact_tree(LEAF_DEPTH)[2]]


def hadamard(i: int, j: int) -> int:
    """The entry of Sylvester's matrix: -1 to the number of ones that i and j share."""
    return -1 if (i & j).bit_count() % 2 else 1


def transform(row: Any) -> Any:
    """The row's Hadamard transform over sqrt(d)."""
    root = mp.sqrt(len(row))
    return [mp.fsum(hadamard(i, j) * x for j, x in enumerate(row)) / root for i in range(len(row))]


def readkv_rotate(x: Any, signs: Any) -> Any:
    """`readkv_rotate`: signs first."""
    flipped = (np.asarray(x) * signs).reshape(-1, len(signs))  # a sign rounds nothing
    rows = [transform([mpf(float(v)) for v in row]) for row in flipped]
    return {"rotated": np.array(rows, dtype=object).reshape(np.shape(x)).tolist()}


def readkv_encode(z: Any) -> Any:
    """`readkv_encode`: level by level, upwards on a split."""
    thresholds = float32_tree()[0]
    codes = []
    for value in np.ravel(z).tolist():
        node = 0
        for level in thresholds:
            node = 2 * node + (Fraction(value) >= level[node])
        codes.append(node)
    return {"codes": np.array(codes, dtype=np.int64).reshape(np.shape(z)).tolist()}


def prefix(code: Any, depth: Any) -> Fraction:
    """The centroid that the first ``depth`` bits of an 8-bit path name."""
    found: Fraction = float32_tree()[1][int(depth)][int(code) // 2 ** (LEAF_DEPTH - int(depth))]
    return found


def readkv_decode(codes: Any, depth: Any) -> Any:
    """`readkv_decode`."""
    pairs = zip(np.ravel(codes), np.broadcast_to(depth, np.shape(codes)).ravel(), strict=True)
    values = np.array([mpf(float(prefix(c, t))) for c, t in pairs], dtype=object)
    return {"z_hat": values.reshape(np.shape(codes)).tolist()}


def readkv_key_importance(rotated_queries: Any, key_scale: Any) -> Any:
    """`readkv_key_importance`: the squares of scaled queries, summed over the group."""
    H, G, d = rotated_queries.shape
    q, s = exact_list(rotated_queries), exact_list(key_scale)
    return {
        "importance": [[mp.fsum((q[h][g][c] * s[h][c]) ** 2 for g in range(G)) for c in range(d)] for h in range(H)]
    }


def readkv_value_importance(weights: Any, value_head_weight: Any = None) -> Any:
    """`readkv_value_importance`: the squares of weights, summed over the group, times the head's factor."""
    H, G, T = weights.shape
    w, factors = exact_list(weights), exact_list(np.ones(H) if value_head_weight is None else value_head_weight)
    return {
        "importance": [[factors[h] * mp.fsum(w[h][g][t] ** 2 for g in range(G)) for t in range(T)] for h in range(H)]
    }


def steps_in_order(importance: Any, gains: Any, minimum_depth: int = 0) -> Iterator[tuple[Any, int, int]]:
    """Worth, item and new depth of every step that is worth anything, by falling worth, lower item first."""
    steps = [
        (a * gains[t - 1], item, t)
        for item, a in enumerate(importance)
        for t in range(minimum_depth + 1, len(gains) + 1)
        if a * gains[t - 1] > 0
    ]
    return iter(sorted(steps, key=lambda s: (-s[0], s[1], s[2])))


def choose(importance: Any, costs: Any, gains: Any, budget: int, minimum_depth: int = 0) -> list[int]:
    """Depths bought step by step; the first step that does not fit ends buying."""
    depths, left = [minimum_depth] * len(importance), budget - minimum_depth * sum(costs)
    for _, item, depth in steps_in_order(importance, gains, minimum_depth):
        if costs[item] > left:
            break
        depths[item], left = depth, left - costs[item]
    return depths


def readkv_choose_depths(importance: Any, gains: Any, budget: Any, minimum_depth: Any = 0) -> Any:
    """`readkv_choose_depths`, ties to the lower item."""
    items, levels = ([Fraction(float(x)) for x in part] for part in (importance, gains))
    return {"depths": choose(items, [1] * len(items), levels, int(budget), int(minimum_depth))}


def read(inputs: Any, choose_keys: Any, choose_values: Any) -> Any:
    """Algorithm 1's decoder; the two rules turn importances [H][N] into depths [H][N]."""
    queries, key_codes, value_codes = inputs["queries"], inputs["key_codes"], inputs["value_codes"]
    (H, T, d), G = key_codes.shape, queries.shape[1]
    scale = factor(inputs.get("softmax_scale"), d)
    state = {n: exact_list(inputs[n]) for n in ("key_mean", "key_scale", "value_mean", "value_scale")}
    rotated = readkv_rotate(queries, inputs["key_signs"])["rotated"]
    squares = [
        [mp.fsum((q[c] * state["key_scale"][h][c]) ** 2 for q in rotated[h]) for c in range(d)] for h in range(H)
    ]
    key_depths = choose_keys(squares)

    def entry(kind: str, codes: Any, h: int, t: int, c: int, depth: int) -> Any:
        z = prefix(codes[h, t, c], depth)
        return state[f"{kind}_mean"][h][c] + state[f"{kind}_scale"][h][c] * z.numerator / z.denominator

    weights = []
    for h in range(H):
        keys = [[entry("key", key_codes, h, t, c, key_depths[h][c]) for c in range(d)] for t in range(T)]
        logits = [[scale * mp.fsum(a * b for a, b in zip(q, k, strict=True)) for k in keys] for q in rotated[h]]
        masses = [[mp.exp(z) for z in row] for row in logits]
        weights.append([[m / mp.fsum(row) for m in row] for row in masses])
    value_depths = choose_values(
        [[mp.fsum(weights[h][g][t] ** 2 for g in range(G)) for t in range(T)] for h in range(H)]
    )
    output = []
    for h in range(H):
        values = [[entry("value", value_codes, h, t, c, value_depths[h][t]) for c in range(d)] for t in range(T)]
        mixed = [[mp.fsum(w[t] * values[t][c] for t in range(T)) for c in range(d)] for w in weights[h]]
        output.append([[s * x for s, x in zip(inputs["value_signs"], transform(row), strict=True)] for row in mixed])
    return {"output": output, "key_depths": key_depths, "value_depths": value_depths, "weights": weights}


def gains_of(inputs: Any) -> Any:
    """The gains of the stored levels as mpf."""
    kept = float32_gains()[: int(inputs.get("stored_depth", LEAF_DEPTH))]
    return [mpf(g.numerator) / g.denominator for g in kept]


def readkv_attention(**inputs: Any) -> Any:
    """`readkv_attention`: one budget over all heads."""

    def pooled(budget: Any) -> Any:
        def depths(importance: Any) -> Any:
            flat = [a for row in importance for a in row]
            bought = choose(flat, [1] * len(flat), gains_of(inputs), int(budget))
            return np.array(bought, dtype=np.int64).reshape(np.shape(importance)).tolist()

        return depths

    return read(inputs, pooled(inputs["key_budget"]), pooled(inputs["value_budget"]))


def readkv_restricted_attention(**inputs: Any) -> Any:
    """`readkv_restricted_attention`: a budget per head, depth 1 at least, pairs of values share a depth."""
    rate = Fraction(str(inputs["rate"]))

    def per_head(width: int) -> Any:
        def depths(importance: Any) -> Any:
            found = []
            for row in importance:
                groups = [row[i : i + width] for i in range(0, len(row), width)]
                costs = [len(g) for g in groups]
                bought = choose([mp.fsum(g) for g in groups], costs, gains_of(inputs), int(rate * len(row)), 1)
                found.append([t for t, cost in zip(bought, costs, strict=True) for _ in range(cost)])
            return found

        return depths

    return read(inputs, per_head(1), per_head(2))
