"""Cases of attention over chosen pages, contiguous and through block tables."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import sizes, varied
from proofs_checks.judge.cases.inputs import pooled, random_qkv

OUTPUT = ("output",)
TABLE_READ = "B=16, T=17, table [5, 2]: token 16 lies in block 2 slot 0; a page index is no token index"
SCALE = "an explicit scale replaces 1/sqrt(d)"
STALE = "entries past ceil(T/B) are stale ids outside the pool and slots past T hold NaN: neither is ever read"
PAGE_IDS = "B = 1 and page ids 69999, 300 and 5: no id is cut to 8 or 16 bits"
BLOCK_IDS = "block ids up to 69999: none is cut to 8 or 16 bits"
ROWS = "70 sequences of one token: every row of the batch is computed, each with its own table"
BLOCKS = "six sequences, full, open, shorter than a block, and empty"
LENGTHS = [5, 33, 16, 0, 128, 17]


def sparse_cases() -> list[Case]:
    """Cases of `sparse_attention`."""
    stage = Family("sparse_attention", "C")
    return [
        stage.probe(
            "renormalised",
            "B",
            "equal values everywhere: weights of the kept tokens sum to 1",
            _renormalised,
            judged=OUTPUT,
        ),
        stage.probe("pages-3-1", "C", "pages 3 and 1, not a dense window", _pages_3_1, judged=OUTPUT),
        stage.probe("head-map", "G", "each KV head attends its own pages", _own, judged=OUTPUT),
        stage.probe("whole-page", "A", "T = 32: the last page is complete", partial(_tail, 32), judged=OUTPUT),
        stage.probe("pages-4-0-2", "C", "three pages, not in order", partial(_named, 80, 16, [4, 0, 2]), judged=OUTPUT),
        stage.probe(
            "tail-counts-once",
            "A",
            "T = 21: five tokens of the last page, each once",
            partial(_tail, 21),
            judged=OUTPUT,
        ),
        stage.probe("open-page-of-one", "A", "T = 33: the last page holds one token", _one_open, judged=OUTPUT),
        stage.probe("shorter-than-a-page", "A", "T = 5, B = 16: one open page", _short, judged=OUTPUT),
        stage.size("page-of-one", "A", PAGE_IDS, partial(_named, 70000, 1, [69999, 300, 5]), judged=OUTPUT),
        stage.size("page-of-64", "A", "B = 64, three pages", partial(_named, 320, 64, [4, 0, 2]), judged=OUTPUT),
        stage.size("last-of-300-pages", "C", "no fixed number of chosen pages", _last_page, judged=OUTPUT),
        stage.probe("softmax-scale", "B", "an explicit scale replaces 1/sqrt(d)", _scaled),
        stage.exact("no-pages", "B", "no pages: output 0, lse -inf", _no_pages),
        stage.probe("lse-of-kept", "B", "the lse is over the kept tokens only, in nats", _pages_3_1, judged=("lse",)),
        stage.probe(
            "unselected-poison",
            "A",
            "unselected pages are never read",
            _random_pages,
            poison=_nan_rest,
        ),
        stage.relation("page-order", "the order of pages does not matter", _random_pages, _reverse_pages),
        stage.general("T250-d80", "15 full pages and 10 tokens, d = 80", partial(_random_pages, 250, 80)),
        stage.general("capture-needle", "8 pages of the real needle prompt", _needle_pages),
    ]


def _constant_pages(T: int, H: int = 1) -> dict[str, Any]:
    """A zero query and pages whose values are the constants 2^page (times 3 per head): outputs say which were read."""
    page = np.arange(T) // 16
    values = np.broadcast_to((2.0**page * 3.0 ** np.arange(H)[:, None])[..., None], (H, T, 64))
    return {"queries": np.zeros((H, 3, 64)), "keys": np.ones((H, T, 64)), "values": values, "page_size": 16}


def _pages_3_1() -> Inputs:
    return {**_constant_pages(80), "pages": np.array([[3, 1]])}


def _renormalised() -> Inputs:
    return {**_pages_3_1(), "values": np.full((1, 80, 64), 5.0)}


def _own() -> Inputs:
    return {**_constant_pages(80, H=2), "pages": np.array([[0, 2], [1, 3]])}


def _one_open() -> Inputs:
    inputs = _constant_pages(33)
    return {**inputs, "values": inputs["values"] * 0 + 5.0, "pages": np.array([[0, 2]])}


def _tail(T: int) -> Inputs:
    return {**sizes.last_token(T), "pages": np.array([[1, 0]]), "page_size": 16}


def _short() -> Inputs:
    """Logits of -200 and a last one of 0, value 9, in an open page of 5."""
    queries, keys, values = np.full((1, 2, 64), 5.0), np.full((1, 5, 64), -5.0), np.ones((1, 5, 64))
    keys[:, 4], values[:, 4] = 0.0, 9.0
    return {"queries": queries, "keys": keys, "values": values, "pages": np.array([[0]]), "page_size": 16}


def _named(T: int, B: int, pages: list[int]) -> Inputs:
    return {**sizes.named_pages(T, B, pages), "page_size": B}


def _last_page() -> Inputs:
    return {**sizes.last_page(300), "page_size": 4}


def _scaled() -> Inputs:
    return {**_random_pages(), "softmax_scale": 0.5}


def _no_pages() -> Inputs:
    return {**_constant_pages(32), "pages": np.zeros((1, 0), dtype=np.int64)}


def _random_pages(T: int = 100, d: int = 64) -> Inputs:
    rng = generator("sparse", f"{T},{d}")
    count = -(-T // 16)
    pages = np.stack([np.append(rng.permutation(count - 1)[:3], count - 1) for _ in range(2)])
    return {**random_qkv(rng, 2, 3, T, d, 2.0), "pages": pages, "page_size": 16}


def _nan_rest(inputs: Inputs) -> Inputs:
    """NaN in every key and value of pages that a head did not select."""
    poisoned = {**inputs, "keys": inputs["keys"].copy(), "values": inputs["values"].copy()}
    for h, row in enumerate(inputs["pages"]):
        for page in set(range(-(-inputs["keys"].shape[1] // 16))) - set(row.tolist()):
            poisoned["keys"][h, page * 16 : page * 16 + 16] = np.nan
            poisoned["values"][h, page * 16 : page * 16 + 16] = np.nan
    return poisoned


def _reverse_pages(inputs: Inputs) -> Inputs:
    return {**inputs, "pages": inputs["pages"][:, ::-1].copy()}


def _needle_pages() -> Inputs:
    pages = np.array([[0, 3, 46, 47, 80, 99, 120, 127]] * 3)
    return {**needle_slice(2, 4), "pages": pages, "page_size": 16}


def paged_cases() -> list[Case]:
    """Cases of `paged_attention`."""
    stage = Family("paged_attention", "A")
    return [
        stage.probe("table-5-2", "A", TABLE_READ, _table_5_2, judged=OUTPUT),
        stage.exact("head-map", "G", "two KV heads of three query heads", _paged_heads, judged=OUTPUT),
        stage.exact("empty-sequence", "B", "tokens 0: output 0, lse -inf", _empty_sequence),
        stage.probe("natural-lse", "B", "17 logits of 0: lse is ln 17", _table_5_2, judged=("lse",)),
        stage.probe("never-read", "A", STALE, partial(_two_sequences, "paged"), poison=poison_pool),
        stage.probe("softmax-scale", "B", SCALE, lambda: varied.with_scale(_two_sequences("scale"))),
        stage.size("batch-of-70", "A", ROWS, partial(sizes.many_sequences, 70), judged=OUTPUT),
        *[stage.size(f"batch-B{B}", "A", BLOCKS, partial(sizes.batch, B, LENGTHS)) for B in (1, 2, 16, 64)],
        stage.size("block-ids", "I", BLOCK_IDS, partial(sizes.far_block, 70000), judged=OUTPUT),
        stage.general("batch-of-3", "three sequences, one empty, shuffled blocks", partial(_two_sequences, "batch")),
        stage.general("batch-d80", "d = 80, blocks of 8", partial(_two_sequences, "d80", 80, 8)),
    ]


def paged_sparse_cases() -> list[Case]:
    """Cases of `paged_sparse_attention`."""
    stage = Family("paged_sparse_attention", "A")
    return [
        stage.probe("logical-pages", "A", "page 1 of table [5, 2] is block 2", _logical, judged=OUTPUT),
        stage.probe("padding", "A", "-1 pads a row and is no page", _padded_row, judged=OUTPUT),
        stage.exact("nothing-kept", "B", "a row of -1 only: output 0, lse -inf", _only_padding),
        stage.probe("head-map", "G", "each KV head reads its own pages", _own_logical, judged=OUTPUT),
        stage.probe("natural-lse", "B", "16 logits of 0: lse is ln 16", _logical, judged=("lse",)),
        stage.probe("never-read", "A", STALE, partial(_sparse_batch, 64), poison=poison_pool),
        stage.probe("softmax-scale", "B", SCALE, lambda: varied.with_scale(_sparse_batch(64))),
        *[stage.size(f"batch-B{B}", "A", BLOCKS, partial(sizes.sparse_batch, B, LENGTHS)) for B in (1, 2, 16, 64)],
        stage.general("batch", "three sequences, one empty, shuffled blocks", partial(_sparse_batch, 128)),
    ]


def _table_5_2() -> Inputs:
    keys, values = np.ones((1, 17, 64)), np.zeros((1, 17, 64))
    values[:, 16] = 34.0
    pool = pooled([keys], [values], [17], 16, [[5, 2]], 6, fill=-64.0)
    return {"queries": np.zeros((1, 1, 3, 64)), **pool}


def _paged_heads() -> Inputs:
    """One token each, so that the output is its value in every way of computing it."""
    keys = np.ones((2, 1, 64))
    values = np.broadcast_to(np.array([1.0, 4.0])[:, None, None], (2, 1, 64))
    return {"queries": np.ones((1, 2, 3, 64)), **pooled([keys], [values], [1], 4, [[2]], 3)}


def _empty_sequence() -> Inputs:
    none = np.zeros((1, 0, 64))
    return {"queries": np.ones((1, 1, 2, 64)), **pooled([none], [none], [0], 16, [[-1]], 1)}


def _two_sequences(name: str, d: int = 64, block: int = 16) -> Inputs:
    rng = generator("paged", name)
    lengths = [37, 0, 17]
    drawn = [random_qkv(rng, 2, 3, T, d, 2.0) for T in lengths]
    order = rng.permutation(12).tolist()
    table, start = [], 0
    for T in lengths:
        count = -(-T // block)
        table.append(order[start : start + count])
        start += count
    pool = pooled([x["keys"] for x in drawn], [x["values"] for x in drawn], lengths, block, table, 12)
    return {"queries": np.stack([x["queries"] for x in drawn]), **pool}


def poison_pool(inputs: Inputs) -> Inputs:
    """NaN in every pool slot that no sequence holds, stale ids in every table column past a sequence's pages."""
    block = inputs["key_pool"].shape[1]
    held = np.zeros(inputs["key_pool"].shape[:2], dtype=bool)
    table = inputs["block_table"].copy()
    for n, tokens in enumerate(inputs["tokens"]):
        count = -(-int(tokens) // block)
        for t in range(int(tokens)):
            held[table[n, t // block], t % block] = True
        table[n, count:] = 2**30
    poisoned = {**inputs, "block_table": table}
    for name in ("key_pool", "value_pool"):
        poisoned[name] = np.where(held[:, :, None, None], inputs[name], np.nan).astype(inputs[name].dtype)
    return poisoned


def _logical() -> Inputs:
    keys = np.ones((1, 32, 64))
    values = np.repeat(np.array([1.0, 8.0]), 16)[None, :, None] * np.ones((1, 32, 64))
    pool = pooled([keys], [values], [32], 16, [[5, 2]], 6, fill=-64.0)
    return {"queries": np.zeros((1, 1, 3, 64)), **pool, "pages": np.array([[[1]]])}


def _own_logical() -> Inputs:
    keys = np.ones((2, 32, 64))
    values = np.repeat(np.array([1.0, 8.0]), 16)[None, :, None] * np.ones((2, 32, 64))
    pool = pooled([keys], [values], [32], 16, [[5, 2]], 6, fill=-64.0)
    return {"queries": np.zeros((1, 2, 3, 64)), **pool, "pages": np.array([[[0], [1]]])}


def _padded_row() -> Inputs:
    return {**_logical(), "pages": np.array([[[0, -1, -1]]])}


def _only_padding() -> Inputs:
    return {**_logical(), "pages": np.array([[[-1, -1]]])}


def _sparse_batch(d: int) -> Inputs:
    inputs = _two_sequences(f"sparse{d}", d)
    pages = np.array([[[2, 0, -1], [1, -1, -1]], [[-1, -1, -1], [-1, -1, -1]], [[1, 0, -1], [0, -1, -1]]])
    return {**inputs, "pages": pages}
