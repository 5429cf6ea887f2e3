"""The other systems' choices in mpmath with 50 digits, in plain loops; ties go to the lower index."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits import attend, dot, exact_list, factor
from proofs_checks.golden.fifty_digits_readkv import prefix, readkv_rotate, transform
from proofs_checks.golden.fifty_digits_scores import pooled, softmax


def best(scores: Any, kept: int) -> list[int]:
    """Indices of the largest scores, ascending."""
    order = sorted(range(len(scores)), key=lambda i: -scores[i])  # stable: equals stay in order
    return sorted(order[:kept])


def evict_tokens(scores: Any, budget_tokens: Any, first_tokens: Any = 0, recent_tokens: Any = 0) -> Any:
    """`evict_tokens`."""
    rows = []
    for row in exact_list(scores):
        T = len(row)
        ends = [t for t in range(T) if t < first_tokens or t >= T - recent_tokens]
        rows.append(best([mp.inf if t in ends else x for t, x in enumerate(row)], int(budget_tokens)))
    return {"tokens": rows}


def kvzip_keep(scores: Any, ratio: Any, level: Any = "pair") -> Any:
    """`kvzip_keep`: strictly above one threshold, or the best of every head."""
    if ratio >= 1:
        return {"keep": np.ones(scores.shape, dtype=np.int64)}
    if level == "pair":
        falling = sorted(np.ravel(scores).tolist(), reverse=True)
        return {"keep": (scores > falling[max(int(len(falling) * ratio) - 1, 0)]).astype(np.int64)}
    keep = np.zeros(scores.shape, dtype=np.int64)
    for index in np.ndindex(scores.shape[:-1]):
        keep[index][best(scores[index].tolist(), int(scores.shape[-1] * ratio))] = 1
    return {"keep": keep}


def quest_envelope(keys: Any, page_size: Any) -> Any:
    """`quest_envelope`."""
    H, T, d = keys.shape
    spans = [range(s, min(s + page_size, T)) for s in range(0, T, page_size)]
    return {
        name: [[[end(float(keys[h, t, c]) for t in span) for c in range(d)] for span in spans] for h in range(H)]
        for name, end in (("minimum", min), ("maximum", max))
    }


def quest_pages(scores: Any, budget_tokens: Any, page_size: Any, recent_pages: Any = 0) -> Any:
    """`quest_pages`: at least three pages per query head, and the union over the group."""
    P = scores.shape[-1]
    kept = min(max(3, budget_tokens // page_size), P)
    pages = [
        [best([mp.inf if p >= P - recent_pages else x for p, x in enumerate(row)], kept) for row in head]
        for head in exact_list(scores)
    ]
    read = [[int(any(p in row for row in head)) for p in range(P)] for head in pages]
    return {"pages": pages, "read": read}


def largest_channels(queries: Any, rank: int) -> list[int]:
    """The channels of largest sum over the group of |q|."""
    return best([mp.fsum(abs(q[c]) for q in queries) for c in range(len(queries[0]))], rank)


def norm_factor(query: Any, channels: Any) -> Any:
    """sqrt(|q|_1 / |q on the channels|_1); 1 where the query is 0 there."""
    held = mp.fsum(abs(query[c]) for c in channels)
    return mp.sqrt(mp.fsum(map(abs, query)) / held) if held else mpf(1)


def probe(queries: Any, keys: Any, channels: Any, scale: Any) -> Any:
    """Approximate logits [G][T] on some channels."""
    return [[scale * norm_factor(q, channels) * mp.fsum(q[c] * k[c] for c in channels) for k in keys] for q in queries]


def sparse_step(
    queries: Any, near: Any, keys: Any, values: Any, rank: int, kept: int, ranking: str, local: int, scale: Any
) -> Any:
    """One KV head: output [G][d], channels, tokens and mass [G]; probes read ``near``, attention ``keys``."""
    T, d = len(keys), len(queries[0])
    channels = largest_channels(queries, rank)
    scores = probe(queries, near, channels, scale)
    shares = [softmax(row) for row in scores]
    ranked = shares if ranking == "weights" else scores
    votes = [mp.inf if t >= T - 1 - local else mp.fsum(row[t] for row in ranked) for t in range(T)]
    tokens = best(votes, kept + 1)
    mass = [mp.fsum(row[t] for t in tokens) for row in shares]
    mean = [mp.fsum(v[c] for v in values) / T for c in range(d)]
    outputs = []
    for q, m in zip(queries, mass, strict=True):
        logits = [scale * mp.fsum(a * b for a, b in zip(q, keys[t], strict=True)) for t in tokens]
        weights = softmax(logits)
        own = [mp.fsum(w * values[t][c] for w, t in zip(weights, tokens, strict=True)) for c in range(d)]
        outputs.append([m * o + (1 - m) * r for o, r in zip(own, mean, strict=True)])
    return outputs, channels, tokens, mass


def _steps(heads: Any) -> Any:
    return {name: [head[i] for head in heads] for i, name in enumerate(("output", "channels", "tokens", "mass"))}


def sparq_attention(
    queries: Any,
    keys: Any,
    values: Any,
    rank: Any,
    kept_tokens: Any,
    ranking: Any = "scores",
    local_tokens: Any = 0,
    softmax_scale: Any = None,
) -> Any:
    """`sparq_attention`."""
    scale = factor(softmax_scale, queries.shape[-1])
    parts = zip(exact_list(queries), exact_list(keys), exact_list(values), strict=True)
    return _steps([sparse_step(q, k, k, v, rank, kept_tokens, ranking, local_tokens, scale) for q, k, v in parts])


def sparq_nested_attention(
    queries: Any,
    key_codes: Any,
    value_codes: Any,
    key_mean: Any,
    key_scale: Any,
    value_mean: Any,
    value_scale: Any,
    key_signs: Any,
    value_signs: Any,
    rank: Any,
    kept_tokens: Any,
    ranking: Any = "scores",
    softmax_scale: Any = None,
) -> Any:
    """`sparq_nested_attention`: the same in rotated coordinates, probes at depth 2, all else at depth 8."""
    scale = factor(softmax_scale, queries.shape[-1])
    rotated = readkv_rotate(queries, key_signs)["rotated"]

    def read(codes: Any, mean: Any, spread: Any, depth: int) -> Any:
        rows = zip(exact_list(mean), exact_list(spread), codes, strict=True)
        return [
            [[m + s * mpf(float(prefix(c, depth))) for m, s, c in zip(ms, ss, row, strict=True)] for row in head]
            for ms, ss, head in rows
        ]

    near, keys = (read(key_codes, key_mean, key_scale, depth) for depth in (2, 8))
    values = read(value_codes, value_mean, value_scale, 8)
    parts = zip(rotated, near, keys, values, strict=True)
    found = _steps([sparse_step(q, n, k, v, rank, kept_tokens, ranking, 0, scale) for q, n, k, v in parts])
    signs = value_signs.tolist()
    turned = [[[s * x for s, x in zip(signs, transform(o), strict=True)] for o in head] for head in found["output"]]
    return {**found, "output": turned}


def loki_attention(
    queries: Any, keys: Any, values: Any, components: Any, rank: Any, kept_tokens: Any, softmax_scale: Any = None
) -> Any:
    """`loki_attention`: tokens by logits on the leading directions, exact attention on them."""
    scale = factor(softmax_scale, queries.shape[-1])
    output, tokens = [], []
    for h, group in enumerate(queries):
        leading = components[h].T[:rank]
        along = [[dot(v, k) for v in leading] for k in keys[h]]
        chosen = []
        for q in group:
            own = [dot(v, q) for v in leading]
            logits = [scale * mp.fsum(a * b for a, b in zip(own, row, strict=True)) for row in along]
            chosen.append(best(logits, int(kept_tokens)))
        tokens.append(chosen)
        pairs = zip(group, chosen, strict=True)
        output.append([attend(q, [keys[h, t] for t in row], [values[h, t] for t in row], scale)[0] for q, row in pairs])
    return {"output": output, "tokens": tokens}


def shadowkv_landmarks(keys: Any, chunk_size: Any = 8, local_chunks: Any = 4, outlier_chunks: Any = 48) -> Any:
    """`shadowkv_landmarks`: mean keys, and the chunks of lowest cosine between a key and its mean."""
    _, T, d = keys.shape
    C = max(T // chunk_size - local_chunks, 0)
    landmarks, outliers = [], []
    for head in exact_list(keys):
        chunks = [head[c * chunk_size : (c + 1) * chunk_size] for c in range(C)]
        means = [[mp.fsum(k[i] for k in chunk) / chunk_size for i in range(d)] for chunk in chunks]
        worst = [
            min(mp.fsum(a * b for a, b in zip(k, m, strict=True)) / (_size(k) * _size(m)) for k in chunk)
            for chunk, m in zip(chunks, means, strict=True)
        ]
        landmarks.append(means)
        outliers.append(best([-w for w in worst], int(outlier_chunks)))
    return {"landmarks": landmarks, "outliers": outliers}


def _size(row: Any) -> Any:
    return mp.sqrt(mp.fsum(x * x for x in row))


def shadowkv_chunks(queries: Any, landmarks: Any, kept_chunks: Any, softmax_scale: Any = None) -> Any:
    """`shadowkv_chunks`: the largest share that any query head of the group gives a landmark."""
    scale = factor(softmax_scale, queries.shape[-1])
    rows = []
    for group, marks in zip(queries, landmarks, strict=True):
        shares = [softmax([scale * dot(q, m) for m in marks]) for q in group]
        rows.append(best([max(column) for column in zip(*shares, strict=True)], int(kept_chunks)))
    return {"chunks": rows}


def rocketkv_snap(queries: Any, keys: Any, budget_tokens: Any, kernel: Any = 63, softmax_scale: Any = None) -> Any:
    """`rocketkv_snap`: the window, and the prompt tokens of most pooled votes of its queries."""
    scale = factor(softmax_scale, queries.shape[-1])
    w, T = queries.shape[2], keys.shape[1]
    rows = []
    for group, k in zip(queries, keys, strict=True):
        votes = [mpf(0)] * (T - w)
        for window in group:
            for i, q in enumerate(window):
                weights = softmax([scale * dot(q, k[t]) for t in range(T - w + i + 1)])
                votes = [v + x for v, x in zip(votes, weights, strict=False)]
        rows.append([*best(pooled(votes, kernel), budget_tokens - w), *range(T - w, T)])
    return {"tokens": rows}


def rocketkv_tokens(
    queries: Any, keys: Any, chunk_size: Any, rank: Any, kept_tokens: Any, softmax_scale: Any = None
) -> Any:
    """`rocketkv_tokens`: a channel's extreme is the maximum where the group's sum is positive, else the minimum."""
    scale = factor(softmax_scale, queries.shape[-1])
    T, every, chosen = keys.shape[1], [], []
    for group, k in zip(exact_list(queries), exact_list(keys), strict=True):
        channels = largest_channels(group, rank)
        ends = [max if mp.fsum(q[c] for q in group) > 0 else min for c in channels]
        chunks = [k[s : s + chunk_size] for s in range(0, T, chunk_size)]
        extremes = [[end(row[c] for row in chunk) for c, end in zip(channels, ends, strict=True)] for chunk in chunks]
        shares = []
        for q in group:
            size = scale * norm_factor(q, channels)
            own = [size * mp.fsum(q[c] * x for c, x in zip(channels, row, strict=True)) for row in extremes]
            shares.append(softmax([own[t // chunk_size] for t in range(T)]))
        every.append(channels)
        chosen.append(best([mp.fsum(column) for column in zip(*shares, strict=True)], int(kept_tokens)))
    return {"channels": every, "tokens": chosen}


def shadowkv_low_rank(keys: Any, rank: Any) -> Any:
    """`shadowkv_low_rank`: the least |X - L R| of rank r, from the eigenvalues of X X^T; the factors are free."""
    H, T, d = keys.shape
    rows = np.moveaxis(keys, 0, 1).reshape(T, H * d)
    gram = mp.matrix([[dot(a, b) for b in rows] for a in rows])
    energies = sorted(mp.eigsy(gram, eigvals_only=True))[: T - int(rank)]
    return {"least": mp.sqrt(mp.fsum(max(e, 0) for e in energies))}
