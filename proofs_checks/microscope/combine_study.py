"""A synthetic study: what the peak-normalised combine of locks-kv 0.1.4 costs against the paper's share average.

Corollary 3 says that the share average maximises the group-mean coverage among shared sets with the forced pages; the
package ranks by sum_g exp(s_g - max s_g) instead. Scores here are synthetic: independent normal log-masses per query
head, of the given spread, optionally with a common part shared by the group. `kvproof microscope --study combine`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.microscope.combine_rules import rule_pages
from proofs_checks.microscope.steps import masses


@dataclass(frozen=True)
class StudyRow:
    """What one spread of scores gave."""

    group: int
    pages: int
    kept: int
    spread: float
    common: float
    cases: int
    different_sets: int
    mean_coverage: dict[str, float]
    """Group-mean coverage by rule, averaged over cases."""
    worst_head: dict[str, float]
    """Coverage of the least covered head by rule, averaged over cases."""
    mean_loss: float
    """Group-mean coverage that peak normalisation loses against the share average, averaged over cases."""
    largest_loss: float
    smallest_loss: float
    """Never below zero beyond rounding, by Corollary 3."""


def combine_study(
    *, group: int = 4, pages: int = 64, kept: int = 8, spread: float = 2.0, common: float = 0.0, cases: int = 2000,
    seed: int = 0,
) -> StudyRow:  # fmt: skip
    """Compare the rules on ``cases`` random groups; ``common`` in 0..1 is the correlation of the heads' scores.

    >>> row = combine_study(group=2, pages=8, kept=4, cases=50)
    >>> row.smallest_loss > -1e-12 and row.mean_loss >= 0
    True
    """
    generator = np.random.default_rng(seed)
    rules = ("share_average", "peak_normalised", "group_max", "group_mass")
    means, worst = ({rule: np.zeros(cases) for rule in rules} for _ in range(2))
    different = 0
    for case in range(cases):
        own = generator.standard_normal((group, pages))
        scores = spread * (np.sqrt(common) * generator.standard_normal(pages) + np.sqrt(1 - common) * own)
        shares, chosen = masses(scores), rule_pages(scores, kept)
        for rule in rules:
            coverage = shares[:, chosen[rule]].sum(axis=1)
            means[rule][case], worst[rule][case] = coverage.mean(), coverage.min()
        different += not np.array_equal(chosen["share_average"], chosen["peak_normalised"])
    loss = means["share_average"] - means["peak_normalised"]
    return StudyRow(
        group, pages, kept, spread, common, cases, different,
        {rule: float(means[rule].mean()) for rule in rules}, {rule: float(worst[rule].mean()) for rule in rules},
        float(loss.mean()), float(loss.max()), float(loss.min()),
    )  # fmt: skip


def study_rows(cases: int = 2000) -> list[StudyRow]:
    """The study's grid: spreads of 1, 2, 4 and 8 nats, independent heads and heads that share half their variance."""
    return [combine_study(spread=s, common=c, cases=cases) for c in (0.0, 0.5) for s in (1.0, 2.0, 4.0, 8.0)]
