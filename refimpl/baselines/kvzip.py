"""KVzip: context tokens pruned by how much the model looks at them when it repeats the context (scores given)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.attention import scale_of
from refimpl.baselines.choose import best
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, number, real, whole
from refimpl.locks.combine import head_shares

LEVELS = ("pair", "uniform")


def kvzip_scores(
    *, queries: Any, prefix_keys: Any, chunk_keys: Any, repeat_keys: Any, softmax_scale: float | None = None
) -> FloatArray:
    """Scores [H, T] of one context chunk: the largest weight that any query of the repetition gives a token.

    Args:
        queries: [H, G, n, d], of the n repeated tokens. prefix_keys: [H, S, d], the system prompt's.
        chunk_keys: [H, T, d], the chunk's in the cache. repeat_keys: [H, n, d], the repetition's own, causal.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, or no query.

    Source: Locks App. C.1 (KVzip); the softmax runs over these keys only, not over the rest of the context.

    >>> kvzip_scores(queries=[[[[0.0]]]], prefix_keys=[[[1.0]]], chunk_keys=[[[2.0], [3.0]]],
    ...              repeat_keys=[[[4.0]]]).tolist()
    [[0.25, 0.25]]
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G n d", sizes)
    parts = ((prefix_keys, "prefix_keys", "H S d"), (chunk_keys, "chunk_keys", "H T d"))
    before = [real(name, array, axes, sizes) for array, name, axes in parts]
    keys = np.concatenate([*before, real("repeat_keys", repeat_keys, "H n d", sizes)], axis=1)
    S, T, n = sizes["S"], sizes["T"], sizes["n"]
    if sizes["G"] * n == 0:
        raise ArgumentError(f"queries: expected at least one, got G={sizes['G']}, n={n}")
    logits = scale_of(softmax_scale, sizes["d"]) * np.einsum("hgnd,htd->hgnt", queries, keys, optimize=True)
    hidden = np.arange(S + T + n) > S + T + np.arange(n)[:, None]
    weights = head_shares(np.where(hidden, -np.inf, logits))[..., S : S + T]
    scores: FloatArray = weights.max(axis=(1, 2))
    return scores


def kvzip_keep(*, scores: Any, ratio: float, level: str = "pair") -> NDArray[np.uint8]:
    """Which context tokens stay, [L, H, T] of 0 and 1.

    Args:
        scores: [L, H, T] over layers, KV heads and context tokens.
        ratio: share that stays, >= 0; 1 or more keeps all.
        level: "pair" has one threshold for all L H T scores, the one at place max(floor(N ratio) - 1, 0) of the falling
            order, and keeps what lies strictly above it: floor(N ratio) - 1 without ties, fewer with (AMB-63).
            "uniform" keeps the best floor(T ratio) of every head, the lower index first.

    Raises:
        ArgumentError: a shape, a non-finite score, a negative ratio, or another level.

    Source: Locks App. C.1 (KVzip bounds the retained context: ratio = b / T).

    >>> scores = [[[0.1, 0.4, 0.3, 0.2]]]
    >>> kvzip_keep(scores=scores, ratio=0.75).tolist(), kvzip_keep(scores=scores, ratio=0.75, level="uniform").tolist()
    ([[[0, 1, 1, 0]]], [[[0, 1, 1, 1]]])
    """
    sizes = Sizes()
    scores = real("scores", scores, "L H T", sizes)
    ratio = number("ratio", ratio, low=0)
    rule = choice("level", level, LEVELS)
    if ratio >= 1 or scores.size == 0:
        return np.ones(scores.shape, dtype=np.uint8)
    if rule == "pair":
        falling = np.sort(scores, axis=None)[::-1]
        return (scores > falling[max(int(scores.size * ratio) - 1, 0)]).astype(np.uint8)
    kept = np.zeros(scores.shape, dtype=np.uint8)
    np.put_along_axis(kept, best(scores, int(sizes["T"] * ratio)), 1, axis=-1)
    return kept


def kvzip_reads(budget_tokens: int, question_tokens: int, generated_tokens: int) -> int:
    """Tokens read per step: b + |q| + g, since neither question nor answer is evicted (Locks C.1).

    The paper's factors of the nominal budget follow from about 90 to 100 such tokens.

    >>> round(kvzip_reads(64, 80, 10) / 64, 1), round(kvzip_reads(2048, 80, 20) / 2048, 2)
    (2.4, 1.05)
    """
    parts = (("budget_tokens", budget_tokens), ("question_tokens", question_tokens))
    return sum(whole(n, v, low=0) for n, v in (*parts, ("generated_tokens", generated_tokens)))
