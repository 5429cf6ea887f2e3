"""Right ways of computing the stages of locks-kv-0.1.4 in float32, from its description, as kernels do."""

import numpy as np

from proofs_checks.numbers import round_bfloat16

F = np.float32
LEVELS = {2: 1, 4: 7, 8: 127}


def by_gram(*, key_pages, rank):
    """Eigenvectors of D D^T in float32, ascending; eigenvalues raised to 1e-10."""
    key_pages = key_pages.astype(F)
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    energies, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    sigma = np.sqrt(np.maximum(energies, F(1e-10)))[..., None, -rank:]
    vectors = vectors[..., -rank:]
    basis = np.swapaxes(deviations, -1, -2) @ vectors / sigma
    return {"centroid": centroid, "basis": basis, "coefficients": vectors * sigma}


def by_svd(*, key_pages, rank):
    """Singular vectors, every second column with the other sign; modes below the floor kept as they come."""
    key_pages = key_pages.astype(F)
    centroid = key_pages.mean(axis=2)
    left, sigma, right = np.linalg.svd(key_pages - centroid[:, :, None], full_matrices=False)
    sign = np.where(np.arange(rank) % 2, F(-1), F(1))
    basis = np.swapaxes(right[..., :rank, :], -1, -2) * sign
    rows = left[..., :rank] * sigma[..., None, :rank] * sign
    return {"centroid": centroid, "basis": basis[..., ::-1], "coefficients": rows[..., ::-1]}


def divided(x, scale):
    return x / scale


def by_reciprocal(x, scale):
    return x * (F(1) / scale)


def coded(x, axis, level, divide=divided):
    """int8 codes by the float32 scale, and that scale in bf16."""
    scale = np.maximum(np.abs(x).max(axis=axis, keepdims=True) / F(level), F(1e-8))
    codes = np.clip(np.rint(divide(x, scale)), -level, level).astype(np.int8)
    return codes, round_bfloat16(np.squeeze(scale, axis))


def quantizer(divide=divided):
    def stage(*, centroid, basis, coefficients, basis_bits):
        parts = (("centroid", centroid, -1, 127), ("basis", basis, -2, LEVELS[basis_bits]))
        result = {}
        for name, x, axis, level in (*parts, ("coefficient", coefficients, -1, 127)):
            result[f"{name}_codes"], result[f"{name}_scale"] = coded(x, axis, level, divide)
        return result

    return stage


def values_of(codes):
    """A summary in float32 from codes and scales."""
    axes = {"centroid": ("centroid", -1), "basis": ("basis", -2), "coefficients": ("coefficient", -1)}
    return {
        name: codes[f"{short}_codes"].astype(F) * np.expand_dims(codes[f"{short}_scale"], axis)
        for name, (short, axis) in axes.items()
    }


def rounded_queries(queries, divide=divided):
    queries = queries.astype(F)
    scale = np.maximum(np.abs(queries).max(axis=-1, keepdims=True), F(1e-8)) / F(127)
    return np.rint(divide(queries, scale)), scale


def log_sum_exp(x):
    top = x.max(axis=-1, keepdims=True)
    return (np.log(np.exp(x - top).sum(axis=-1, keepdims=True)) + top)[..., 0]


def scorer(divide=divided):
    """Integer codes of the query meet the summary; the query's scale and the softmax scale come last."""

    def stage(*, queries, centroid, basis, coefficients, softmax_scale=None):
        if centroid.shape[1] == 0:
            return np.zeros((*queries.shape[:2], 0), F)
        codes, scale = rounded_queries(queries, divide)
        projected = np.einsum("hgd,hpdr->hgpr", codes, basis)
        logits = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
        logits = (logits + np.einsum("hgd,hpd->hgp", codes, centroid)[..., None]) * scale[..., None]
        return log_sum_exp(logits * F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5))

    return stage


def rebuilt(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Keys rebuilt, then multiplied by the dequantised query, scaled before."""
    if centroid.shape[1] == 0:
        return np.zeros((*queries.shape[:2], 0), F)
    codes, scale = rounded_queries(queries, by_reciprocal)
    keys = centroid[:, :, None] + coefficients @ np.swapaxes(basis, -1, -2)
    factor = F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5)
    return log_sum_exp(np.einsum("hgd,hpbd->hgpb", codes * scale * factor, keys))


def page_values(*, scores):
    scored = scores[..., :-1]
    values = np.zeros((scores.shape[0], scores.shape[-1]), F)
    if scored.shape[-1]:
        peak = scored.max(axis=-1, keepdims=True)
        values[:, :-1] = np.exp(scored - np.where(np.isneginf(peak), F(0), peak)).sum(axis=1)
    return values


def select_pages(*, shares, budget_tokens, page_size):
    P = shares.shape[1]
    between = -(-budget_tokens // page_size)
    if between >= P - 2:
        return np.broadcast_to(np.arange(P), (len(shares), P)).copy()
    best = np.argsort(-shares[:, 1:-1], axis=-1, kind="stable")[:, :between] + 1
    ends = np.zeros((len(shares), 1), np.int64)
    return np.sort(np.concatenate([ends, best, ends + P - 1], axis=1), axis=1)


def attended(queries, keys, values, pages, page_size, scale, half):
    """Softmax over the tokens of the pages; with ``half`` weights and values are cast to float16 for their product."""
    output = np.zeros(queries.shape, F)
    for h, row in enumerate(pages):
        chosen = np.concatenate([np.arange(p * page_size, (p + 1) * page_size) for p in row])
        chosen = chosen[chosen < keys.shape[1]]
        logits = queries[h] @ keys[h][chosen].T * scale
        weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
        v = values[h][chosen]
        cast = weights.astype(np.float16).astype(F) if half else weights
        v = v.astype(np.float16).astype(F) if half else v
        output[h] = cast @ v / weights.sum(axis=-1, keepdims=True)
    return output


def decoder(build=by_gram, quantize=None, score=None, combine=page_values, select=select_pages, half=False):
    """A decode step of these stages; the summary of a complete most recent page is never made."""
    quantize, score = quantize or quantizer(), score or scorer()

    def stage(*, queries, keys, values, rank, basis_bits, budget_tokens, page_size, softmax_scale=None):
        queries, keys, values = (x.astype(F) for x in (queries, keys, values))
        H, T, d = keys.shape
        if T == 0:
            return {"output": np.zeros(queries.shape, F), "pages": np.zeros((H, 0), np.int64)}
        P, scale = -(-T // page_size), F(softmax_scale if softmax_scale is not None else d**-0.5)
        pages = keys[:, : (P - 1) * page_size].reshape(H, P - 1, page_size, d)
        scores = np.zeros((*queries.shape[:2], 0), F)
        if P > 1:
            summary = values_of(quantize(**build(key_pages=pages, rank=rank), basis_bits=basis_bits))
            scores = score(queries=queries, **summary, softmax_scale=softmax_scale)
        recent = log_sum_exp(np.einsum("hgd,hbd->hgb", queries, keys[:, (P - 1) * page_size :]) * scale)[..., None]
        shares = combine(scores=np.concatenate([scores, recent], axis=-1))
        chosen = select(shares=shares, budget_tokens=budget_tokens, page_size=page_size)
        return {"output": attended(queries, keys, values, chosen, page_size, scale, half), "pages": chosen}

    return stage


def paged(decode):
    """`locks_decode_paged` of a decode step."""

    def stage(*, queries, key_pool, value_pool, block_table, tokens, **settings):
        B = key_pool.shape[1]
        steps = []
        for n, length in enumerate(int(t) for t in tokens):
            blocks = block_table[n, : -(-length // B)]
            keys, values = (
                np.moveaxis(pool[blocks].reshape(-1, *pool.shape[2:])[:length], 0, 1) for pool in (key_pool, value_pool)
            )
            steps.append(decode(queries=queries[n], keys=keys, values=values, page_size=B, **settings))
        widest = max(s["pages"].shape[1] for s in steps)
        pages = np.full((len(steps), queries.shape[1], widest), -1)
        for n, s in enumerate(steps):
            pages[n, :, : s["pages"].shape[1]] = s["pages"]
        return {"output": np.stack([s["output"] for s in steps]), "pages": pages}

    return stage
