"""Cases of scoring and combining pages."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import long_text_slice, needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_sizes, varied
from refimpl.locks.decode import deployed_summary, locks_scores

WIDE = ("float32", "float64")
SPECTRUM = [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7]


def score_cases() -> list[Case]:
    """Cases of `locks_score_pages`."""
    stage = Family("locks_score_pages", "H")
    return [
        stage.probe("natural-log", "B", "16 logits of 0: the score is ln 16, not 4", partial(_plain, 16)),
        stage.probe("centroid-counts", "H", "equal deviations around different centroids", _centroids),
        stage.probe("deviations-count", "H", "equal centroids, different deviations", _deviations),
        stage.probe("sum-not-maximum", "B", "16 logits of 1 outweigh one logit of 2", _sum_not_max),
        stage.probe("logits-of-60000", "B", "scores of +-60000: no overflow, no sentinel", _huge),
        stage.probe("tf32-product", "I", "2049 is no TF32 number", _tf32, dtypes=WIDE),
        stage.probe("head-map", "G", "KV heads of different centroids, three query heads each", _heads),
        stage.probe("scale-inside", "B", "an explicit scale stands inside the exponential", _scaled),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_random, 1, 3, 5, 80, 16, 8)),
        *locks_sizes.score_sizes(),
        *varied.score_sizes(),
        stage.relation("page-order", "pages are scored one by one", _seven_pages, _reverse, _flip),
        stage.general("G8-d128", "the papers' shape", partial(_random, 2, 8, 9, 128, 16, 8)),
        stage.general("G7-B8-r4", "seven query heads, B = 8, rank 4", partial(_random, 1, 7, 6, 64, 8, 4)),
        stage.general("B32-r15-d256", "B = 32, rank 15", partial(_random, 1, 2, 4, 256, 32, 15)),
        stage.general("capture-needle", "the real needle prompt, layer 18", _needle),
        stage.general("capture-8k", "511 real pages", _long, profile="default"),
    ]


def _plain(B: int) -> Inputs:
    return {
        "queries": np.zeros((1, 2, 64)),
        "centroid": np.ones((1, 3, 64)),
        "basis": np.broadcast_to(np.eye(64)[:, :2], (1, 3, 64, 2)),
        "coefficients": np.ones((1, 3, B, 2)),
    }


def _sum_not_max() -> Inputs:
    """Scale 1/8: a query of 8 e1 makes logits equal to the first coordinate."""
    inputs = _plain(16)
    inputs["queries"] = np.zeros((1, 2, 64))
    inputs["queries"][..., 0] = 8.0
    coefficients = np.zeros((1, 2, 16, 1))
    coefficients[0, 0], coefficients[0, 1, 0] = 1.0, 2.0
    basis = np.broadcast_to(np.eye(64)[:, :1], (1, 2, 64, 1))
    return {**inputs, "centroid": np.zeros((1, 2, 64)), "basis": basis, "coefficients": coefficients}


def _heads() -> Inputs:
    inputs = _random(2, 3, 4, 64, 16, 2)
    return {**inputs, "centroid": inputs["centroid"] + np.array([1.0, -2.0])[:, None, None]}


def _centroids() -> Inputs:
    inputs = _plain(8)
    inputs["queries"] = np.full((1, 2, 64), 0.5)
    return {**inputs, "centroid": np.array([0.25, 1.0, -2.0])[None, :, None] * np.ones((1, 3, 64))}


def _deviations() -> Inputs:
    """The same for all tokens of a page, so that nothing but the deviations' own term is asked for."""
    inputs = _plain(8)
    inputs["queries"] = np.full((1, 2, 64), 2.0)
    return {**inputs, "coefficients": np.array([0.0, 1.0, 2.0])[None, :, None, None] * np.ones((1, 3, 8, 2))}


def _tf32() -> Inputs:
    inputs = _sum_not_max()
    inputs["queries"][..., 0] = 2049.0
    return {**inputs, "centroid": np.broadcast_to(np.eye(64)[:1], (1, 2, 64)), "coefficients": np.zeros((1, 2, 16, 1))}


def _huge() -> Inputs:
    inputs = _sum_not_max()
    inputs["queries"][..., 0] = 480.0
    centroid = np.zeros((1, 2, 64))
    centroid[0, :, 0] = 1000.0, -1000.0
    return {**inputs, "centroid": centroid}


def _scaled() -> Inputs:
    return {**_random(1, 2, 4, 64, 16, 4), "softmax_scale": 0.25}


def _random(H: int, G: int, P: int, d: int, B: int, r: int) -> Inputs:
    rng = generator("score", f"{H},{G},{P},{d},{B},{r}")
    basis, _ = np.linalg.qr(rng.normal(size=(H, P, d, r)))
    sizes = np.asarray([*SPECTRUM, *[0.5] * 8][:r])
    return {
        "queries": rng.normal(size=(H, G, d)) * 2,
        "centroid": rng.normal(size=(H, P, d)),
        "basis": basis,
        "coefficients": rng.normal(size=(H, P, B, r)) * sizes,
    }


def _seven_pages() -> Inputs:
    return _random(2, 3, 7, 64, 16, 8)


def _reverse(inputs: Inputs) -> Inputs:
    flipped = {name: inputs[name][:, ::-1].copy() for name in ("centroid", "basis", "coefficients")}
    return {**inputs, **flipped}


def _flip(answer: Any) -> Any:
    return {"scores": answer["scores"][..., ::-1]}


def _needle() -> Inputs:
    part = needle_slice(2, 2)
    pages = part["keys"][:, :2032].reshape(3, 127, 16, 64).astype(np.float64)
    return {"queries": part["queries"], **deployed_summary(pages, 8, 4)}


def _long() -> Inputs:
    part = long_text_slice(5)
    pages = part["keys"].reshape(1, 511, 16, 64).astype(np.float64)
    return {"queries": part["queries"], **deployed_summary(pages, 8, 4)}


def exact_score_cases() -> list[Case]:
    """Cases of `exact_page_scores`."""
    stage = Family("exact_page_scores", "B")
    return [
        stage.probe("sum-not-maximum", "B", "16 logits of 1 outweigh one logit of 2", _keys_sum_not_max),
        stage.probe("natural-log", "B", "16 logits of 0: ln 16", lambda: _keys_zero(16)),
        stage.probe("open-page-of-one", "A", "one token alone: the score is its logit, nothing is padded", _keys_one),
        stage.probe("negative-logits", "A", "5 tokens of logit -200: no padding lane of 0 counts", _keys_negative),
        *locks_sizes.exact_score_sizes(),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_keys_random, 1, 3, 4, 16, 80)),
        *varied.exact_score_sizes(),
        *[
            stage.size(f"H2-G{G}", "G", f"{G} queries of every KV head", partial(_keys_random, 2, G, 3, 16, 64))
            for G in (9, 17)
        ],
        stage.general("G8-B32", "random pages", partial(_keys_random, 2, 8, 5, 32, 64)),
        stage.general("capture-needle", "the real needle prompt", _keys_needle),
    ]


def _keys_sum_not_max() -> Inputs:
    inputs = _sum_not_max()
    pages = inputs["coefficients"][..., :1] * np.eye(64)[0]
    return {"queries": inputs["queries"], "key_pages": pages}


def _keys_zero(B: int) -> Inputs:
    return {"queries": np.zeros((1, 2, 64)), "key_pages": np.ones((1, 3, B, 64))}


def _keys_one() -> Inputs:
    return {"queries": np.full((1, 2, 64), 0.5), "key_pages": np.full((1, 1, 1, 64), 2.0)}


def _keys_negative() -> Inputs:
    return {"queries": np.full((1, 2, 64), -5.0), "key_pages": np.full((1, 2, 5, 64), 5.0)}


def _keys_random(H: int, G: int, P: int, B: int, d: int) -> Inputs:
    rng = generator("exact-score", f"{H},{G},{P},{B},{d}")
    return {"queries": 2 * rng.normal(size=(H, G, d)), "key_pages": rng.normal(size=(H, P, B, d))}


def _keys_needle() -> Inputs:
    part = needle_slice(3, 1)
    return {"queries": part["queries"], "key_pages": part["keys"][:, :2032].reshape(3, 127, 16, 64)}


def share_cases() -> list[Case]:
    """Cases of `locks_page_shares`."""
    stage = Family("locks_page_shares", "C")
    return [
        *locks_sizes.share_sizes(),
        *varied.share_sizes(),
        *locks_sizes.share_peaks(),
        stage.probe("average-not-maximum", "C", "shares (.6, .0) and (.2, .4): the mean decides", _two_heads),
        stage.probe("own-normaliser", "C", "query heads of very different mass weigh the same", _unequal_heads),
        stage.probe("last-page-counts", "C", "the open page is in the denominator", _open_heavy),
        stage.probe("equal-scores-of-200", "B", "all scores 200: exp(200) overflows float32", _equal_200),
        stage.probe("empty-pages", "B", "-inf pages have share 0; a head of only -inf has shares 0", _minus_infinity),
        stage.probe("scores-of-60000", "B", "scores of +-60000 differ by 1", _share_huge),
        stage.probe("group-max", "C", "the largest share", _group_max),
        stage.probe("group-mass", "C", "pooled mass", _group_mass),
        stage.relation(
            "score-shift", "a constant added to a query head's scores changes nothing", _share_random, _shift
        ),
        stage.general("random", "G = 7, 40 pages", _share_random),
        stage.general("capture-needle", "real scores, 128 pages", share_needle),
    ]


def _two_heads() -> Inputs:
    return {"scores": np.log(np.array([[[0.6, 1e-6, 0.4], [0.2, 0.4, 0.4]]]))}


def _unequal_heads() -> Inputs:
    return {"scores": np.log(np.array([[[0.7, 0.2, 0.1], [0.1, 0.2, 0.7]]])) + np.array([[[30.0], [0.0]]])}


def _group_max() -> Inputs:
    return {**_two_heads(), "combine": "group_max"}


def _group_mass() -> Inputs:
    return {**_unequal_heads(), "combine": "group_mass"}


def _open_heavy() -> Inputs:
    return {"scores": np.log(np.array([[[1.0, 2.0, 1.0, 4.0], [3.0, 1.0, 2.0, 6.0]]]))}


def _equal_200() -> Inputs:
    return {"scores": np.full((2, 3, 8), 200.0)}


def _minus_infinity() -> Inputs:
    scores = np.zeros((1, 2, 4))
    scores[0, 0, 1:3] = -np.inf
    scores[0, 1] = -np.inf
    return {"scores": scores}


def _share_huge() -> Inputs:
    return {"scores": np.array([[[60000.0, 59999.0, 59998.0], [-60000.0, -60001.0, -60002.0]]])}


def _share_random() -> Inputs:
    """Multiples of 1/64, so that adding a small integer rounds nothing."""
    return {"scores": np.round(generator("shares").normal(size=(2, 7, 40)) * 4 * 64) / 64}


def _shift(inputs: Inputs) -> Inputs:
    return {"scores": inputs["scores"] + np.arange(7.0)[None, :, None]}


def share_needle() -> Inputs:
    """Exact scores of 128 pages of the shipped capture."""
    part = needle_slice(2, 2)
    exact = {name: array.astype(np.float64) for name, array in part.items()}
    return {"scores": locks_scores(exact["queries"], exact["keys"], 8, 4, 16, None)}
