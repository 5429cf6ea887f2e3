"""Cases of page scores by other summaries, and of Quest's pages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from refimpl.baselines.codebook import codebook_encode, codebook_train
from refimpl.baselines.moment_core import moment_build_summary
from refimpl.baselines.quest import quest_envelope, quest_scores

WIDE = ("float32", "float64")


def envelope_cases() -> list[Case]:
    """Cases of `quest_envelope`."""
    stage = Family("quest_envelope", "A")
    one_sided = "an open page of 3: keys of one sign, so that a zero that pads the page shows"
    return [
        stage.exact("open-page", "A", one_sided, partial(_one_sided, 35)),
        stage.exact("open-page-of-one", "A", "one token is its own minimum and maximum", partial(_one_sided, 33)),
        stage.exact("complete-pages", "A", "no open page is added", partial(_one_sided, 32)),
        stage.exact("lowest-first", "H", "the minimum comes first", lambda: _two_keys(16)),
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
        stage.exact("sign-of-query", "H", sign, partial(_whole, (2.0, -3.0, 4.0, -1.0))),
        stage.exact(
            "zero-channels", "H", "channels where the query is 0 count nothing", partial(_whole, (0, 5, 0, -2))
        ),
        stage.exact("zero-query", "H", "a zero query scores 0", partial(_whole, (0, 0, 0, 0))),
        stage.exact("no-scale", "B", "64 equal channels: the score is 64, not 8", _ones),
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
        keywords = {k: more.pop(k) for k in ("recent_page",) if k in more}
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
        case("recent-page", "the last page is kept inside the budget", _ends_worst(), 64, recent_page=True),
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


def centroid_cases() -> list[Case]:
    """Cases of `centroid_scores`."""
    stage = Family("centroid_scores", "H")
    return [
        stage.probe("log-of-tokens", "B", "a zero query: ln 5 for a page of 5", partial(_centroid, 5, sharpness=0.0)),
        stage.exact("one-token", "B", "a page of one token is its logit", _one_logit),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_centroid, 16, d=80)),
        stage.probe("softmax-scale", "B", "an explicit scale", partial(_centroid, 16, softmax_scale=0.5)),
        stage.probe("heads", "G", "KV heads of different centroids", partial(_centroid, 7, H=3)),
        stage.general("G8-d128", "random centroids", partial(_centroid, 16, d=128, G=8)),
    ]


def _centroid(n: int, H: int = 2, G: int = 3, d: int = 64, sharpness: float = 2.0, **more: Any) -> Inputs:
    rng = generator("centroid", f"{n},{H},{G},{d}")
    centroid = rng.normal(size=(H, 5, d)) + np.arange(H)[:, None, None]
    return {"queries": sharpness * rng.normal(size=(H, G, d)), "centroid": centroid, "page_tokens": n, **more}


def _one_logit() -> Inputs:
    inputs = _centroid(1)
    whole = np.rint(2 * inputs["centroid"])
    return {**inputs, "queries": 8 * np.rint(inputs["queries"]), "centroid": whole}


def moment_cases() -> list[Case]:
    """Cases of `moment_scores`."""
    stage = Family("moment_scores", "H")
    return [
        stage.probe("log-of-tokens", "B", "a zero query: ln 5 for a page of 5", partial(_moments, 5, sharpness=0.0)),
        stage.probe("half-the-variance", "H", "deviations alone: scale^2 / 2n, not scale^2 / n", _variance),
        stage.probe(
            "scale-squared", "B", "an explicit scale: squared in the second term", partial(_moments, 16, s=0.5)
        ),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_moments, 16, d=80)),
        stage.probe("heads", "G", "KV heads of different moments", partial(_moments, 9, H=3)),
        stage.general("G8-d128-r8", "the papers' shape", partial(_moments, 16, d=128, G=8)),
        stage.general("capture-needle", "the real needle prompt", _needle_moments),
    ]


def _moments(n: int, H: int = 2, G: int = 3, d: int = 64, sharpness: float = 2.0, s: float | None = None) -> Inputs:
    rng = generator("moments", f"{n},{H},{G},{d}")
    pages = rng.normal(size=(H, 4, n, d)) + np.arange(1, H + 1)[:, None, None, None]
    core = moment_build_summary(key_pages=pages, rank=min(n - 1, 8))
    extra = {} if s is None else {"softmax_scale": s}
    return {"queries": sharpness * rng.normal(size=(H, G, d)), **core, "page_tokens": n, **extra}


def _variance() -> Inputs:
    inputs = _moments(16)
    return {**inputs, "centroid": np.zeros_like(inputs["centroid"])}


def _needle_moments() -> Inputs:
    part = needle_slice(2, 2)
    pages = part["keys"][:, :800].reshape(3, 50, 16, 64).astype(np.float64)
    return {"queries": part["queries"], **moment_build_summary(key_pages=pages, rank=8), "page_tokens": 16}


def shared_cases() -> list[Case]:
    """Cases of `shared_basis_scores`."""
    stage = Family("shared_basis_scores", "H")
    return [
        stage.probe("natural-log", "B", "5 logits of 0: ln 5", partial(_shared, B=5, sharpness=0.0)),
        stage.probe("mean-counts", "H", "no coordinates: the query's logit with the mean", _mean_only),
        stage.probe("coordinates-count", "H", "mean 0: coordinates alone", _no_mean),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_shared, d=80)),
        stage.probe("heads", "G", "every KV head has its own basis", partial(_shared, H=3)),
        stage.relation("page-order", "pages are scored one by one", _shared, _turn_pages, _flip),
        stage.general("G8-d128-r48", "rank 48", partial(_shared, G=8, d=128, r=48)),
        stage.general("r160", "more directions than tokens", partial(_shared, H=1, G=1, d=192, r=160)),
    ]


def _shared(H: int = 2, G: int = 3, d: int = 64, r: int = 8, B: int = 16, sharpness: float = 2.0) -> Inputs:
    rng = generator("shared", f"{H},{G},{d},{r},{B}")
    return {
        "queries": sharpness * rng.normal(size=(H, G, d)),
        "mean": rng.normal(size=(H, d)),
        "basis": np.linalg.qr(rng.normal(size=(H, d, r)))[0],
        "coordinates": 3 * rng.normal(size=(H, 6, B, r)) / np.arange(1, r + 1),
    }


def _mean_only() -> Inputs:
    inputs = _shared()
    return {**inputs, "coordinates": 0 * inputs["coordinates"]}


def _no_mean() -> Inputs:
    inputs = _shared()
    return {**inputs, "mean": 0 * inputs["mean"]}


def _turn_pages(inputs: Inputs) -> Inputs:
    return {**inputs, "coordinates": inputs["coordinates"][:, ::-1].copy()}


def codebook_cases() -> list[Case]:
    """Cases of `codebook_scores`."""
    stage = Family("codebook_scores", "H")
    return [
        stage.probe("natural-log", "B", "5 logits of 0: ln 5", partial(_codebook, B=5, sharpness=0.0)),
        stage.probe("index-above-127", "D", "256 codewords: an index is no signed byte", partial(_codebook, N=256)),
        stage.probe("tokens-count", "H", "a codeword counts as often as tokens name it", _repeated),
        stage.probe("heads", "G", "every KV head has its own codebook", partial(_codebook, H=3)),
        stage.general("G8-N128-d128", "the papers' shape", partial(_codebook, G=8, d=128, N=128)),
        stage.general("capture-needle", "a codebook of the real needle prompt", _needle_codebook),
    ]


def _codebook(H: int = 2, G: int = 3, d: int = 64, N: int = 32, B: int = 16, sharpness: float = 2.0) -> Inputs:
    rng = generator("codebook", f"{H},{G},{d},{N},{B}")
    return {
        "queries": sharpness * rng.normal(size=(H, G, d)),
        "codes": rng.integers(0, N, size=(H, 6, B)),
        "codewords": rng.normal(size=(H, N, d)),
    }


def _repeated() -> Inputs:
    """Page p names codeword 0 in p + 1 of 8 tokens, the others a word 60 nats below: the score is ln(p + 1)."""
    codes = np.array([[[0] * (p + 1) + [1] * (7 - p) for p in range(8)]])
    words = np.zeros((1, 2, 64))
    words[0, 1, 0] = -60.0
    queries = np.zeros((1, 1, 64))
    queries[..., 0] = 8.0
    return {"queries": queries, "codes": codes, "codewords": words}


def _needle_codebook() -> Inputs:
    part = needle_slice(2, 2)
    keys = part["keys"][:, :480].astype(np.float64)
    words = codebook_train(keys=keys, entries=32, sweeps=3)
    codes = codebook_encode(keys=keys, codewords=words).reshape(3, 30, 16)
    return {"queries": part["queries"], "codes": codes, "codewords": words}
