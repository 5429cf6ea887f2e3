"""The exact-LSE oracle: selection by the exact score of every page, which reads every key.

Mirrors `refimpl.locks.oracle.exact_scores` and `oracle_decode`. The yardstick of a summary's selection, on the device.

    keys --exact_scores_kernel--> scores [H, G, P] --shares--> [H, P] --select--> pages [H, k] --attend--> output

Bytes moved: every key once (T d per KV head), scores 4 G P written once and read twice, then 2 k B d.
"""

from __future__ import annotations

from typing import Any

import torch

from fastimpl.attention import SplitAttention
from fastimpl.checks import FLOATS, Sizes, kept_pages, scale_of, whole
from fastimpl.locks.combine import PageShares
from fastimpl.locks.score import score_exactly
from fastimpl.locks.select import PageSelection
from fastimpl.paging import Cache, contiguous_cache


class OracleChain:
    """One oracle step of fixed shapes: buffers and launches; `run` allocates nothing and can be captured in a graph."""

    def __init__(
        self, queries: torch.Tensor, cache: Cache, kept: int, scale: float, combine: str = "share_average"
    ) -> None:
        N, H, G, _ = queries.shape
        tokens = cache.tokens if isinstance(cache.tokens, torch.Tensor) else None
        self.queries, self.cache, self.scale = queries, cache, scale
        self.scores = torch.empty((N, H, G, cache.pages), dtype=torch.float32, device=queries.device)
        self.shares = PageShares(self.scores, tokens, cache.page_size, combine)
        self.selection = PageSelection(self.shares.shares, tokens, cache.page_size, kept)
        self.attention = SplitAttention(queries, cache, self.selection.pages, scale)

    def run(self) -> dict[str, torch.Tensor]:
        """Launch: ``output`` [N, H, G, d] and ``pages`` [N, H, kept] in the chain's own buffers."""
        score_exactly(self.queries, self.cache, self.scale, self.scores)
        self.shares.run()
        pages = self.selection.run()
        return {"output": self.attention.run()["output"], "pages": pages}


def _bound(queries: Any, keys: Any, values: Any, page_size: Any, softmax_scale: float | None) -> Any:
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    keys = sizes.bind("keys", keys, "H T d", (queries.dtype,))
    values = sizes.bind("values", values, "H T d", (queries.dtype,))
    cache = contiguous_cache(keys, values, whole("page_size", page_size, 1))
    return queries[None], cache, scale_of(softmax_scale, sizes["d"])


def exact_scores(*, queries: Any, keys: Any, page_size: int, softmax_scale: float | None = None) -> torch.Tensor:
    """Exact scores [H,G,P] in nats of all pages of keys [H,T,d], the open page's last (Locks Lemma 1)."""
    queries, cache, scale = _bound(queries, keys, keys, page_size, softmax_scale)
    scores = torch.empty((*queries.shape[:3], cache.pages), dtype=torch.float32, device=queries.device)
    score_exactly(queries, cache, scale, scores)
    return scores[0]


def oracle_decode(
    *, queries: Any, keys: Any, values: Any, budget_tokens: int, page_size: int, combine: str = "share_average",
    softmax_scale: float | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """`locks_decode` with exact scores: queries [H,G,d], keys and values [H,T,d] -> output [H,G,d], pages [H,min(k,P)].

    Raises ArgumentError as `locks_decode` does, and for an unknown ``combine``. (Locks Sec. 5, App. C)
    """
    queries, cache, scale = _bound(queries, keys, values, page_size, softmax_scale)
    kept = kept_pages(budget_tokens, cache.page_size, cache.pages)
    step = OracleChain(queries, cache, kept, scale, combine).run()
    return {name: value[0] for name, value in step.items()}
