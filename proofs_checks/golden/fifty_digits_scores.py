"""The other systems' scores in mpmath with 50 digits, in plain loops over their definitions."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits import dot, factor, log_mass

OFFSETS = tuple(2**i for i in range(17))
"""TriAttention's steps ahead: 1, 2, 4, ..., 65536."""


def each(queries: Any, pages: Any, score: Any) -> Any:
    """score(query, head, page) for every query head and page, [H][G][P]."""
    return [[[score(q, h, p) for p in range(pages)] for q in group] for h, group in enumerate(queries)]


def quest_scores(queries: Any, minimum: Any, maximum: Any) -> Any:
    """`quest_scores`."""

    def score(q: Any, h: Any, p: Any) -> Any:
        rows = zip(q, minimum[h, p], maximum[h, p], strict=True)
        return mp.fsum(max(mpf(float(x)) * mpf(float(a)), mpf(float(x)) * mpf(float(b))) for x, a, b in rows)

    return {"scores": each(queries, minimum.shape[1], score)}


def centroid_scores(queries: Any, centroid: Any, page_tokens: Any, softmax_scale: Any = None) -> Any:
    """`centroid_scores`."""
    scale = factor(softmax_scale, queries.shape[-1])
    return {
        "scores": each(queries, centroid.shape[1], lambda q, h, p: scale * dot(q, centroid[h, p]) + mp.log(page_tokens))
    }


def moment_scores(
    queries: Any, centroid: Any, directions: Any, energies: Any, page_tokens: Any, softmax_scale: Any = None
) -> Any:
    """`moment_scores`."""
    scale = factor(softmax_scale, queries.shape[-1])

    def score(q: Any, h: Any, p: Any) -> Any:
        rows = zip(directions[h, p].T, energies[h, p], strict=True)
        spread = mp.fsum(mpf(float(e)) * dot(v, q) ** 2 for v, e in rows)
        return scale * dot(q, centroid[h, p]) + scale**2 / (2 * page_tokens) * spread + mp.log(page_tokens)

    return {"scores": each(queries, centroid.shape[1], score)}


def shared_basis_scores(queries: Any, mean: Any, basis: Any, coordinates: Any, softmax_scale: Any = None) -> Any:
    """`shared_basis_scores`."""
    scale = factor(softmax_scale, queries.shape[-1])

    def score(q: Any, h: Any, p: Any) -> Any:
        along = [dot(column, q) for column in basis[h].T]
        logits = [
            dot(q, mean[h]) + mp.fsum(a * mpf(float(c)) for a, c in zip(along, row, strict=True))
            for row in coordinates[h, p]
        ]
        return log_mass([scale * z for z in logits])

    return {"scores": each(queries, coordinates.shape[1], score)}


def codebook_scores(queries: Any, codes: Any, codewords: Any, softmax_scale: Any = None) -> Any:
    """`codebook_scores`."""
    scale = factor(softmax_scale, queries.shape[-1])
    found = each(
        queries, codes.shape[1], lambda q, h, p: log_mass([scale * dot(q, codewords[h, i]) for i in codes[h, p]])
    )
    return {"scores": found}


def softmax(logits: Any) -> Any:
    """Weights of logits."""
    mass = mp.fsum(mp.exp(z) for z in logits)
    return [mp.exp(z) / mass for z in logits]


def length(x: Any) -> Any:
    """The Euclidean norm."""
    return mp.sqrt(dot(x, x))


def expected_attention_scores(
    keys: Any, values: Any, query_mean: Any, query_covariance: Any, sinks: Any = 4, softmax_scale: Any = None
) -> Any:
    """`expected_attention_scores`."""
    scale = factor(softmax_scale, keys.shape[-1])
    H, G = query_mean.shape[:2]
    heads = []
    for h in range(H):
        weights = []
        for g in range(G):
            logits = []
            for k in keys[h, sinks:]:
                rows = zip(k, query_covariance[h, g], strict=True)
                spread = mp.fsum(mpf(float(x)) * dot(row, k) for x, row in rows)
                logits.append(scale * dot(query_mean[h, g], k) + scale**2 / 2 * spread)
            weights.append(softmax(logits))
        mean = [mp.fsum(column) / G for column in zip(*weights, strict=True)]
        heads.append([w * length(v) for w, v in zip(mean, values[h, sinks:], strict=True)])
    top = max(max(row) for row in heads) + 1
    return {"scores": [[top] * sinks + row for row in heads]}


def pooled(row: Any, kernel: Any) -> Any:
    """The maximum over an odd number of neighbours, cut at the ends."""
    half = kernel // 2
    return [max(row[max(i - half, 0) : i + half + 1]) for i in range(len(row))]


def rkv_scores(queries: Any, keys: Any, mix: Any = 0.1, kernel: Any = 7, softmax_scale: Any = None) -> Any:
    """`rkv_scores`."""
    scale, mix = factor(softmax_scale, keys.shape[-1]), mpf(mix)
    w, T = queries.shape[2], keys.shape[1]
    result = []
    for h in range(len(keys)):
        rows = [
            softmax([scale * max(dot(q[i], keys[h, t]) for q in queries[h]) for t in range(T - w)]) for i in range(w)
        ]
        attention = pooled([mp.fsum(column) / w for column in zip(*rows, strict=True)], kernel)
        sizes = [length(k) + mpf(1e-8) for k in keys[h]]
        alike = [
            [dot(keys[h, i], keys[h, j]) / (sizes[i] * sizes[j]) if i != j else mpf(0) for j in range(T)]
            for i in range(T)
        ]
        for row in alike:
            above = [j for j, cosine in enumerate(row) if cosine > 0.5]
            row[above[-1] if above else 0] = mpf(0)
        likeness = softmax([mp.fsum(column) / T for column in zip(*alike, strict=True)])
        result.append([mix * a - (1 - mix) * s for a, s in zip(attention, likeness[: T - w], strict=True)])
    return {"scores": result}


def triattention_scores(
    keys: Any,
    positions: Any,
    frequencies: Any,
    centre: Any,
    magnitude: Any,
    step: Any,
    offsets: Any = OFFSETS,
    aggregate: Any = "mean",
) -> Any:
    """`triattention_scores`."""
    half = keys.shape[-1] // 2

    def pair(x: Any, f: Any) -> Any:
        return mp.mpc(float(x[f]), float(x[f + half]))

    def score(q: Any, size: Any, k: Any, p: Any) -> Any:
        before = [pair(k, f) * mp.expj(-mpf(float(frequencies[f])) * int(p)) for f in range(half)]
        sizes = [abs(b) for b in before]
        parts = [(abs(pair(q, f)) * sizes[f], mp.arg(pair(q, f) * mp.conj(b))) for f, b in enumerate(before)]
        waves = []
        for o in offsets:
            turns = [mpf(float(w)) * int(step - p + o) for w in frequencies]
            waves.append(mp.fsum(a * mp.cos(turn + phase) for turn, (a, phase) in zip(turns, parts, strict=True)))
        spare = mp.fsum((mpf(float(size[f])) - abs(pair(q, f))) * sizes[f] for f in range(half))
        return (max(waves) if aggregate == "max" else mp.fsum(waves) / len(waves)) + spare

    heads = [
        [[score(q, m, k, p) for k, p in zip(keys[h], positions, strict=True)] for q, m in zip(c, size, strict=True)]
        for h, (c, size) in enumerate(zip(centre, magnitude, strict=True))
    ]
    return {"scores": heads}


def lazyeviction_scores(
    last: Any, interval: Any, step: Any, combine: Any = "product", least_interval: Any = 1.0
) -> Any:
    """`lazyeviction_scores`."""

    def score(seen: Any, rest: Any) -> Any:
        m = max(mpf(int(rest)), mpf(least_interval))
        parts = [2 / (1 + mp.exp(mpf(int(step - seen)) / m)), 2 / (1 + mp.exp(1 / m))]
        return mp.fprod(parts) if combine == "product" else mp.fsum(parts)

    return {"scores": np.vectorize(score, otypes=[object])(last, interval).tolist()}
