"""One decode step of a GQA group under Locks' unquantised summaries: what Theorem 1 speaks of."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np

from proofs_checks.statements.guard import UNIT, log_sum_exp_guard
from proofs_checks.statements.locks_sandwich import log_shares
from proofs_checks.statements.sampling import normal, page, small
from proofs_checks.statements.statement import Instance, memo, require
from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray, IntArray
from refimpl.locks.decode import locks_scores
from refimpl.locks.score import exact_page_scores
from refimpl.locks.select import locks_select_pages
from refimpl.paging import split_pages


def needs_group(instance: Instance) -> None:
    """Hypotheses of Theorem 1: a group of queries, two pages or more of one KV head, a rank that fits, k >= 2.

    >>> needs_group({"queries": np.zeros((1, 1, 2)), "keys": np.zeros((1, 2, 2)), "rank": 1, "page_size": 2, "k": 2})
    Traceback (most recent call last):
    ...
    proofs_checks.statements.statement.HypothesisError: hypothesis 'sink and most recent are two pages' fails: P = 1
    """
    queries, keys = instance["queries"], instance["keys"]
    size = instance["page_size"]
    tokens, width = keys.shape[1:]
    require(queries.ndim == 3 and queries.shape[1] >= 1, "G >= 1", queries.shape)
    require(1 <= instance["rank"] <= min(size, width), "1 <= r <= min(B, d)", f"r = {instance['rank']}")
    require(-(-tokens // size) >= 2, "sink and most recent are two pages", f"P = {-(-tokens // size)}")
    require(instance["k"] >= 2, "k >= 2", f"k = {instance['k']}")


class Retention:
    """Exact and estimated scores, the two selections, and their group-average coverages, for a batch of N steps."""

    def __init__(self, instance: Instance) -> None:
        self.queries, self.keys = instance["queries"], instance["keys"]  # [N, G, d], [N, T, d]
        self.rank, self.page_size, self.k = instance["rank"], instance["page_size"], instance["k"]

    @cached_property
    def exact(self) -> FloatArray:
        """Exact log-masses of all pages, the open page last. [N, G, P]."""
        complete, open_page = split_pages(self.keys, self.page_size)
        scores = exact_page_scores(queries=self.queries, key_pages=complete)
        if open_page.shape[1]:
            last = exact_page_scores(queries=self.queries, key_pages=open_page[:, None])
            scores = np.concatenate([scores, last], axis=-1)
        return scores

    @cached_property
    def estimated(self) -> FloatArray:
        """Scores of Eq. (1), the open page's exact score last (AMB-01). [N, G, P]."""
        return locks_scores(self.queries, self.keys, self.rank, None, self.page_size, None)

    @cached_property
    def eta(self) -> FloatArray:
        """The worst log-mass error over the group and the pages. [N]."""
        worst: FloatArray = np.abs(self.estimated - self.exact).max(axis=(-2, -1))
        return worst

    def select(self, scores: FloatArray) -> IntArray:
        """The reference's selection on the logs of the averaged shares (they never underflow). [N, K]."""
        return locks_select_pages(
            shares=log_shares(scores), budget_tokens=self.k * self.page_size, page_size=self.page_size
        )

    def log_coverage(self, pages: IntArray) -> FloatArray:
        """Log of the group-average exact coverage of ``pages``. [N]."""
        return log_sum_exp(np.take_along_axis(log_shares(self.exact), pages, axis=-1))

    @cached_property
    def best(self) -> FloatArray:
        """Log coverage of the exact selection. [N]."""
        return self.log_coverage(self.select(self.exact))

    @cached_property
    def chosen(self) -> IntArray:
        """The pages that the estimates select. [N, K]."""
        return self.select(self.estimated)

    @cached_property
    def loss(self) -> FloatArray:
        """Nats of coverage lost against the exact selection. [N]."""
        return self.best - self.log_coverage(self.chosen)

    @cached_property
    def share_guard(self) -> FloatArray:
        """Rounding of any log-share or log-coverage, both sets of scores taken as exact. [N]."""
        total = np.zeros(len(self.queries))
        for scores in (self.exact, self.estimated):
            spread = 2 * np.abs(scores).max(axis=(-2, -1)) + np.log(scores.shape[1] * scores.shape[2]) + 1
            count = scores.shape[1] + scores.shape[2]
            total = total + log_sum_exp_guard(scores).max(axis=-1) + (count + 40) * UNIT * 2 * spread
        return 2 * total


def retention(instance: Instance) -> Retention:
    """The step of an instance, built once."""
    step: Retention = memo(instance, "_step", lambda: Retention(instance))
    return step


def sample_group(rng: np.random.Generator, count: int) -> Instance:
    """Random steps: 1 to 3 queries, 2 to 6 complete pages, any rank and budget."""
    size, width, pages = small(rng, 1, 4), small(rng, 1, 4), small(rng, 2, 6)
    tokens = pages * size
    values = rng.standard_normal((count, tokens, width))
    return {
        "queries": normal(rng, count, small(rng, 1, 3), width, low=-1, high=1.5),
        "keys": page(rng, count, tokens, width),
        "values": values,
        "rank": small(rng, 1, min(size, width)),
        "page_size": size,
        "k": small(rng, 2, pages),
    }


def crowd_step(crowd: int, eta: float, heads: int) -> Instance:
    """The tightest step known for Theorem 1(ii): three keys per page, one kept mode, one dropped one.

    Channel 2 (kept, huge) puts all of a page's mass on its key 0. Channel g (dropped) pushes that key's logit for head
    g by what the rank-1 summary cannot see, so the estimate is the offset alone. The good page is pushed up in head 0,
    the bad one down in head 1, and a crowd of equal pages, which holds nearly all the mass of both heads, against each
    of them. The bad page's estimate wins by a hair, and stands above a crowd page's averaged share (a factor 2). With
    one head shares are monotone in scores, no crowd is needed, and the exponent is 2.
    """
    kept, dropped = np.array([1.0, 0.5, -1.5]), np.array([1.0, -1.25, 0.25])
    far = -200.0
    if heads == 1:
        rows = [(far, far, 0.0, 0.0), (0.0, far, eta, 0.0), (1e-9, far, -eta, 0.0)]
    else:
        level = np.log(2.001)
        rows = [(far, far, 0.0, 0.0), (level, far, eta, 0.0), (far, level + 1e-9, 0.0, -eta)]
        rows += [(0.0, 0.0, -eta, eta)] * crowd
    rows.append((far, far, 0.0, 0.0))
    keys = np.zeros((len(rows), 3, 3))
    for index, (first, second, push_first, push_second) in enumerate(rows):
        keys[index, :, 0] = first + push_first * dropped
        keys[index, :, 1] = second + push_second * dropped
        keys[index, :, 2] = 1000.0 * kept
    queries = np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])[:heads] * np.sqrt(3.0)
    flat = keys.reshape(1, -1, 3)
    return {"queries": queries[None], "keys": flat, "values": np.ones_like(flat), "rank": 1, "page_size": 3, "k": 3}


def on_capture_group(step: Any) -> Instance:
    """The capture step with one batch entry per KV head."""
    group: Instance = step.group()
    return group
