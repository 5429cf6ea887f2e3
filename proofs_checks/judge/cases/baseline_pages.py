"""Cases of Quest: envelopes, their scores, and the pages chosen by them."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from refimpl.baselines.quest import quest_envelope, quest_scores

WIDE = ("float32", "float64")


def envelope_cases() -> list[Case]:
    """Cases of `quest_envelope`."""
    stage = Family("quest_envelope", "A")
    one_sided = "an open page of 3: keys of one sign, so that a zero that pads the page shows"
    return [
        stage.exact("lowest-first", "H", "the minimum comes first", lambda: _two_keys(16)),
        stage.exact("open-page", "A", one_sided, partial(_one_sided, 35)),
        stage.exact("open-page-of-one", "A", "one token is its own minimum and maximum", partial(_one_sided, 33)),
        stage.exact("complete-pages", "A", "no open page is added", partial(_one_sided, 32)),
        stage.general("H2-B16-d64", "random keys", partial(_random_keys, 2, 51, 64, 16)),
        stage.general("B8-d80", "pages of 8", partial(_random_keys, 1, 29, 80, 8)),
        stage.general("capture-needle", "the real needle prompt", _needle_keys),
    ]


def _one_sided(T: int) -> Inputs:
    """Channels 0..3 lie in 1..9, channels 4..7 in -9..-1."""
    keys = generator("envelope", f"{T}").integers(1, 10, size=(2, T, 8)).astype(np.float64)
    keys[..., 4:] *= -1
    return {"keys": keys, "page_size": 16}


def _two_keys(B: int) -> Inputs:
    keys = np.zeros((1, B, 4))
    keys[:, 0], keys[:, 1] = 2.0, -1.0
    return {"keys": keys, "page_size": B}


def _random_keys(H: int, T: int, d: int, B: int) -> Inputs:
    return {"keys": generator("envelope", f"{H},{T},{d}").normal(size=(H, T, d)) + 0.5, "page_size": B}


def _needle_keys() -> Inputs:
    return {"keys": needle_slice(2, 0)["keys"][:, :701], "page_size": 16}


def envelope_score_cases() -> list[Case]:
    """Cases of `quest_scores`."""
    stage = Family("quest_scores", "H")
    sign = "a negative channel of the query takes the minimum"
    return [
        stage.exact("no-scale", "B", "64 equal channels: the score is 64, not 8", _ones),
        stage.exact("sign-of-query", "H", sign, partial(_whole, (2.0, -3.0, 4.0, -1.0))),
        stage.exact(
            "zero-channels", "H", "channels where the query is 0 count nothing", partial(_whole, (0, 5, 0, -2))
        ),
        stage.exact("zero-query", "H", "a zero query scores 0", partial(_whole, (0, 0, 0, 0))),
        stage.exact("negative-envelope", "H", "maxima below 0: no zero joins them", _below_zero),
        stage.probe("tf32-product", "I", "2049 is no TF32 number", _tf32, dtypes=WIDE),
        stage.probe("heads", "G", "KV heads of different envelopes, three query heads each", _heads),
        stage.relation("page-order", "pages are scored one by one", partial(_random, 2, 3, 7, 64), _reverse, _flip),
        stage.relation(
            "query-doubled",
            "twice the query, twice the score",
            partial(_random, 1, 4, 5, 80),
            lambda i: {**i, "queries": 2 * i["queries"]},
            lambda a: {"scores": 2 * a["scores"]},
        ),
        stage.general("G8-d128", "the papers' shape", partial(_random, 2, 8, 9, 128)),
        stage.general("G7-d80", "seven query heads", partial(_random, 1, 7, 6, 80)),
        stage.general("capture-needle", "the real needle prompt", _needle_envelope),
    ]


def _whole(query: tuple[float, ...]) -> Inputs:
    rng = generator("quest", "whole")
    low = rng.integers(-9, 5, size=(1, 3, 4)).astype(np.float64)
    high = low + rng.integers(1, 9, size=(1, 3, 4))
    return {"queries": np.array(query, dtype=np.float64)[None, None], "minimum": low, "maximum": high}


def _ones() -> Inputs:
    return {"queries": np.ones((1, 2, 64)), "minimum": np.zeros((1, 3, 64)), "maximum": np.ones((1, 3, 64))}


def _below_zero() -> Inputs:
    return {"queries": np.ones((1, 2, 64)), "minimum": np.full((1, 3, 64), -4.0), "maximum": np.full((1, 3, 64), -2.0)}


def _tf32() -> Inputs:
    queries = np.zeros((1, 1, 64))
    queries[..., 0] = 2049.0
    return {"queries": queries, "minimum": -np.ones((1, 2, 64)), "maximum": np.ones((1, 2, 64))}


def _heads() -> Inputs:
    inputs = _random(2, 3, 4, 64)
    shift = np.array([1.0, -2.0])[:, None, None]
    return {**inputs, "minimum": inputs["minimum"] + shift, "maximum": inputs["maximum"] + shift}


def _random(H: int, G: int, P: int, d: int) -> Inputs:
    rng = generator("quest", f"{H},{G},{P},{d}")
    ends = np.sort(rng.normal(size=(2, H, P, d)) + 0.3, axis=0)
    return {"queries": rng.normal(size=(H, G, d)), "minimum": ends[0], "maximum": ends[1]}


def _reverse(inputs: Inputs) -> Inputs:
    return {**inputs, **{name: inputs[name][:, ::-1].copy() for name in ("minimum", "maximum")}}


def _flip(answer: Any) -> Any:
    return {"scores": answer["scores"][..., ::-1]}


def _needle_envelope() -> Inputs:
    part = needle_slice(2, 2)
    return {"queries": part["queries"], **quest_envelope(keys=part["keys"], page_size=16)}


def page_choice_cases() -> list[Case]:
    """Cases of `quest_pages`."""
    stage = Family("quest_pages", "C")

    def case(name: str, why: str, scores: Any, budget: int, **more: Any) -> Case:
        keywords = {k: more.pop(k) for k in ("recent_pages",) if k in more}
        inputs = {"scores": np.asarray(scores, dtype=np.float64), "budget_tokens": budget, "page_size": 16, **keywords}
        return stage.probe(name, "C", why, lambda: inputs, kind="set", **more)

    ranks = generator("quest", "ranks").permutation(24).reshape(1, 2, 12).astype(np.float64)
    union = "two query heads prefer different pages: the KV head reads both sets"
    return [
        case("three-at-least", "a budget of one page keeps three", ranks, 16),
        case("floor-of-budget", "79 tokens are four pages, not five", ranks, 79),
        case("no-page-forced", "neither the first nor the last page is kept for its place", _ends_worst(), 64),
        case("union-of-heads", union, [[[9, 8, 7, 0, 0, 0, 1, 2], [0, 0, 0, 9, 8, 7, 2, 1]]], 48),
        case("per-query-head", "a head's pages follow its own scores", ranks, 64, judged=("pages",)),
        case("recent-page", "the last page is kept inside the budget", _ends_worst(), 64, recent_pages=1),
        case("all-pages", "a budget beyond the sequence keeps every page", ranks, 4096),
        case("two-pages", "fewer pages than three", ranks[..., :2], 16),
        case("negative-scores", "the largest is the least negative", ranks - 100, 64),
        stage.general("capture-needle", "real envelope scores", _needle_scores, kind="set"),
        stage.general("random-200-pages", "random scores of 200 pages", _random_scores, kind="set"),
    ]


def _ends_worst() -> Any:
    scores = np.arange(10.0)[None, None] + np.zeros((2, 2, 1))
    scores[..., 0] = scores[..., -1] = -5.0
    return scores


def _random_scores() -> Inputs:
    return {"scores": generator("quest", "200").normal(size=(2, 4, 200)), "budget_tokens": 512, "page_size": 16}


def _needle_scores() -> Inputs:
    return {"scores": quest_scores(**_needle_envelope()), "budget_tokens": 256, "page_size": 16}
