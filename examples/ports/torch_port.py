"""A plain torch port of every stage: float32, bfloat16 and float16 inputs, float32 arithmetic.

ReadKV's half lies in a second file.
"""

import math
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from torch_port_readkv import (  # noqa: F401
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

FRAMEWORK = "torch"
DTYPES = ("float32", "bfloat16", "float16")
ACCUMULATE = "float32"
LAWS = ("normal",)
F = torch.float32


def _scale(softmax_scale, d):
    return softmax_scale if softmax_scale is not None else 1 / math.sqrt(d)


def _state(logits, values):
    """logits [G, T], values [T, d] -> output [G, d], lse [G]."""
    if logits.shape[-1] == 0:
        return values.new_zeros(logits.shape[0], values.shape[-1]), logits.new_full((logits.shape[0],), -math.inf)
    return torch.softmax(logits, dim=-1) @ values, torch.logsumexp(logits, dim=-1)


def _one(queries, keys, values, scale):
    return _state((queries.to(F) @ keys.to(F).T) * scale, values.to(F))


def _stack(states, dtype):
    return {"output": torch.stack([s[0] for s in states]).to(dtype), "lse": torch.stack([s[1] for s in states])}


def attention(*, queries, keys, values, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    states = [_one(q, k, v, scale) for q, k, v in zip(queries, keys, values, strict=True)]
    return _stack(states, queries.dtype)


def merge_attention(*, outputs, lses):
    lse = torch.logsumexp(lses, dim=0)
    weights = torch.exp(lses - torch.where(torch.isinf(lse), torch.zeros_like(lse), lse))
    weighted = torch.where(weights[..., None] > 0, weights[..., None] * outputs, torch.zeros_like(outputs))
    return {"output": weighted.sum(dim=0), "lse": lse}


def _tokens(pages, page_size, tokens):
    index = (pages[:, None] * page_size + torch.arange(page_size)).reshape(-1)
    return index[index < tokens]


def sparse_attention(*, queries, keys, values, pages, page_size, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    states = []
    for h, row in enumerate(pages):
        index = _tokens(row, page_size, keys.shape[1])
        states.append(_one(queries[h], keys[h][index], values[h][index], scale))
    return _stack(states, queries.dtype)


def _sequence(pool, row, tokens):
    blocks = row[: -(-int(tokens) // pool.shape[1])]
    return pool[blocks].reshape(-1, *pool.shape[2:])[: int(tokens)].movedim(0, 1)


def paged_attention(*, queries, key_pool, value_pool, block_table, tokens, softmax_scale=None):
    states = []
    for n, length in enumerate(tokens):
        keys, values = (_sequence(pool, block_table[n], length) for pool in (key_pool, value_pool))
        states.append(attention(queries=queries[n], keys=keys, values=values, softmax_scale=softmax_scale))
    return {name: torch.stack([s[name] for s in states]) for name in ("output", "lse")}


def paged_sparse_attention(*, queries, key_pool, value_pool, block_table, tokens, pages, softmax_scale=None):
    scale, block_size = _scale(softmax_scale, queries.shape[-1]), key_pool.shape[1]
    rows = []
    for n in range(queries.shape[0]):
        states = []
        for h in range(queries.shape[1]):
            row = pages[n, h]
            index = _tokens(row[row >= 0], block_size, int(tokens[n]))
            block, slot = block_table[n][index // block_size], index % block_size
            states.append(_one(queries[n, h], key_pool[block, slot, h], value_pool[block, slot, h], scale))
        rows.append(_stack(states, queries.dtype))
    return {name: torch.stack([r[name] for r in rows]) for name in ("output", "lse")}


def locks_build_summary(*, key_pages, rank):
    pages = key_pages.to(F)
    centroid = pages.mean(dim=2)
    deviations = pages - centroid[:, :, None]
    values, vectors = torch.linalg.eigh(deviations @ deviations.transpose(-1, -2))
    sigma, left = values.flip(-1)[..., :rank].clamp(min=0).sqrt(), vectors.flip(-1)[..., :rank]
    level = math.sqrt(max(pages.shape[-2:]) * torch.finfo(F).eps) * pages.square().sum(dim=(-2, -1)).sqrt()[..., None]
    sigma = torch.where(sigma > level, sigma, torch.zeros_like(sigma))
    inverse = torch.where(sigma > 0, 1 / sigma, torch.zeros_like(sigma))
    basis = deviations.transpose(-1, -2) @ (left * inverse[..., None, :])
    return {"centroid": centroid, "basis": basis, "coefficients": left * sigma[..., None, :]}


def _quantize(x, axis, level):
    scale = x.abs().amax(dim=axis, keepdim=True) / level
    codes = torch.round(x / torch.where(scale > 0, scale, torch.ones_like(scale)))
    return codes.to(torch.int8), scale.squeeze(axis)


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
    columns = (basis_codes.transpose(-1, -2) & 15).to(torch.uint8)
    return columns[..., 0::2] | columns[..., 1::2] << 4


def locks_unpack_basis(*, basis_bytes):
    nibbles = torch.stack([basis_bytes & 15, basis_bytes >> 4], dim=-1).flatten(-2).to(torch.int8)
    return ((nibbles ^ 8) - 8).transpose(-1, -2)


def locks_score_pages(*, queries, centroid, basis, coefficients, softmax_scale=None):
    keys = centroid[:, :, None] + coefficients @ basis.transpose(-1, -2)  # the reconstructed page
    return exact_page_scores(queries=queries, key_pages=keys, softmax_scale=softmax_scale)


def exact_page_scores(*, queries, key_pages, softmax_scale=None):
    scale = _scale(softmax_scale, queries.shape[-1])
    logits = torch.einsum("hgd,hpbd->hgpb", queries.to(F), key_pages.to(F)) * scale
    return torch.logsumexp(logits, dim=-1)


def _shares(scores):
    return torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)  # a head of only -inf


def locks_page_shares(*, scores, combine="share_average"):
    if combine == "group_mass":
        return _shares(torch.logsumexp(scores, dim=1))
    return _shares(scores).mean(dim=1) if combine == "share_average" else _shares(scores).amax(dim=1)


def locks_select_pages(*, shares, budget_tokens, page_size):
    pages = shares.shape[1]
    ranked = shares.clone()
    ranked[:, [0, pages - 1]] = math.inf
    return ranked.topk(
        min(-(-budget_tokens // page_size), pages), dim=1
    ).indices  # in order of rank: any order is right


def locks_decode(*, queries, keys, values, rank, basis_bits, budget_tokens, page_size, softmax_scale=None):
    heads, tokens, d = keys.shape
    if tokens == 0:
        return {"output": torch.zeros_like(queries), "pages": torch.zeros(heads, 0, dtype=torch.int64)}
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
        scores = torch.cat([scores, open_score], dim=-1)
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
    pages = torch.full((*queries.shape[:2], min(-(-budget_tokens // page_size), most)), -1)
    output = torch.zeros_like(queries)
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
