"""Pages, the open page, block tables, and attention read through them."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import attend, scale_of, tokens_of_pages
from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, real, whole


def page_count(tokens: int, page_size: int) -> int:
    """P = ceil(T / B): complete pages and, where B does not divide T, the open page.

    >>> page_count(32, 16), page_count(33, 16), page_count(0, 16)
    (2, 3, 0)
    """
    return -(-whole("tokens", tokens, low=0) // whole("page_size", page_size, low=1))


def split_pages(keys: FloatArray, page_size: int) -> tuple[FloatArray, FloatArray]:
    """Cut keys [H, T, d] into complete pages [H, P, B, d] and the open page's tokens [H, n, d], 0 <= n < B.

    >>> complete, open_page = split_pages(np.zeros((1, 35, 4)), 16)
    >>> complete.shape, open_page.shape
    ((1, 2, 16, 4), (1, 3, 4))
    """
    H, T, d = keys.shape
    complete = T // page_size
    return keys[:, : complete * page_size].reshape(H, complete, page_size, d), keys[:, complete * page_size :]


def gather_sequence(pool: Any, block_table: Any, tokens: int) -> Any:
    """Read one sequence out of a pool [M, B, H, d] by its row of the block table -> [H, tokens, d].

    Entries of the row from column ceil(tokens/B) on are never looked at.

    >>> pool = np.arange(6.0).reshape(3, 2, 1, 1)                       # blocks hold 0 1 | 2 3 | 4 5
    >>> gather_sequence(pool, [2, 0, 99], 3)[0, :, 0].tolist()
    [4.0, 5.0, 0.0]
    """
    page_size, heads, width = pool.shape[1:]
    used = np.asarray(block_table)[: page_count(tokens, page_size)]
    rows = pool[used].reshape(len(used) * page_size, heads, width)[:tokens]  # [tokens, H, d]
    return np.moveaxis(rows, 0, 1)


class PagedCache:
    """The checked arguments that the paged stages share; iterating gives one sequence's ``(keys, values)`` at a time.

    Memory beyond ``tokens`` is neither read nor checked, so it may hold anything (AMB-26).
    """

    def __init__(self, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any) -> None:
        sizes = Sizes()
        self.queries = real("queries", queries, "N H G d", sizes)
        self.key_pool, self.value_pool = np.asarray(key_pool), np.asarray(value_pool)
        sizes.bind("key_pool", self.key_pool.shape, "M B H d")
        sizes.bind("value_pool", self.value_pool.shape, "M B H d")
        self.block_table = integers("block_table", block_table, "N Pmax", sizes)
        self.tokens = integers("tokens", tokens, "N", sizes, low=0)
        self.sizes, self.page_size = sizes, sizes["B"]
        if self.page_size == 0:
            raise ArgumentError("key_pool: expected blocks of at least one token, got B=0")
        self._check_table()

    def _check_table(self) -> None:
        for n, tokens in enumerate(self.tokens):
            pages = page_count(int(tokens), self.page_size)
            if pages > self.sizes["Pmax"]:
                columns = self.sizes["Pmax"]
                raise ArgumentError(f"block_table: expected {pages} columns for tokens[{n}]={tokens}, got {columns}")
            used = self.block_table[n, :pages]
            if ((used < 0) | (used >= self.sizes["M"])).any():
                last = self.sizes["M"] - 1
                raise ArgumentError(f"block_table: expected block ids in 0..{last}, got {used.tolist()} in row {n}")

    def sequence(self, n: int) -> tuple[FloatArray, FloatArray]:
        """Keys and values [H, T_n, d] of sequence ``n``, float64, checked to be finite."""
        sizes = Sizes({"H": self.sizes["H"], "d": self.sizes["d"]})
        row, tokens = self.block_table[n], int(self.tokens[n])
        keys = real(f"key_pool (sequence {n})", gather_sequence(self.key_pool, row, tokens), "H T d", sizes)
        values = real(f"value_pool (sequence {n})", gather_sequence(self.value_pool, row, tokens), "H T d", sizes)
        return keys, values


def paged_attention(
    *, queries: Any, key_pool: Any, value_pool: Any, block_table: Any, tokens: Any, softmax_scale: float | None = None
) -> dict[str, FloatArray]:
    """Dense attention of N sequences whose caches lie in blocks of a shared pool.

    Args:
        queries: [N, H, G, d], one decode step per sequence.
        key_pool, value_pool: [M, B, H, d], any strides.
        block_table: [N, Pmax], row n lists sequence n's blocks; columns from ceil(tokens/B) on are undefined.
        tokens: [N], lengths; 0 gives output 0 and lse -inf.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [N, H, G, d] and ``lse`` [N, H, G] in nats.

    Raises:
        ArgumentError: a shape, a block id out of range in a used column, or a non-finite value in a used slot.

    Source: serving layout; arithmetic as `attention`.

    >>> pool = np.arange(6.0).reshape(3, 2, 1, 1)
    >>> result = paged_attention(queries=np.zeros((1, 1, 1, 1)), key_pool=pool, value_pool=pool,
    ...                          block_table=[[2, 0]], tokens=[3])
    >>> round(float(result["output"][0, 0, 0, 0]), 12)                  # the mean of 4, 5 and 0
    3.0
    """
    cache = PagedCache(queries, key_pool, value_pool, block_table, tokens)
    scale = scale_of(softmax_scale, cache.sizes["d"])
    result = {"output": np.zeros(cache.queries.shape), "lse": np.full(cache.queries.shape[:3], -np.inf)}
    for n in range(cache.sizes["N"]):
        keys, values = cache.sequence(n)
        one = attend(cache.queries[n], keys, values, scale)
        result["output"][n], result["lse"][n] = one["output"], one["lse"]
    return result


def paged_sparse_attention(
    *,
    queries: Any,
    key_pool: Any,
    value_pool: Any,
    block_table: Any,
    tokens: Any,
    pages: Any,
    softmax_scale: float | None = None,
) -> dict[str, FloatArray]:
    """`paged_attention` restricted to logical pages [N, H, K] of each sequence; -1 pads a row and is skipped.

    Keys and values of pages that are not listed are never read. Raises ArgumentError for a page that is out of the
    sequence's range or listed twice, and as `paged_attention` does.

    Source: serving layout; arithmetic as `sparse_attention`.

    >>> pool = np.arange(6.0).reshape(3, 2, 1, 1)
    >>> result = paged_sparse_attention(queries=np.zeros((1, 1, 1, 1)), key_pool=pool, value_pool=pool,
    ...                                 block_table=[[2, 0]], tokens=[3], pages=[[[1, -1]]])
    >>> float(result["output"][0, 0, 0, 0])
    0.0
    """
    cache = PagedCache(queries, key_pool, value_pool, block_table, tokens)
    chosen = integers("pages", pages, "N H K", cache.sizes, low=-1)
    scale = scale_of(softmax_scale, cache.sizes["d"])
    result = {"output": np.zeros(cache.queries.shape), "lse": np.full(cache.queries.shape[:3], -np.inf)}
    for n, head in np.ndindex(cache.sizes["N"], cache.sizes["H"]):
        length, row = int(cache.tokens[n]), chosen[n, head]
        row = row[row >= 0]
        if (row >= page_count(length, cache.page_size)).any() or len(set(row.tolist())) < len(row):
            where = f"got {row.tolist()} at [{n}, {head}]"
            raise ArgumentError(f"pages: expected distinct pages of a sequence of {length} tokens, {where}")
        slots = slots_of_pages(cache.block_table[n], row, cache.page_size, length)  # [kept tokens] into the pool
        where = f"(sequence {n}, KV head {head})"
        keys = _read_slots(f"key_pool {where}", cache.key_pool, slots, head)
        values = _read_slots(f"value_pool {where}", cache.value_pool, slots, head)
        one = attend(cache.queries[n, head, None], keys, values, scale)
        result["output"][n, head], result["lse"][n, head] = one["output"][0], one["lse"][0]
    return result


def slots_of_pages(block_row: IntArray, pages: IntArray, page_size: int, tokens: int) -> IntArray:
    """Flat pool slots (block * B + offset) of the tokens of logical ``pages`` of one sequence.

    >>> slots_of_pages(np.array([5, 2]), np.array([1]), 4, 6).tolist()   # tokens 4 and 5 lie in block 2
    [8, 9]
    """
    token = tokens_of_pages(pages, page_size, tokens)
    slots: IntArray = block_row[token // page_size] * page_size + token % page_size
    return slots


def _read_slots(name: str, pool: Any, slots: IntArray, head: int) -> FloatArray:
    page_size = pool.shape[1]
    return real(name, pool[slots // page_size, slots % page_size, head], "n d", Sizes())[None]  # [1, n, d]
