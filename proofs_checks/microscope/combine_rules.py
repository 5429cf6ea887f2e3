"""Combine: what each way of folding a group's exact scores into one selection costs (Locks Table D.17)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from proofs_checks.microscope.accumulate import Histogram, Mean, Results
from proofs_checks.microscope.selectors import PageContext
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import blocks, masses
from refimpl.checks import FloatArray, IntArray
from refimpl.locks.combine import COMBINES, locks_page_shares
from refimpl.locks.dialect import LOCKS_KV_0_1_4, page_values
from refimpl.locks.oracle import per_head_pages, per_head_traffic
from refimpl.locks.select import select_one

CoverageHistogram = partial(Histogram, 0.0, 1.0 + 1e-9, 100_000)


def rule_pages(scores: FloatArray, kept: int) -> dict[str, IntArray]:
    """Shared pages [K] of every rule for one KV head's scores [G, P] of all pages, sink and most recent page forced.

    >>> rule_pages(np.zeros((2, 4)), 3)["group_max"].tolist()
    [0, 1, 3]
    """
    values = {rule: locks_page_shares(scores=scores[None], combine=rule)[0] for rule in COMBINES}
    values["peak_normalised"] = page_values(LOCKS_KV_0_1_4, scores=scores[None])[0]
    return {rule: select_one(value, kept) for rule, value in values.items()}


def measure_combine(trace: HeadTrace, context: PageContext, budgets: Sequence[int], results: Results) -> None:
    """Add one KV head to Table D.17: coverage of every query head under each rule, on exact scores.

    "mean" averages over steps and heads, "worst" averages the group's least covered head, "p5" is the 5th percentile
    over steps and heads; "reads" is the per-head oracle's union in units of the shared selection's tokens.
    """
    page_size = context.key_pages.shape[1]
    for block in blocks(trace, context):
        for step, seen in enumerate(block.tokens):
            scores = block.exact[step, :, : seen // page_size]
            if seen % page_size:
                scores = np.concatenate([scores, block.open_scores[step, :, None]], axis=1)
            shares, pages = masses(scores), scores.shape[1]
            for budget in budgets:
                kept = -(-budget // page_size)
                if not 2 < kept < pages:
                    continue
                covered = {rule: shares[:, p].sum(axis=1) for rule, p in rule_pages(scores, kept).items()}
                own = per_head_pages(scores=scores[None], budget_tokens=budget, page_size=page_size)
                covered["per_head_oracle"] = np.take_along_axis(shares, own[0], axis=1).sum(axis=1)
                traffic = per_head_traffic(pages=own, tokens=seen, page_size=page_size)
                for rule, coverage in covered.items():
                    key = ("combine", trace.capture, budget, rule)
                    results.at(Mean, *key, "mean").add(coverage)
                    results.at(Mean, *key, "worst").add(coverage.min())
                    results.at(CoverageHistogram, *key, "p5").add(coverage)
                reads = traffic["read_tokens"] / traffic["attended_tokens"].mean()
                results.at(Mean, "combine", trace.capture, budget, "per_head_oracle", "reads").add(reads)
