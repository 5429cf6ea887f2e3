"""A plain float32 NumPy port of every stage of Locks and ReadKV; it imports nothing of kvproof.

ReadKV's half lies in numpy_port_readkv.py beside it: copy both.
"""

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent))

from numpy_port_readkv import (  # noqa: F401
    affine_dequantize,
    affine_quantize,
    lloyd_max_codebook,
    readkv_attention,
    readkv_choose_depths,
    readkv_decode,
    readkv_encode,
    readkv_key_importance,
    readkv_pack_key_planes,
    readkv_pack_value_planes,
    readkv_restricted_attention,
    readkv_rotate,
    readkv_tree,
    readkv_unpack_key_planes,
    readkv_unpack_value_planes,
    readkv_value_importance,
)

DTYPES = ("float32",)
LAWS = ("normal", "sphere")
F = np.float32


def _scale(softmax_scale, d):
    return F(softmax_scale if softmax_scale is not None else 1 / math.sqrt(d))


def _softmax_state(logits, values):
    """logits [G, T], values [T, d] -> output [G, d], lse [G]."""
    if logits.shape[-1] == 0:
        return np.zeros((logits.shape[0], values.shape[-1]), F), np.full(logits.shape[0], -np.inf, F)
    top = logits.max(axis=-1, keepdims=True)
    weights = np.exp(logits - top)
    total = weights.sum(axis=-1, keepdims=True)
    return (weights @ values) / total, (np.log(total) + top)[:, 0]


def _one(queries, keys, values, scale):
    return _softmax_state((queries @ keys.T) * scale, values)


def attention(*, queries, keys, values, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    states = [_one(q, k, v, scale) for q, k, v in zip(queries, keys, values, strict=True)]
    return {"output": np.stack([s[0] for s in states]), "lse": np.stack([s[1] for s in states])}


def merge_attention(*, outputs, lses):
    top = lses.max(axis=0)
    safe = np.where(np.isneginf(top), F(0), top)
    weights = np.exp(lses - safe)
    total = weights.sum(axis=0)
    weighted = np.where(weights[..., None] > 0, weights[..., None] * outputs, F(0)).sum(axis=0)
    output = np.divide(weighted, total[..., None], out=np.zeros_like(weighted), where=total[..., None] > 0)
    with np.errstate(divide="ignore"):
        return {"output": output, "lse": np.log(total) + safe}


def _tokens(pages, page_size, tokens):
    index = (np.asarray(pages)[:, None] * page_size + np.arange(page_size)).ravel()
    return index[index < tokens]


def sparse_attention(*, queries, keys, values, pages, page_size, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    output, lse = np.zeros_like(queries), np.zeros(queries.shape[:2], F)
    for h, row in enumerate(pages):
        index = _tokens(row, page_size, keys.shape[1])
        output[h], lse[h] = _one(queries[h], keys[h][index], values[h][index], scale)
    return {"output": output, "lse": lse}


def _sequence(pool, row, tokens):
    blocks = row[: -(-int(tokens) // pool.shape[1])]
    return np.moveaxis(pool[blocks].reshape(-1, *pool.shape[2:])[: int(tokens)], 0, 1)


def paged_attention(*, queries, key_pool, value_pool, block_table, tokens, softmax_scale=None):
    output, lse = np.zeros_like(queries), np.zeros(queries.shape[:3], F)
    for n, length in enumerate(tokens):
        keys, values = (_sequence(pool, block_table[n], length) for pool in (key_pool, value_pool))
        state = attention(queries=queries[n], keys=keys, values=values, softmax_scale=softmax_scale)
        output[n], lse[n] = state["output"], state["lse"]
    return {"output": output, "lse": lse}


def paged_sparse_attention(*, queries, key_pool, value_pool, block_table, tokens, pages, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    output, lse = np.zeros_like(queries), np.zeros(queries.shape[:3], F)
    for n, h in np.ndindex(queries.shape[:2]):
        row = pages[n, h]
        index = _tokens(row[row >= 0], key_pool.shape[1], int(tokens[n]))
        block, slot = block_table[n][index // key_pool.shape[1]], index % key_pool.shape[1]
        output[n, h], lse[n, h] = _one(queries[n, h], key_pool[block, slot, h], value_pool[block, slot, h], scale)
    return {"output": output, "lse": lse}


def locks_build_summary(*, key_pages, rank):
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    values, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    values, vectors = values[..., ::-1][..., :rank], vectors[..., ::-1][..., :rank]
    sigma = np.sqrt(np.maximum(values, F(0)))
    size = max(key_pages.shape[-2:])
    norm = np.sqrt((key_pages**2).sum(axis=(-2, -1)))[..., None]
    sigma = np.where(sigma > np.sqrt(F(size) * np.finfo(F).eps) * norm, sigma, F(0))
    inverse = np.divide(F(1), sigma, out=np.zeros_like(sigma), where=sigma > 0)
    basis = np.swapaxes(deviations, -1, -2) @ (vectors * inverse[..., None, :])
    return {"centroid": centroid, "basis": basis, "coefficients": vectors * sigma[..., None, :]}


def _quantize(x, axis, level):
    scale = np.abs(x).max(axis=axis, keepdims=True) / F(level)
    codes = np.rint(np.divide(x, scale, out=np.zeros_like(x), where=scale > 0))
    return codes.astype(np.int8), np.squeeze(scale, axis=axis)


def locks_quantize_summary(*, centroid, basis, coefficients, basis_bits):
    parts = {
        "centroid": _quantize(centroid, -1, 127),
        "basis": _quantize(basis, -2, {2: 1, 4: 7, 8: 127}[basis_bits]),
        "coefficient": _quantize(coefficients, -1, 127),
    }
    return {f"{name}_{what}": pair[i] for name, pair in parts.items() for i, what in enumerate(("codes", "scale"))}


def locks_dequantize_summary(
    *, centroid_codes, centroid_scale, basis_codes, basis_scale, coefficient_codes, coefficient_scale
):
    return {
        "centroid": centroid_codes * centroid_scale[..., None],
        "basis": basis_codes * basis_scale[..., None, :],
        "coefficients": coefficient_codes * coefficient_scale[..., None],
    }


def locks_pack_basis(*, basis_codes):
    columns = np.swapaxes(basis_codes, -1, -2).view(np.uint8) & 15
    return columns[..., 0::2] | columns[..., 1::2] << 4


def locks_unpack_basis(*, basis_bytes):
    *lines, half = basis_bytes.shape
    nibbles = np.stack([basis_bytes & 15, basis_bytes >> 4], axis=-1).reshape(*lines, 2 * half)
    return np.swapaxes(np.where(nibbles > 7, nibbles.astype(np.int8) - 16, nibbles), -1, -2).astype(np.int8)


def _log_sum_exp(logits):
    top = logits.max(axis=-1, keepdims=True)
    top = np.where(np.isneginf(top), F(0), top)
    with np.errstate(divide="ignore"):
        return (np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)) + top)[..., 0]


def locks_score_pages(*, queries, centroid, basis, coefficients, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    if centroid.shape[1] == 0:
        return np.zeros((*queries.shape[:2], 0), F)
    centre = np.einsum("hgd,hpd->hgp", queries, centroid)
    projected = np.einsum("hgd,hpdr->hgpr", queries, basis)
    spread = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
    return _log_sum_exp((centre[..., None] + spread) * scale)


def exact_page_scores(*, queries, key_pages, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    return _log_sum_exp(np.einsum("hgd,hpbd->hgpb", queries, key_pages) * scale)


def _shares(scores):
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), F(0), top))
    total = weights.sum(axis=-1, keepdims=True)
    return np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)


def locks_page_shares(*, scores, combine="share_average"):
    if combine == "group_mass":
        return _shares(_log_sum_exp(np.moveaxis(scores, 1, -1)))
    shares = _shares(scores)
    return shares.mean(axis=1) if combine == "share_average" else shares.max(axis=1)


def locks_select_pages(*, shares, budget_tokens, page_size):
    pages = shares.shape[1]
    kept = min(-(-budget_tokens // page_size), pages)
    ranked = shares.copy()
    ranked[:, [0, pages - 1]] = np.inf
    order = np.argsort(-ranked, axis=1, kind="stable")[:, :kept]
    return np.sort(order, axis=1)


def locks_decode(*, queries, keys, values, rank, basis_bits, budget_tokens, page_size, softmax_scale=None):
    heads, tokens, d = keys.shape
    if tokens == 0:
        return {"output": np.zeros_like(queries), "pages": np.zeros((heads, 0), np.int64)}
    complete = tokens // page_size
    key_pages = keys[:, : complete * page_size].reshape(heads, complete, page_size, d)
    summary = locks_build_summary(key_pages=key_pages, rank=rank)
    if basis_bits is not None:
        codes = locks_quantize_summary(**summary, basis_bits=8 if basis_bits == "fp" else basis_bits)
        deployed = locks_dequantize_summary(**codes)
        summary = {**deployed, "basis": summary["basis"]} if basis_bits == "fp" else deployed
    scores = locks_score_pages(queries=queries, **summary, softmax_scale=softmax_scale)
    if complete * page_size < tokens:
        tail = keys[:, None, complete * page_size :]
        open_score = exact_page_scores(queries=queries, key_pages=tail, softmax_scale=softmax_scale)
        scores = np.concatenate([scores, open_score], axis=-1)
    shares = locks_page_shares(scores=scores)
    pages = locks_select_pages(shares=shares, budget_tokens=budget_tokens, page_size=page_size)
    state = sparse_attention(
        queries=queries, keys=keys, values=values, pages=pages, page_size=page_size, softmax_scale=softmax_scale
    )
    return {"output": state["output"], "pages": pages}


def locks_decode_paged(
    *, queries, key_pool, value_pool, block_table, tokens, rank, basis_bits, budget_tokens, softmax_scale=None
):
    page_size = key_pool.shape[1]
    most = max((-(-int(t) // page_size) for t in tokens), default=0)
    pages = np.full((*queries.shape[:2], min(-(-budget_tokens // page_size), most)), -1)
    output = np.zeros_like(queries)
    for n, length in enumerate(tokens):
        keys, values = (_sequence(pool, block_table[n], length) for pool in (key_pool, value_pool))
        step = locks_decode(
            queries=queries[n],
            keys=keys,
            values=values,
            rank=rank,
            basis_bits=basis_bits,
            budget_tokens=budget_tokens,
            page_size=page_size,
            softmax_scale=softmax_scale,
        )
        output[n] = step["output"]
        pages[n, :, : step["pages"].shape[1]] = step["pages"]
    return {"output": output, "pages": pages}
