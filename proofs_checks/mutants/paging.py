"""Wrong attention over kept pages and paged caches: tails, block tables, pads, addresses."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.attention import scale_or_default
from proofs_checks.mutants.registry import mutant
from refimpl.attention import attend, attention, sparse_attention, tokens_of_pages
from refimpl.paging import gather_sequence, page_count, paged_attention, paged_sparse_attention

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
        one = attend(queries[h][None], keys[h][index][None], values[h][index][None], scale_or_default(queries, None))
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
        one = attend(queries[n, h][None], keys[h][index][None], values[h][index][None], scale_or_default(queries, None))
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
