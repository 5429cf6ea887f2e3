"""Departures: what each documented switch of a dialect costs in the paper's own terms, one switch at a time.

Coverage is of the exact attention: the group mean (what Cor. 3 maximises) and the group's least covered head. "other
pages" is the part of the paper's set that the departure does not choose. All run at the same nominal budget, so the
switch that leaves the forced pages out of the budget reads two pages more.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.microscope.accumulate import Mean, Results
from proofs_checks.microscope.selectors import PageContext
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import Block, blocks, masses
from refimpl.checks import FloatArray, IntArray
from refimpl.locks.dialect import (
    LOCKS_KV_0_1_4,
    PAPER,
    Profile,
    build_summary,
    departures,
    page_values,
    quantize_summary,
    score_pages,
    select_pages,
)
from refimpl.locks.quantize import locks_dequantize_summary


def profiles() -> list[Profile]:
    """The paper, each departure alone, and all of them together."""
    return [PAPER, *departures(LOCKS_KV_0_1_4).values(), LOCKS_KV_0_1_4]


def measure_departures(trace: HeadTrace, context: PageContext, rank: int, budget: int, results: Results) -> None:
    """Add one KV head: every profile's own summary (int4 basis), scores and selection, at one budget."""
    page_size = context.key_pages.shape[1]
    summaries: dict[Profile, dict[str, Any]] = {}
    for profile in profiles():
        built = build_summary(profile, key_pages=context.key_pages[None], rank=rank)
        summaries[profile] = locks_dequantize_summary(**quantize_summary(profile, **built, basis_bits=4))
    for block in blocks(trace, context):
        for step, seen in enumerate(block.tokens):
            exact = _all_pages(block.exact[step, :, : seen // page_size], block, step, seen % page_size)
            if not 2 * page_size <= budget < (exact.shape[1] - 2) * page_size:
                continue
            share, paper = masses(exact), None
            for profile, summary in summaries.items():
                scores = score_pages(profile, queries=block.queries[step][None], **summary)[0, :, : seen // page_size]
                chosen = _selection(profile, _all_pages(scores, block, step, seen % page_size), budget, page_size)
                paper = chosen if paper is None else paper
                coverage = share[:, chosen].sum(axis=1)
                key = ("departures", trace.capture, budget, profile.name)
                results.at(Mean, *key, "mean").add(coverage)
                results.at(Mean, *key, "worst").add(coverage.min())
                results.at(Mean, *key, "other pages").add(1 - np.isin(paper, chosen).mean())


def _all_pages(scores: FloatArray, block: Block, step: int, open_tokens: int) -> FloatArray:
    return np.concatenate([scores, block.open_scores[step, :, None]], axis=1) if open_tokens else scores


def _selection(profile: Profile, scores: FloatArray, budget: int, page_size: int) -> IntArray:
    values = page_values(profile, scores=scores[None])
    return select_pages(profile, values=values, budget_tokens=budget, page_size=page_size)[0]
