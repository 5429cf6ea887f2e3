"""Errors: log-mass and group-share error of a summary, page by page (Locks Table B.2, Fig. 1a)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from proofs_checks.microscope.accumulate import LogHistogram, Results
from proofs_checks.microscope.selectors import PageContext, Selector, group_scores
from proofs_checks.microscope.source import HeadTrace
from proofs_checks.microscope.steps import blocks, masses
from refimpl.checks import FloatArray

DECADES = (-12, 0)
"""Fig. 1a's span of exact page shares, in powers of ten."""


class ShareMap:
    """Fig. 1a's picture: how often an exact share in one bin met a reconstructed share in another, 10 bins a decade.

    >>> shares = ShareMap()
    >>> shares.add(np.array([0.05]), np.array([0.5]))
    >>> [int(i[0]) for i in np.nonzero(shares.counts)]
    [106, 116]
    """

    def __init__(self) -> None:
        bins = 10 * (DECADES[1] - DECADES[0])
        self.counts = np.zeros((bins, bins), dtype=np.int64)

    def add(self, exact: FloatArray, estimated: FloatArray) -> None:
        """Take in pairs of shares."""
        index = [
            np.clip((np.log10(np.maximum(x, 1e-300)) - DECADES[0]) * 10, 0, len(self.counts) - 1).astype(int).ravel()
            for x in (exact, estimated)
        ]
        np.add.at(self.counts, (index[0], index[1]), 1)

    def merge(self, other: ShareMap) -> None:
        """Add the pairs of another map."""
        self.counts += other.counts


def measure_errors(
    trace: HeadTrace, context: PageContext, selectors: Sequence[Selector], results: Results, *, share_map: bool = False
) -> None:
    """Add one KV head to Table B.2: |estimated - exact| log-mass, and |log of their group-averaged shares' ratio|.

    Shares are over all pages a step sees, the open page with its exact score (AMB-01); errors are of complete pages.
    """
    page_size = context.key_pages.shape[1]
    for selector in selectors:
        summary = selector.build(context)
        for block in blocks(trace, context):
            estimated = group_scores(block.queries, selector, summary)
            for step, seen in enumerate(block.tokens):
                pages = seen // page_size
                exact, scores = block.exact[step, :, :pages], estimated[step, :, :pages]
                last = block.open_scores[step, :, None]
                shares = [masses(np.concatenate([x, last], axis=1)).mean(axis=0)[:-1] for x in (exact, scores)]
                results.at(LogHistogram, "errors", trace.capture, selector.name, "score").add(scores - exact)
                with np.errstate(divide="ignore"):
                    ratio = np.log(shares[1]) - np.log(shares[0])
                results.at(LogHistogram, "errors", trace.capture, selector.name, "share").add(ratio)
                if share_map:
                    results.at(ShareMap, "share map", trace.capture, selector.name).add(shares[0], shares[1])
