"""Wrong evictions: KVzip, and caches cut to a budget."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.baselines.choose import evict_tokens
from refimpl.baselines.kvzip import kvzip_keep

Z = "kvzip_keep"


@mutant("kvzip-pair-per-head", Z, "C", "the pair level has a threshold in every head")
def pair_per_head(*, scores: Any, ratio: float, level: str = "pair") -> Any:
    """Uniform budgets."""
    return kvzip_keep(scores=scores, ratio=ratio, level="uniform")


@mutant("kvzip-threshold-one-late", Z, "C", "the threshold is the score after the last that is kept")
def one_late(*, scores: Any, ratio: float, level: str = "pair") -> Any:
    """Two more than the original."""
    if level == "uniform" or ratio >= 1:
        return kvzip_keep(scores=scores, ratio=ratio, level=level)
    falling = np.sort(scores, axis=None)[::-1]
    return (scores > falling[min(int(scores.size * ratio) + 1, scores.size - 1)]).astype(np.uint8)


@mutant("kvzip-evicts-the-share", Z, "C", "the ratio is taken for the share that goes")
def inverted(*, scores: Any, ratio: float, level: str = "pair") -> Any:
    """1 - ratio."""
    return kvzip_keep(scores=scores, ratio=max(1 - ratio, 0.0), level=level)


V = "evict_tokens"


@mutant("evict-protected-on-top", V, "C", "protected tokens come on top of the budget")
def protected_on_top(*, scores: Any, budget_tokens: int, first_tokens: int = 0, recent_tokens: int = 0) -> Any:
    """A larger cache."""
    more = budget_tokens + first_tokens + recent_tokens
    return evict_tokens(scores=scores, budget_tokens=more, first_tokens=first_tokens, recent_tokens=recent_tokens)


@mutant("evict-recent-not-protected", V, "C", "recent tokens compete by score")
def not_protected(*, scores: Any, budget_tokens: int, first_tokens: int = 0, recent_tokens: int = 0) -> Any:
    """Plain top-k."""
    return evict_tokens(scores=scores, budget_tokens=budget_tokens, first_tokens=first_tokens)


@mutant("evict-first-taken-for-recent", V, "C", "the oldest tokens are protected instead of the newest")
def wrong_end(*, scores: Any, budget_tokens: int, first_tokens: int = 0, recent_tokens: int = 0) -> Any:
    """An index from the wrong end."""
    return evict_tokens(
        scores=scores, budget_tokens=budget_tokens, first_tokens=recent_tokens, recent_tokens=first_tokens
    )


@mutant("evict-worst-kept", V, "C", "the tokens of least score stay")
def worst(*, scores: Any, budget_tokens: int, first_tokens: int = 0, recent_tokens: int = 0) -> Any:
    """Ascending order."""
    return evict_tokens(
        scores=-scores, budget_tokens=budget_tokens, first_tokens=first_tokens, recent_tokens=recent_tokens
    )
