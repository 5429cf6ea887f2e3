"""Cases of the dialect locks-kv-0.1.4 for page values and selection."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_pages, locks_select


def share_cases() -> list[Case]:
    """Cases of `locks_page_shares`: sums over the group of exp(score - peak)."""
    stage = Family("locks_page_shares", "C")
    return [
        stage.probe("sum-of-peaks", "C", "two heads with peaks 4 and 8: values are sums of mass / peak", _two),
        stage.probe("peak-without-recent", "C", "the most recent page has no part in the peak", _recent),
        stage.probe("sink-in-peak", "C", "the sink page may be the peak", _sink),
        stage.probe("own-peak", "C", "query heads of very different mass weigh the same", _unequal),
        stage.probe("recent-has-none", "C", "the most recent page's own value is 0", _recent_only),
        stage.probe("one-page", "A", "P = 1: nothing to rank", partial(_scores, [[[3.0]], [[-2.0]]])),
        stage.probe("equal-scores-of-200", "B", "all scores 200: exp(200) overflows float32", _equal),
        stage.probe("empty-pages", "B", "-inf pages have value 0; a head of only -inf adds nothing", _infinite),
        stage.probe("scores-of-60000", "B", "scores of +-60000 differ by 1", _huge),
        stage.relation("score-shift", "a constant added to a query head's scores changes nothing", _random, _shift),
        stage.general("random", "G = 7, 40 pages", _random),
        next(c for c in locks_select.share_cases() if c.name == "capture-needle"),
    ]


def _scores(scores: Any) -> Inputs:
    return {"scores": np.asarray(scores, dtype=np.float64)}


def _two() -> Inputs:
    return _scores(np.log([[[4.0, 1.0, 2.0, 1.0], [2.0, 8.0, 1.0, 1.0]]]))


def _recent() -> Inputs:
    return _scores(np.log([[[4.0, 1.0, 2.0, 100.0], [2.0, 2.0, 1.0, 1.0]]]))


def _sink() -> Inputs:
    return _scores(np.log([[[100.0, 1.0, 2.0, 1.0], [2.0, 4.0, 1.0, 1.0]]]))


def _unequal() -> Inputs:
    return _scores(np.log([[[0.6, 0.3, 0.1, 0.1], [0.1, 0.2, 0.7, 0.1]]]) + np.array([[[30.0], [0.0]]]))


def _recent_only() -> Inputs:
    return _scores(np.log([[[1.0, 1.0, 50.0]]]))


def _equal() -> Inputs:
    return _scores(np.full((2, 3, 8), 200.0))


def _infinite() -> Inputs:
    scores = np.zeros((1, 2, 4))
    scores[0, 0, 1:3] = -np.inf
    scores[0, 1] = -np.inf
    return _scores(scores)


def _huge() -> Inputs:
    return _scores([[[60000.0, 59999.0, 59998.0, 0.0], [-60000.0, -60001.0, -60002.0, 0.0]]])


def _random() -> Inputs:
    """Multiples of 1/64, so that adding a small integer rounds nothing."""
    return _scores(np.round(generator("locks-kv", "values").normal(size=(2, 7, 40)) * 4 * 64) / 64)


def _shift(inputs: Inputs) -> Inputs:
    return {"scores": inputs["scores"] + np.arange(7.0)[None, :, None]}


def select_cases() -> list[Case]:
    """Cases of `locks_select_pages`: the budget counts pages between the sink and the most recent page."""
    stage = Family("locks_select_pages", "C")

    def probe(name: str, why: str, values: Any, budget: int, suspect: str = "C") -> Case:
        def inputs() -> Inputs:
            return {"shares": np.asarray(values), "budget_tokens": budget, "page_size": 16}

        return stage.probe(name, suspect, why, inputs, kind="set")

    ramp = np.append(np.arange(1.0, 9.0) / 64, 0.0)[None]
    return [
        probe("forced-besides", "budget 64: four pages, and sink and most recent besides", ramp, 64),
        probe("forced-once", "the sink has the largest value: it is kept once", _edges(), 64),
        probe("one-between", "budget 16: one page between the forced ones", ramp, 16),
        probe("one-token", "budget 1: still one page", ramp, 1),
        probe("ceil-budget", "budget 65 at page size 16: five pages", ramp, 65),
        probe("more-budget-than-pages", "3 pages: all of them", ramp[:, :3], 96),
        probe("one-page", "P = 1: that page once", [[0.0]], 16),
        probe("two-pages", "P = 2: both", [[0.5, 0.0]], 16),
        probe("four-of-four", "two pages between the forced ones, budget for two", [[0.2, 0.0, 0.8, 0.0]], 32),
        probe("all-equal", "all values equal: any middle pages, the forced ones kept", np.full((2, 9), 1.0), 64),
        probe("zeros-and-signs", "+0 and -0 are equal", [[0.0, -0.0, 0.0, 0.25, -0.0, 0.0, 0.0]], 32),
        probe("own-heads", "each KV head selects for itself", np.stack([ramp[0], ramp[0, ::-1]]), 48, suspect="G"),
        probe("tiny-values", "values of 2^-100 still rank", ramp * 2.0**-100, 64),
        *[c for c in locks_pages.select_cases() if not c.probe],
    ]


def _edges() -> Any:
    values = np.arange(9.0)[None] / 64
    values[0, 0], values[0, -1] = 4.0, 3.0
    return values
