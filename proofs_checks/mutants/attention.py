"""Wrong attention: head maps, log-sum-exp bases, empty sets, tails, block tables."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import attend, attention, log_sum_exp, merge_attention, sparse_attention, tokens_of_pages
from refimpl.paging import gather_sequence, page_count, paged_attention, paged_sparse_attention

A = "attention"


def _tf32(x: Any) -> Any:
    """Keep 10 fraction bits, as a tensor core does with float32 operands."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def _scale(queries: Any, given: float | None) -> float:
    return float(given if given is not None else 1 / np.sqrt(queries.shape[-1]))


@mutant("attention-heads-tiled", A, "G", "query head h reads KV head h mod H")
def tiled(*, queries: Any, keys: Any, values: Any) -> Any:
    """Tiled instead of repeated."""
    heads, group, _ = queries.shape
    order = np.tile(np.arange(heads), group)
    flat = attention(queries=queries.reshape(heads * group, 1, -1), keys=keys[order], values=values[order])
    return {"output": flat["output"].reshape(queries.shape), "lse": flat["lse"].reshape(heads, group)}


@mutant("attention-heads-first-only", A, "G", "every query head reads KV head 0")
def first_head(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for one KV head only."""
    heads = np.zeros(len(keys), dtype=int)
    return attention(queries=queries, keys=keys[heads], values=values[heads])


@mutant("attention-group-size-as-stride", A, "G", "the group's size is used as the KV stride: head min(h * G, H - 1)")
def strided_heads(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for G = 1."""
    heads = np.minimum(np.arange(len(keys)) * queries.shape[1], len(keys) - 1)
    return attention(queries=queries, keys=keys[heads], values=values[heads])


@mutant("attention-lse-in-bits", A, "B", "the lse is reported in base 2")
def bits(*, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None) -> Any:
    """The output is right."""
    state = attention(queries=queries, keys=keys, values=values, softmax_scale=softmax_scale)
    return {"output": state["output"], "lse": state["lse"] / np.log(2)}


@mutant("attention-base2-exponent", A, "B", "2^z where e^z is meant")
def base2(*, queries: Any, keys: Any, values: Any) -> Any:
    """log2(e) forgotten."""
    return attention(queries=queries, keys=keys, values=values, softmax_scale=_scale(queries, None) * np.log(2))


@mutant("attention-no-maximum", A, "B", "exp of the logits without their maximum subtracted, in float32")
def no_maximum(*, queries: Any, keys: Any, values: Any) -> Any:
    """Overflows at logits of 89."""
    logits = (_scale(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weights = np.exp(logits)
        total = weights.sum(axis=-1)
        output = np.einsum("hgt,htd->hgd", weights, values) / np.where(total > 0, total, 1)[..., None]
        return {"output": output, "lse": np.log(total)}


@mutant("attention-finite-sentinel", A, "B", "the running maximum starts at -5e4, so smaller logits vanish")
def sentinel(*, queries: Any, keys: Any, values: Any) -> Any:
    """B4: real logits lie below the sentinel."""
    logits = _scale(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)
    top = np.maximum(logits.max(axis=-1, keepdims=True, initial=-5e4), -5e4)
    weights = np.exp(logits - top)
    total = weights.sum(axis=-1)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + top[..., 0]
    output = np.einsum("hgt,htd->hgd", weights, values) / np.where(total > 0, total, 1)[..., None]
    return {"output": output, "lse": np.where(total > 0, lse, -np.inf)}


@mutant("attention-half-logits", A, "B", "logits are kept in float16")
def half_logits(*, queries: Any, keys: Any, values: Any) -> Any:
    """Loses everything beyond 65504 and three digits below."""
    logits = (_scale(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)).astype(np.float16).astype(np.float64)
    lse = log_sum_exp(logits)
    weights = np.exp(logits - np.where(np.isneginf(lse), 0, lse)[..., None])
    return {"output": np.einsum("hgt,htd->hgd", weights, values), "lse": lse}


@mutant("attention-tf32", A, "I", "the float32 product of queries and keys runs in TF32")
def tf32(*, queries: Any, keys: Any, values: Any) -> Any:
    """I1: the default of a framework's dot."""
    return attention(queries=_tf32(queries), keys=_tf32(keys), values=values)


@mutant("attention-padded-scale", A, "A", "the scale comes from the head size padded to a power of two")
def padded_scale(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for powers of two."""
    width = 2 ** int(np.ceil(np.log2(queries.shape[-1])))
    return attention(queries=queries, keys=keys, values=values, softmax_scale=1 / np.sqrt(width))


@mutant("attention-scale-ignored", A, "B", "an explicit softmax scale is ignored")
def scale_ignored(*, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None) -> Any:
    """Right for the default."""
    return attention(queries=queries, keys=keys, values=values)


@mutant("attention-padded-tokens", A, "A", "tokens are padded to a multiple of 8 with zeros that are not masked")
def padded_tokens(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for multiples of 8."""
    pad = -keys.shape[1] % 8
    widths = ((0, 0), (0, pad), (0, 0))
    return attention(queries=queries, keys=np.pad(keys, widths), values=np.pad(values, widths))


@mutant("attention-last-token-lost", A, "A", "the last token is left out where T is odd")
def last_lost(*, queries: Any, keys: Any, values: Any) -> Any:
    """Vector width 2."""
    even = keys.shape[1] // 2 * 2
    return attention(queries=queries, keys=keys[:, :even], values=values[:, :even])


@mutant("attention-empty-is-nan", A, "B", "no tokens give 0/0")
def empty_nan(*, queries: Any, keys: Any, values: Any) -> Any:
    """No guard on an empty sum."""
    if keys.shape[1] == 0:
        return {"output": np.full(queries.shape, np.nan), "lse": np.full(queries.shape[:2], -np.inf)}
    return attention(queries=queries, keys=keys, values=values)


M = "merge_attention"


@mutant("merge-base2", M, "B", "log-masses in nats are merged as if in bits")
def merge_base2(*, outputs: Any, lses: Any) -> Any:
    """B3."""
    merged = merge_attention(outputs=outputs, lses=lses * np.log(2))
    return {"output": merged["output"], "lse": merged["lse"] / np.log(2)}


@mutant("merge-equal-weights", M, "B", "splits are averaged without their masses")
def merge_mean(*, outputs: Any, lses: Any) -> Any:
    """Right for equal masses."""
    return {"output": outputs.mean(axis=0), "lse": log_sum_exp(np.moveaxis(lses, 0, -1))}


@mutant("merge-empty-is-nan", M, "B", "-inf minus -inf where every split is empty")
def merge_nan(*, outputs: Any, lses: Any) -> Any:
    """B1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp(lses - lses.max(axis=0))
        total = weights.sum(axis=0)
        return {
            "output": (weights[..., None] * outputs).sum(axis=0) / total[..., None],
            "lse": np.log(total) + lses.max(axis=0),
        }


@mutant("merge-empty-takes-all", M, "B", "an empty split's -inf is read as +inf: it takes all weight")
def merge_plus_inf(*, outputs: Any, lses: Any) -> Any:
    """B2."""
    flipped = np.where(np.isneginf(lses), 1e30, lses)
    return merge_attention(outputs=outputs, lses=flipped)


@mutant("merge-no-maximum", M, "B", "exp of log-masses without their maximum subtracted")
def merge_no_max(*, outputs: Any, lses: Any) -> Any:
    """Overflows for masses above 88 nats."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weights = np.exp(lses.astype(np.float32))
        total = weights.sum(axis=0)
        output = (weights[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, 1)[..., None]
        return {"output": output, "lse": np.log(total)}


@mutant("merge-empty-output-counts", M, "B", "the output of an empty split is multiplied in: 0 times whatever it holds")
def merge_counts_empty(*, outputs: Any, lses: Any) -> Any:
    """Adds a small weight instead of none."""
    return merge_attention(outputs=outputs, lses=np.maximum(lses, lses.max(axis=0) - 40.0))


@mutant("merge-rounded-partials", M, "B", "partials are rounded to bf16 before merging")
def merge_bf16(*, outputs: Any, lses: Any) -> Any:
    """B7."""
    from proofs_checks.numbers import round_bfloat16

    with np.errstate(over="ignore"):
        return merge_attention(outputs=round_bfloat16(outputs), lses=lses)


@mutant("merge-first-two", M, "B", "only the first two splits are merged")
def merge_two(*, outputs: Any, lses: Any) -> Any:
    """A fixed split count."""
    return merge_attention(outputs=outputs[:2], lses=lses[:2])


S = "sparse_attention"


@mutant("sparse-dense-window", S, "C", "pages 0..K-1 are read whatever the list says")
def dense_window(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """C9."""
    first = np.broadcast_to(np.arange(pages.shape[1]), pages.shape)
    return sparse_attention(queries=queries, keys=keys, values=values, pages=first, page_size=page_size)


@mutant("sparse-head-0-pages", S, "G", "every KV head reads the pages of head 0")
def shared_pages(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """One list for all heads."""
    first = np.broadcast_to(pages[:1], pages.shape)
    return sparse_attention(queries=queries, keys=keys, values=values, pages=first, page_size=page_size)


@mutant("sparse-zero-tail", S, "A", "the open page is padded with zero keys that are not masked")
def zero_tail(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """Right for complete pages."""
    pad = -keys.shape[1] % page_size
    widths = ((0, 0), (0, pad), (0, 0))
    return sparse_attention(
        queries=queries, keys=np.pad(keys, widths), values=np.pad(values, widths), pages=pages, page_size=page_size
    )


@mutant("sparse-open-page-lost", S, "A", "the open page is dropped")
def open_lost(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """floor instead of ceil."""
    output, lse = np.zeros(queries.shape), np.full(queries.shape[:2], -np.inf)
    for h, row in enumerate(pages):
        index = tokens_of_pages(row[row < keys.shape[1] // page_size], page_size, keys.shape[1])
        one = attend(queries[h][None], keys[h][index][None], values[h][index][None], _scale(queries, None))
        output[h], lse[h] = one["output"][0], one["lse"][0]
    return {"output": output, "lse": lse}


@mutant("sparse-not-renormalised", S, "B", "weights are normalised over all tokens, not over the kept ones")
def not_renormalised(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """o_S asks for renormalisation; also 0 times NaN reaches the output."""
    state = sparse_attention(queries=queries, keys=keys, values=values, pages=pages, page_size=page_size)
    full = attention(queries=queries, keys=np.nan_to_num(keys), values=np.nan_to_num(values))
    share = np.exp(state["lse"] - full["lse"])
    return {"output": state["output"] * share[..., None], "lse": state["lse"]}


@mutant("sparse-masks-by-zero-weight", S, "A", "all tokens are loaded, dropped ones weighted by 0: 0 times NaN is NaN")
def zero_weight(*, queries: Any, keys: Any, values: Any, pages: Any, page_size: int) -> Any:
    """A2: the load is not masked, only the score."""
    state = sparse_attention(queries=queries, keys=keys, values=values, pages=pages, page_size=page_size)
    return {"output": state["output"] + 0.0 * values.sum(axis=1)[:, None], "lse": state["lse"]}


P = "paged_attention"


@mutant("paged-token-index-as-table-index", P, "A", "the table is indexed by token, as if the block size were 1")
def token_index(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """A3."""
    block = key_pool.shape[1]
    table = block_table.copy()
    for n, length in enumerate(tokens):
        for page in range(page_count(int(length), block)):
            source = min(page * block, block_table.shape[1] - 1)
            table[n, page] = max(block_table[n, source], 0) % len(key_pool)
    return paged_attention(queries=queries, key_pool=key_pool, value_pool=value_pool, block_table=table, tokens=tokens)


@mutant("paged-logical-as-physical", P, "A", "block j of the pool is read for page j")
def logical(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """The table is not used."""
    table = np.broadcast_to(np.arange(block_table.shape[1]) % len(key_pool), block_table.shape)
    return paged_attention(
        queries=queries,
        key_pool=np.nan_to_num(key_pool),
        value_pool=np.nan_to_num(value_pool),
        block_table=table,
        tokens=tokens,
    )


@mutant("paged-whole-blocks", P, "A", "the last block is read to its end")
def whole_blocks(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """tokens rounded up."""
    block = key_pool.shape[1]
    full = -(-tokens // block) * block
    return paged_attention(
        queries=queries,
        key_pool=np.nan_to_num(key_pool),
        value_pool=np.nan_to_num(value_pool),
        block_table=block_table,
        tokens=full,
    )


@mutant("paged-tail-loaded", P, "A", "slots past the end are loaded with weight 0: 0 times NaN reaches the output")
def tail_loaded(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """A2."""
    state = paged_attention(
        queries=queries, key_pool=key_pool, value_pool=value_pool, block_table=block_table, tokens=tokens
    )
    for n, length in enumerate(int(t) for t in tokens):
        used = block_table[n, : page_count(length, key_pool.shape[1])]
        state["output"][n] += 0.0 * value_pool[used].sum(axis=(0, 1))[:, None]
    return state


@mutant("paged-stale-entries", P, "A", "table entries past the last page are followed")
def stale(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """A4: reads beyond the table's used part, and fails on ids outside the pool."""
    touched = np.nan_to_num(key_pool)[block_table]  # raises for a stale id
    state = paged_attention(
        queries=queries, key_pool=key_pool, value_pool=value_pool, block_table=block_table, tokens=tokens
    )
    return {"output": state["output"] + 0.0 * touched.sum(), "lse": state["lse"]}


@mutant("paged-first-length", P, "A", "every sequence has the first one's length")
def first_length(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """Right for a batch of one."""
    most = [int(np.sum((row >= 0) & (row < len(key_pool)))) * key_pool.shape[1] for row in block_table]
    lengths = np.minimum(np.full_like(tokens, tokens[0]), most)
    return paged_attention(
        queries=queries,
        key_pool=np.nan_to_num(key_pool),
        value_pool=np.nan_to_num(value_pool),
        block_table=block_table,
        tokens=lengths,
    )


@mutant("paged-value-table-of-keys", P, "A", "values are read from the key pool")
def keys_twice(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """One base address for both."""
    return paged_attention(
        queries=queries, key_pool=key_pool, value_pool=key_pool, block_table=block_table, tokens=tokens
    )


@mutant("paged-rebuilt-addresses", P, "A", "the base address of a page is rebuilt from the shape, not from the strides")
def rebuilt(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> Any:
    """A1: right for contiguous pools."""

    def flat(pool: Any) -> Any:
        if pool.flags["C_CONTIGUOUS"] or pool.base is None:
            return pool
        storage = np.nan_to_num(pool.base.ravel())
        return storage[: pool.size].reshape(pool.shape)

    return paged_attention(
        queries=queries, key_pool=flat(key_pool), value_pool=flat(value_pool), block_table=block_table, tokens=tokens
    )


Q = "paged_sparse_attention"


@mutant("paged-sparse-physical-pages", Q, "A", "logical pages are used as block ids")
def physical(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, pages: Any) -> Any:
    """The table is skipped."""
    table = np.broadcast_to(np.arange(block_table.shape[1]) % len(key_pool), block_table.shape)
    return paged_sparse_attention(
        queries=queries,
        key_pool=np.nan_to_num(key_pool),
        value_pool=np.nan_to_num(value_pool),
        block_table=table,
        tokens=tokens,
        pages=pages,
    )


@mutant("paged-sparse-padding-is-a-page", Q, "A", "-1 pads are gathered as the last page")
def padding_page(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, pages: Any) -> Any:
    """Negative index."""
    output, lse = np.zeros(queries.shape), np.full(queries.shape[:3], -np.inf)
    block = key_pool.shape[1]
    for n, h in np.ndindex(queries.shape[:2]):
        length = int(tokens[n])
        keys, values = (gather_sequence(pool, block_table[n], length) for pool in (key_pool, value_pool))
        count = page_count(length, block)
        row = np.where(pages[n, h] < 0, count - 1, pages[n, h]) if count else pages[n, h][:0]
        index = tokens_of_pages(row, block, length)
        one = attend(queries[n, h][None], keys[h][index][None], values[h][index][None], _scale(queries, None))
        output[n, h], lse[n, h] = one["output"][0], one["lse"][0]
    return {"output": output, "lse": lse}


@mutant("paged-sparse-head-0-pages", Q, "G", "every KV head reads head 0's pages")
def head0_pages(*, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, pages: Any) -> Any:
    """One list per sequence."""
    return paged_sparse_attention(
        queries=queries,
        key_pool=key_pool,
        value_pool=value_pool,
        block_table=block_table,
        tokens=tokens,
        pages=np.broadcast_to(pages[:, :1], pages.shape),
    )
