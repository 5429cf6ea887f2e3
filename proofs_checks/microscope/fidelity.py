"""Fidelity: what each query head's own selection keeps at a fraction of the pages (Locks Table B.1, Fig. 1b; AMB-27).

Protocol: per query head. The sink page, a recent window of complete pages and the tail (the open page) are always kept
and are no candidates; k = max(1, ceil(fraction x pages)) of the other pages are chosen. gamma is the mass of everything
kept, gamma_c the share of the contested mass that the chosen pages hold, recall the overlap with the exact choice, and
needle the part of the carrier pages chosen by the exact ranking that the estimate chooses too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from proofs_checks.microscope.accumulate import Mean, Results
from proofs_checks.microscope.selectors import PageContext, Selector, group_scores
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import blocks, masses
from refimpl.checks import FloatArray

FRACTIONS = (0.005, 0.01, 0.02, 0.05, 0.1)
"""0.5% and 5% are Table B.1's; the others draw Fig. 1b."""


def chosen(scores: FloatArray, k: int) -> NDArray[np.bool_]:
    """Mask [G, P] of the k best pages of every row; ties go to the lower page.

    >>> chosen(np.array([[1.0, 3.0, 3.0, 2.0]]), 1).tolist()
    [[False, True, False, False]]
    """
    mask = np.zeros(scores.shape, dtype=bool)
    np.put_along_axis(mask, np.argsort(-scores, axis=-1, kind="stable")[:, :k], True, axis=-1)
    return mask


def measure_fidelity(
    trace: HeadTrace,
    context: PageContext,
    selectors: Sequence[Selector],
    results: Results,
    fractions: Sequence[float] = FRACTIONS,
    window_pages: int = 1,
) -> None:
    """Add one KV head to Table B.1."""
    page_size = context.key_pages.shape[1]
    carriers = trace.carrier_pages(page_size)
    for selector in selectors:
        summary = selector.build(context)
        for block in blocks(trace, context):
            estimated = group_scores(block.queries, selector, summary)
            for step, seen in enumerate(block.tokens):
                pages = seen // page_size
                candidates = slice(1, pages - window_pages)
                exact, scores = block.exact[step, :, :pages], estimated[step, :, candidates]
                share = masses(np.concatenate([exact, block.open_scores[step, :, None]], axis=1))  # [G, P + 1]
                contested = share[:, candidates]
                is_carrier = np.isin(np.arange(pages)[candidates], carriers)
                for fraction in fractions:
                    k = max(1, math.ceil(fraction * pages))
                    if k >= contested.shape[1]:
                        continue
                    key = ("fidelity", trace.capture, fraction, selector.name)
                    kept, best = chosen(scores, k), chosen(exact[:, candidates], k)
                    held, total = (contested * kept).sum(axis=1), contested.sum(axis=1)
                    results.at(Mean, *key, "gamma_c").add(held / total)
                    results.at(Mean, *key, "gamma").add(held + share.sum(axis=1) - total)
                    results.at(Mean, *key, "recall").add((kept & best).sum(axis=1) / k)
                    results.at(Mean, *key, "needle").add(kept[best & is_carrier].astype(np.float64))
