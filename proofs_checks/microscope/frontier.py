"""Frontier: mass and recall of shared page selections, nothing forced (Locks Tables D.11 to D.16, Fig. 5; AMB-27).

Protocol: complete pages only; one set of k = ceil(b/B) pages per KV head, ranked by the share average ("share_average")
or by the group's pooled log-mass ("group_lse"), since the text says once the one and once the other. Mass is the group
average of the shares that the set holds; recall its overlap with the set that exact scores choose under the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from proofs_checks.microscope.accumulate import Mean, Results
from proofs_checks.microscope.selectors import PageContext, Selector, group_scores
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import BLOCK, Block, blocks, masses
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray, IntArray

RULES = ("share_average", "group_lse")


def ranking(scores: FloatArray, rule: str) -> IntArray:
    """Pages of scores [G, P] from best to worst under a rule; ties go to the lower page.

    >>> ranking(np.log([[1.0, 3.0, 2.0]]), "group_lse").tolist()
    [1, 2, 0]
    """
    value = masses(scores).mean(axis=0) if rule == "share_average" else log_sum_exp(scores.T)
    order: IntArray = np.argsort(-value, kind="stable")
    return order


def overlap_curve(order: IntArray, exact: IntArray) -> IntArray:
    """For every k = 1..P, how many of the first k pages of ``order`` are among the first k of ``exact``.

    >>> overlap_curve(np.array([2, 0, 1]), np.array([0, 1, 2])).tolist()
    [0, 1, 3]
    """
    place = np.empty_like(order)
    place[exact] = np.arange(len(exact))
    both = np.maximum(np.arange(len(order)), place[order])  # from which k on a page is in both sets
    curve: IntArray = np.cumsum(np.bincount(both, minlength=len(order)))
    return curve


Truth = list[tuple[FloatArray, dict[str, IntArray]]]
"""Per step: the exact group-averaged shares [P] and the exact ranking under each rule."""


def walk(trace: HeadTrace, context: PageContext) -> Iterator[tuple[Block, Truth]]:
    """The trace's blocks with the exact shares and rankings of their steps."""
    page_size = context.key_pages.shape[1]
    for block in blocks(trace, context):
        exact = [block.exact[step, :, : seen // page_size] for step, seen in enumerate(block.tokens)]
        yield block, [(masses(e).mean(axis=0), {rule: ranking(e, rule) for rule in RULES}) for e in exact]


def measure_frontier(
    trace: HeadTrace,
    context: PageContext,
    selectors: Sequence[Selector],
    budgets: Sequence[int],
    results: Results,
    table: str = "frontier",
) -> None:
    """Add one KV head to a frontier table: mass and recall of every selector at every budget that leaves a choice.

    One selector's summary is in memory at a time. The exact scores are kept if the trace is one block, and computed
    again for every selector otherwise, so that memory does not grow with the number of steps.
    """
    page_size = context.key_pages.shape[1]
    kept = list(walk(trace, context)) if trace.steps <= BLOCK else None
    for selector in selectors:
        summary = selector.build(context)
        for block, truth in walk(trace, context) if kept is None else kept:
            estimated = group_scores(block.queries, selector, summary)
            for step, (share, best) in enumerate(truth):
                for rule in RULES:
                    order = ranking(estimated[step, :, : len(share)], rule)
                    held, hits = np.cumsum(share[order]), overlap_curve(order, best[rule])
                    for budget in budgets:
                        k = -(-budget // page_size)
                        if 0 < k < len(share):
                            key = (table, trace.capture, rule, budget, page_size, selector.name)
                            results.at(Mean, *key, "mass").add(held[k - 1])
                            results.at(Mean, *key, "recall").add(hits[k - 1] / k)
        if selector.bytes_per_page is not None:
            size = np.float64(selector.bytes_per_page(context))
            results.at(Mean, "bytes", trace.capture, page_size, selector.name).add(size)
