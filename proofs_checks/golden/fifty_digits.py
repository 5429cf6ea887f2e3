"""Attention and Locks in mpmath with 50 digits, in plain loops over the definitions of the papers.

Nothing here subtracts a maximum, orders a sum or vectorises: exponents of mpmath are unbounded and 50 digits outlast
every cancellation of the tests. Arguments are the stages' float64 and integer arrays, read without rounding; results
are nested lists of mpf (integers for codes, bytes and pages).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.fifty_digits_codes import LEVEL, quantize_line


@lru_cache(maxsize=8192)
def _row(content: bytes) -> list[Any]:
    return [mpf(x) for x in np.frombuffer(content).tolist()]


def dot(a: Any, b: Any) -> Any:
    """The inner product of two rows."""
    rows = (_row(np.asarray(row, dtype=np.float64).tobytes()) for row in (a, b))  # one row meets many others
    return mp.fdot(zip(*rows, strict=True))


def factor(softmax_scale: Any, d: Any) -> Any:
    """The factor on the logits."""
    return 1 / mp.sqrt(d) if softmax_scale is None else mpf(softmax_scale)


def log_mass(exponents: Any) -> Any:
    """Natural log of the sum of exponentials; -inf where there is nothing to sum."""
    mass = mp.fsum(mp.exp(z) for z in exponents if z != mp.ninf)
    return mp.log(mass) if mass else mp.ninf


def attend(query: Any, keys: Any, values: Any, scale: Any) -> Any:
    """Output [d] and log-mass of one query over tokens given as lists of rows."""
    logits = [scale * dot(query, key) for key in keys]
    mass = mp.fsum(mp.exp(z) for z in logits)
    if not logits:
        return [mpf(0)] * len(query), mp.ninf
    weighted = [[mp.exp(z) * mpf(float(x)) for x in value] for z, value in zip(logits, values, strict=True)]
    return [mp.fsum(column) / mass for column in zip(*weighted, strict=True)], log_mass(logits)


def group(queries: Any, keys: Any, values: Any, scale: Any) -> Any:
    """All queries [G, d] of one KV head."""
    states = [attend(query, keys, values, scale) for query in queries]
    return [s[0] for s in states], [s[1] for s in states]


def stack(heads: Any) -> Any:
    """States of all heads as a result."""
    return {"output": [h[0] for h in heads], "lse": [h[1] for h in heads]}


def attention(queries: Any, keys: Any, values: Any, softmax_scale: Any = None) -> Any:
    """`attention`."""
    scale = factor(softmax_scale, queries.shape[-1])
    return stack([group(q, k, v, scale) for q, k, v in zip(queries, keys, values, strict=True)])


def merge_attention(outputs: Any, lses: Any) -> Any:
    """`merge_attention`."""
    S, H, G, d = outputs.shape
    heads = []
    for h in range(H):
        rows, masses = [], []
        for g in range(G):
            live = [s for s in range(S) if lses[s, h, g] != -np.inf]
            weight = {s: mp.exp(mpf(float(lses[s, h, g]))) for s in live}
            total = mp.fsum(weight.values())
            rows.append(
                [mp.fsum(weight[s] * float(outputs[s, h, g, c]) for s in live) / (total or 1) for c in range(d)]
            )
            masses.append(mp.log(total) if live else mp.ninf)
        heads.append((rows, masses))
    return stack(heads)


def paged_attention(**inputs: Any) -> Any:
    """`paged_attention`."""
    return paged_sparse_attention(**inputs)


def sparse_attention(
    queries: Any, keys: Any, values: Any, pages: Any, page_size: Any, softmax_scale: Any = None
) -> Any:
    """`sparse_attention`: tokens in the order of the cache, whatever the order of pages."""
    scale = factor(softmax_scale, queries.shape[-1])
    heads = []
    for h in range(len(queries)):
        read = [t for t in range(keys.shape[1]) if t // page_size in pages[h].tolist()]
        heads.append(group(queries[h], [keys[h, t] for t in read], [values[h, t] for t in read], scale))
    return stack(heads)


def cached(pool: Any, row: Any, tokens: Any, head: Any) -> Any:
    """The rows of one sequence and head, token by token through the block table."""
    B = pool.shape[1]
    return [pool[row[t // B], t % B, head] for t in range(tokens)]


def paged_sparse_attention(
    queries: Any,
    key_pool: Any,
    value_pool: Any,
    block_table: Any,
    tokens: Any,
    pages: Any = None,
    softmax_scale: Any = None,
) -> Any:
    """`paged_sparse_attention`, and `paged_attention` where ``pages`` is None."""
    scale = factor(softmax_scale, queries.shape[-1])
    B = key_pool.shape[1]
    results = []
    for n, length in enumerate(tokens.tolist()):
        heads = []
        for h in range(queries.shape[1]):
            read = [t for t in range(length) if pages is None or t // B in pages[n, h].tolist()]
            rows = [cached(pool, block_table[n], length, h) for pool in (key_pool, value_pool)]
            keys, values = ([row[t] for t in read] for row in rows)
            heads.append(group(queries[n, h], keys, values, scale))
        results.append(stack(heads))
    return {name: [r[name] for r in results] for name in ("output", "lse")}


def page_modes(page: Any) -> Any:
    """Centroid [d], deviations [B][d], singular values (falling) and right vectors [m][d] of one page [B, d].

    The vectors come from the eigenvectors of D D^T as D^T u / sigma; modes below 1e-40 are left out.
    """
    B, d = page.shape
    centroid = [mp.fsum(float(x) for x in column) / B for column in page.T]
    deviations = [[mpf(float(x)) - m for x, m in zip(row, centroid, strict=True)] for row in page]
    gram = mp.matrix([[mp.fsum(a * b for a, b in zip(x, y, strict=True)) for y in deviations] for x in deviations])
    energies, vectors = mp.eigsy(gram)
    modes = []
    for k in sorted(range(B), key=lambda k: -energies[k]):
        if energies[k] > mpf(10) ** -40:
            sigma = mp.sqrt(energies[k])
            modes.append(
                (sigma, [mp.fsum(vectors[b, k] * deviations[b][c] for b in range(B)) / sigma for c in range(d)])
            )
    return centroid, deviations, [m[0] for m in modes], [m[1] for m in modes]


def summary_of(page: Any, rank: Any) -> Any:
    """Centroid, columns [r][d] and coefficients [B][r] of one page; missing modes are 0."""
    centroid, deviations, _, right = page_modes(page)
    columns = [*right[:rank], *[[mpf(0)] * page.shape[1]] * (rank - len(right))]
    coefficients = [[mp.fsum(x * y for x, y in zip(row, v, strict=True)) for v in columns] for row in deviations]
    return centroid, columns, coefficients


def deployed(page: Any, rank: Any, bits: Any) -> Any:
    """`summary_of` after quantisation by ``bits`` (2, 4, 8, "fp" or None) and back."""
    centroid, columns, rows = summary_of(page, rank)
    if bits is None:
        return centroid, columns, rows

    def back(line: Any, level: Any) -> Any:
        codes, scale = quantize_line(line, level)
        return [code * scale for code in codes]

    centroid, rows = back(centroid, 127), [back(row, 127) for row in rows]
    return centroid, columns if bits == "fp" else [back(v, LEVEL[bits]) for v in columns], rows


def summary_logits(query: Any, centroid: Any, columns: Any, rows: Any, scale: Any) -> Any:
    """Logits of a page from its summary: the key is rebuilt, then multiplied by the query."""
    logits = []
    for row in rows:
        key = [m + mp.fsum(c * v[i] for c, v in zip(row, columns, strict=True)) for i, m in enumerate(centroid)]
        logits.append(scale * mp.fsum(mpf(float(q)) * k for q, k in zip(query, key, strict=True)))
    return logits


def exact_list(array: Any) -> Any:
    """An array as nested lists of mpf."""
    return [exact_list(a) for a in array] if np.ndim(array) else mpf(float(array))


def locks_score_pages(queries: Any, centroid: Any, basis: Any, coefficients: Any, softmax_scale: Any = None) -> Any:
    """`locks_score_pages`."""
    scale = factor(softmax_scale, queries.shape[-1])
    H, P = centroid.shape[:2]
    pages = [
        [(exact_list(centroid[h, p]), exact_list(basis[h, p].T), exact_list(coefficients[h, p])) for p in range(P)]
        for h in range(H)
    ]
    return {
        "scores": [
            [[log_mass(summary_logits(q, *page, scale)) for page in pages[h]] for q in queries[h]] for h in range(H)
        ]
    }


def exact_page_scores(queries: Any, key_pages: Any, softmax_scale: Any = None) -> Any:
    """`exact_page_scores`."""
    scale = factor(softmax_scale, queries.shape[-1])
    heads = zip(queries, key_pages, strict=True)
    return {"scores": [[[log_mass([scale * dot(q, k) for k in p]) for p in pages] for q in qs] for qs, pages in heads]}


def shares_of(scores: Any) -> Any:
    """Softmax over pages of a list of mpf; nothing but -inf gives zeros."""
    total = mp.fsum(mp.exp(s) for s in scores)
    return [mp.exp(s) / total if total else mpf(0) for s in scores]


def page_shares(scores: Any, combine: Any = "share_average") -> Any:
    """Shares [P] of one KV head from its scores [G][P] in mpf."""
    if combine == "group_mass":
        return shares_of([log_mass(column) for column in zip(*scores, strict=True)])
    columns = list(zip(*(shares_of(row) for row in scores), strict=True))
    return [max(c) if combine == "group_max" else mp.fsum(c) / len(c) for c in columns]


def locks_page_shares(scores: Any, combine: Any = "share_average") -> Any:
    """`locks_page_shares`."""
    return {"shares": [page_shares(exact_list(head), combine) for head in scores]}


def top_pages(shares: Any, kept: Any) -> Any:
    """Page 0, the last page and the largest shares between them, the lower page among equals; ascending."""
    P = len(shares)
    if kept >= P:
        return list(range(P))
    between = sorted(range(1, P - 1), key=lambda p: -shares[p])  # stable: equals stay in order
    return sorted([0, P - 1, *between[: kept - 2]])


def locks_select_pages(shares: Any, budget_tokens: Any, page_size: Any) -> Any:
    """`locks_select_pages`, ties to the lower page."""
    kept = min(-(-budget_tokens // page_size), shares.shape[1])
    return {"pages": [top_pages(exact_list(row), kept) for row in shares]}


def decode_shares(
    queries: Any, keys: Any, rank: Any, basis_bits: Any, page_size: Any, softmax_scale: Any = None
) -> Any:
    """Shares [P] of one KV head: queries [G, d], keys [T, d]."""
    scale = factor(softmax_scale, queries.shape[-1])
    scores: Any = [[] for _ in queries]
    for start in range(0, len(keys), page_size):
        page = keys[start : start + page_size]
        summary: Any = deployed(page, rank, basis_bits) if len(page) == page_size else None
        for g, q in enumerate(queries):
            logits = (
                summary_logits(q, summary[0], summary[1], summary[2], scale)
                if summary
                else [scale * dot(q, k) for k in page]
            )
            scores[g].append(log_mass(logits))
    return page_shares(scores)


def ratio(computed: Any, exact: Any, bound: Any) -> Any:
    """Largest |computed - exact| / bound, 0 / 0 = 0; both of one shape; NaN counts as infinite."""
    worst = mpf(0)
    exact = np.array(exact, dtype=object).reshape(computed.shape)
    for index in np.ndindex(computed.shape):
        got, want = float(computed[index]), exact[index]
        if got != got:
            return mp.inf
        error = mpf(0) if got == want else abs(mpf(got) - want)
        if error:
            worst = max(worst, error / float(bound[index]) if bound[index] else mp.inf)
    return worst
