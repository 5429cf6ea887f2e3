"""Wrong selections and decodes."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import sparse_attention
from refimpl.locks.decode import locks_decode, locks_decode_paged
from refimpl.locks.select import locks_select_pages
from refimpl.paging import page_count

C = "locks_select_pages"


def _pages(shares: Any, order: Any, kept: int) -> Any:
    return np.sort(order[:, :kept], axis=1)


@mutant("select-forced-on-top", C, "C", "sink and most recent page come on top of the budget")
def on_top(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """U16."""
    return locks_select_pages(shares=shares, budget_tokens=budget_tokens + 2 * page_size, page_size=page_size)


@mutant("select-forced-deducted-twice", C, "C", "the forced pages are deducted from the budget twice")
def deducted(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """Two pages short."""
    less = max(budget_tokens - 2 * page_size, 2 * page_size)
    return locks_select_pages(shares=shares, budget_tokens=less, page_size=page_size)


@mutant("select-floor-budget", C, "C", "k = floor(b / B)")
def floor_budget(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """Right for multiples."""
    return locks_select_pages(shares=shares, budget_tokens=budget_tokens // page_size * page_size, page_size=page_size)


@mutant("select-nothing-forced", C, "C", "no page is forced")
def nothing_forced(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """Plain top-k."""
    kept = min(-(-budget_tokens // page_size), shares.shape[1])
    return _pages(shares, np.argsort(-shares, axis=1, kind="stable"), kept)


@mutant("select-forced-twice", C, "C", "forced pages stay among the candidates and are kept twice")
def forced_twice(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """U17."""
    P = shares.shape[1]
    kept = min(-(-budget_tokens // page_size), P)
    top = np.argsort(-shares, axis=1, kind="stable")[:, : max(kept - 2, 0)]
    forced = np.broadcast_to(np.array([0, P - 1]), (len(shares), 2))
    return np.sort(np.concatenate([forced, top], axis=1)[:, :kept], axis=1)


@mutant("select-recent-is-last-full", C, "A", "the page before the last counts as the most recent")
def last_full(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """U19."""
    P = shares.shape[1]
    kept = min(-(-budget_tokens // page_size), P)
    if kept >= P:
        return np.broadcast_to(np.arange(P), shares.shape).copy()
    ranked = shares.copy()
    ranked[:, [0, P - 2]] = np.inf
    return _pages(shares, np.argsort(-ranked, axis=1, kind="stable"), kept)


@mutant("select-all-ties", C, "C", "every page at the threshold is kept, as far as the row reaches from the end")
def all_ties(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """The lowest of the kept ones is replaced by equals further on, forced pages included."""
    pages = locks_select_pages(shares=shares, budget_tokens=budget_tokens, page_size=page_size)
    for row, s in zip(pages, shares, strict=True):
        if len(row) > 2:
            tied = np.flatnonzero(s == s[row[1:-1]].min())
            tail = tied[-(len(row) - 1) :]
            row[-len(tail) :] = tail
    return pages


@mutant("select-bounded-candidates", C, "C", "only the first 16,384 pages are candidates")
def bounded(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """C1: right up to the largest size that was tested."""
    seen = shares.copy()
    seen[:, 16384:-1] = -1.0
    return locks_select_pages(shares=seen, budget_tokens=budget_tokens, page_size=page_size)


@mutant("select-half-keys", C, "C", "shares are compared in float16")
def half_keys(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """C3: many collapse into one."""
    half = shares.astype(np.float16).astype(np.float64)
    return locks_select_pages(shares=half, budget_tokens=budget_tokens, page_size=page_size)


@mutant("select-shared-across-heads", C, "G", "all KV heads keep the pages of head 0")
def shared(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """One table."""
    first = np.broadcast_to(shares[:1], shares.shape)
    return locks_select_pages(shares=first, budget_tokens=budget_tokens, page_size=page_size)


@mutant("select-smallest", C, "C", "the smallest shares are kept")
def smallest_shares(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """Ascending sort."""
    return locks_select_pages(shares=-shares, budget_tokens=budget_tokens, page_size=page_size)


@mutant("select-at-least-one-free", C, "C", "at least one page besides the forced ones is kept")
def one_free(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """C5: max(k - 2, 1)."""
    return locks_select_pages(shares=shares, budget_tokens=max(budget_tokens, 3 * page_size), page_size=page_size)


@mutant(
    "select-highest-tie-though-declared",
    C,
    "C",
    "ties go to the higher page though the port says lowest",
    TIES="lowest_index",
)
def highest_tie(*, shares: Any, budget_tokens: int, page_size: int) -> Any:
    """AMB-06 binds where it is declared."""
    P = shares.shape[1]
    mirrored = locks_select_pages(shares=shares[:, ::-1], budget_tokens=budget_tokens, page_size=page_size)
    return np.sort(P - 1 - mirrored, axis=1)


D = "locks_decode"


@mutant("decode-open-page-not-read", D, "A", "the open page is selected but its tokens are not read")
def open_unread(*, queries: Any, keys: Any, values: Any, page_size: int, **settings: Any) -> Any:
    """The output misses the newest tokens."""
    state = locks_decode(queries=queries, keys=keys, values=values, page_size=page_size, **settings)
    full = keys.shape[1] // page_size * page_size
    if full in (0, keys.shape[1]):
        return state
    kept = np.stack([row[row < full // page_size] for row in state["pages"]])
    read = sparse_attention(
        queries=queries, keys=keys[:, :full], values=values[:, :full], pages=kept, page_size=page_size
    )
    return {**state, "output": read["output"]}


@mutant("decode-output-of-dense", D, "C", "the output is dense attention: the selection is not used")
def dense_output(*, queries: Any, keys: Any, values: Any, page_size: int, **settings: Any) -> Any:
    """Right-looking and slow."""
    state = locks_decode(queries=queries, keys=keys, values=values, page_size=page_size, **settings)
    count = page_count(keys.shape[1], page_size)
    every = np.broadcast_to(np.arange(count), (len(keys), count))
    dense = sparse_attention(queries=queries, keys=keys, values=values, pages=every, page_size=page_size)
    return {**state, "output": dense["output"]}


@mutant("decode-paged-shared-length", "locks_decode_paged", "A", "the pages of a short row are padded with 0, not -1")
def padded_with_zero(**inputs: Any) -> Any:
    """Zero is a page."""
    state = locks_decode_paged(**inputs)
    return {**state, "pages": np.maximum(state["pages"], 0)}
