"""Golden cases of attention and paging: head maps, empty splits, open pages of one token."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import pooled
from proofs_checks.judge.cases.sizes import constant_heads

HEADS = "2 KV heads of {} queries, values constant per head: the output names the head that was read"
OPEN = "the last page holds one token: it counts once and nothing is padded"
UNREAD = "slots past the end are NaN and table entries behind the last page lead outside: neither is ever read"
SCALE = "an explicit scale replaces 1/sqrt(d)"


def cases() -> list[Case]:
    """Cases of the attention stages."""
    dense, sparse = Family("attention", "B"), Family("sparse_attention", "A")
    merge, paged = Family("merge_attention", "B"), Family("paged_attention", "A")
    kept = Family("paged_sparse_attention", "A")
    return [
        *[dense.probe(f"head-map-G{G}", "G", HEADS.format(G), partial(constant_heads, 2, G)) for G in (6, 7)],
        *[sparse.probe(f"head-map-G{G}", "G", HEADS.format(G), partial(_sparse_heads, G)) for G in (3, 6, 7)],
        *[paged.probe(f"head-map-G{G}", "G", HEADS.format(G), partial(_paged_heads, G)) for G in (3, 6, 7)],
        sparse.probe("own-pages", "G", "each KV head reads its own pages: the output names them", _own_pages),
        paged.probe("unread-slots", "A", UNREAD, _unread),
        kept.probe("unread-slots", "A", UNREAD, _unread_kept),
        merge.probe("one-live-of-five", "B", "four empty splits hold garbage and weigh nothing", _one_live),
        merge.probe("heads-empty-apart", "B", "a split is empty for one head and not for the other", _half_empty),
        paged.probe("open-page-of-one", "A", OPEN, _open_page),
        paged.probe("golden-softmax-scale", "B", SCALE, lambda: {**_open_page(), "softmax_scale": 0.125}),
        kept.probe("golden-softmax-scale", "B", SCALE, lambda: {**_open_page_kept(), "softmax_scale": 0.125}),
        paged.probe(
            "as-many-heads-as-slots", "A", "blocks of 2 tokens and 2 KV heads: [slot, head], not the reverse", _square
        ),
        kept.probe("open-page-of-one", "A", OPEN, _open_page_kept),
    ]


def _sparse_heads(G: int) -> Inputs:
    return {**constant_heads(2, G), "pages": np.array([[1, 0], [0, 1]]), "page_size": 2}


def _paged_heads(G: int) -> Inputs:
    one = constant_heads(2, G)
    pool = pooled([one["keys"]], [one["values"]], [4], 2, [[2, 0]], 3)
    return {"queries": one["queries"][None], **pool}


def _one_live() -> Inputs:
    outputs = np.full((5, 1, 2, 4), 2.0**30)
    outputs[3] = np.array([1.5, -2.0, 0.25, 7.0])
    lses = np.full((5, 1, 2), -np.inf)
    lses[3] = 2.5
    return {"outputs": outputs, "lses": lses}


def _half_empty() -> Inputs:
    outputs = generator("golden", "half-empty").integers(-9, 10, size=(3, 2, 2, 4)) / 2.0
    lses = np.array([[1.0, -np.inf], [-np.inf, 0.5], [2.0, -1.0]])[:, :, None] + np.array([0.0, 0.25])
    return {"outputs": outputs, "lses": lses}


def _open_page() -> Inputs:
    rng = generator("golden", "open-page")
    keys, values = rng.integers(-8, 9, size=(2, 2, 9, 4)) / 4.0
    pool = pooled([keys, keys[:, :5]], [values, values[:, :5]], [9, 5], 4, [[4, 1, 3], [2, 0]], 5, fill=1.0)
    return {"queries": rng.integers(-8, 9, size=(2, 2, 3, 4)) / 4.0, **pool}


def _square() -> Inputs:
    rng = generator("golden", "square")
    keys, values = rng.integers(-8, 9, size=(2, 2, 5, 4)) / 4.0
    pool = pooled([keys], [values], [5], 2, [[2, 0, 1]], 3)
    return {"queries": rng.integers(-8, 9, size=(1, 2, 3, 4)) / 4.0, **pool}


def _own_pages() -> Inputs:
    values = np.repeat(2.0 ** np.arange(4), 2)[None, :, None] * np.ones((2, 1, 8))
    shared = {"queries": np.ones((2, 3, 8)), "keys": np.ones((2, 8, 8)), "values": values}
    return {**shared, "pages": np.array([[0, 3], [2, 1]]), "page_size": 2}


def _unread() -> Inputs:
    """The open pages' empty slots and a whole unused block are NaN; the shorter sequence's table ends in 999."""
    inputs = _open_page()
    for name in ("key_pool", "value_pool"):
        pool = inputs[name].copy()
        pool[3, 1:] = pool[0, 1:] = np.nan
        inputs[name] = np.concatenate([pool, np.full((1, *pool.shape[1:]), np.nan)])
    return {**inputs, "block_table": np.where(inputs["block_table"] < 0, 999, inputs["block_table"])}


def _unread_kept() -> Inputs:
    return {**_unread(), "pages": _open_page_kept()["pages"]}


def _open_page_kept() -> Inputs:
    pages = np.array([[[2, 0], [2, 1]], [[1, -1], [0, 1]]])
    return {**_open_page(), "pages": pages}
