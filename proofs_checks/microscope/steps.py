"""Walking a head trace: blocks of steps, what each step sees, and exact scores computed once per block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from proofs_checks.microscope.selectors import EXACT, PageContext, group_scores, open_page_score
from proofs_checks.microscope.source import HeadTrace
from refimpl.checks import FloatArray

BLOCK = 32
"""Steps that are scored together; the memory of a measurement depends on this, not on the number of steps."""


@dataclass
class Block:
    """A run of steps with their exact page scores."""

    queries: FloatArray
    """[n, G, d]."""
    tokens: list[int]
    """Visible tokens of each step."""
    exact: FloatArray
    """[n, G, P]; a step uses the first tokens // B of them."""
    open_scores: FloatArray
    """[n, G], exact log-mass of the open page; -inf where there is none."""


def page_context(trace: HeadTrace, page_size: int) -> PageContext:
    """Pages that are complete at the last captured step; a summary of a page never depends on later tokens.

    A sequence-wide basis is fitted to all of them, also for the first steps: the steps of a capture lie close together.
    """
    visible = int(trace.positions.max()) + 1 if trace.steps else 0
    pages, d = visible // page_size, trace.head_size
    return PageContext(
        key_pages=trace.keys[: pages * page_size].reshape(pages, page_size, d),
        positions=np.arange(pages * page_size).reshape(pages, page_size),
        rope=trace.rope,
        key_moments=trace.key_moments,
        first_head_keys=None if trace.first_head_keys is None else trace.first_head_keys[: pages * page_size],
    )


def blocks(trace: HeadTrace, context: PageContext) -> Iterator[Block]:
    """The trace's steps in blocks, with exact scores."""
    page_size = context.key_pages.shape[1]
    for start in range(0, trace.steps, BLOCK):
        stop = min(start + BLOCK, trace.steps)
        queries = trace.queries(start, stop)
        tokens = [int(p) + 1 for p in trace.positions[start:stop]]
        open_scores = [
            open_page_score(one, trace.keys[seen // page_size * page_size : seen])
            for one, seen in zip(queries, tokens, strict=True)
        ]
        exact = group_scores(queries, EXACT, context.key_pages)
        yield Block(queries, tokens, exact, np.stack(open_scores))


def masses(scores: FloatArray) -> FloatArray:
    """Softmax over the last axis, rows of -inf give 0.

    >>> masses(np.log([1.0, 3.0])).round(12).tolist()
    [0.25, 0.75]
    """
    top = scores.max(axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isneginf(top), 0.0, top))
    total = weights.sum(axis=-1, keepdims=True)
    result: FloatArray = np.divide(weights, total, out=np.zeros_like(weights), where=total > 0)
    return result
