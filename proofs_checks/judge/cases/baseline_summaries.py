"""Cases of page scores by centroid, moments, shared bases and codebooks."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from refimpl.baselines.codebook import codebook_encode, codebook_train
from refimpl.baselines.moment_core import moment_build_summary


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
        stage.relation(
            "directions-turned",
            "signs and order of the directions are free",
            partial(_moments, 12),
            lambda i: {**i, "directions": -i["directions"][..., ::-1], "energies": i["energies"][..., ::-1]},
        ),
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
        stage.probe("heads", "G", "every KV head has its own basis", partial(_shared, H=3)),
        stage.probe("d80", "A", "d = 80: the scale is 1/sqrt(80)", partial(_shared, d=80)),
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
    inputs = _shared(H=1)
    return {**inputs, "coordinates": 0 * inputs["coordinates"]}


def _no_mean() -> Inputs:
    inputs = _shared(H=1)
    return {**inputs, "mean": 0 * inputs["mean"]}


def _turn_pages(inputs: Inputs) -> Inputs:
    return {**inputs, "coordinates": inputs["coordinates"][:, ::-1].copy()}


def codebook_cases() -> list[Case]:
    """Cases of `codebook_scores`."""
    stage = Family("codebook_scores", "H")
    return [
        stage.probe("natural-log", "B", "5 logits of 0: ln 5", partial(_codebook, B=5, sharpness=0.0)),
        stage.probe(
            "index-above-127", "D", "256 codewords: an index is no signed byte", partial(_codebook, H=1, N=256)
        ),
        stage.probe("tokens-count", "H", "a codeword counts as often as tokens name it", _repeated),
        stage.probe("heads", "G", "every KV head has its own codebook", partial(_codebook, H=3)),
        stage.relation(
            "codewords-renamed",
            "the order of the codewords is free",
            _codebook,
            lambda i: {**i, "codes": 31 - i["codes"], "codewords": i["codewords"][:, ::-1]},
        ),
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


def _flip(answer: Any) -> Any:
    return {"scores": answer["scores"][..., ::-1]}
