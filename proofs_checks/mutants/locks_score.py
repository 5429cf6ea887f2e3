"""Wrong page scores and shares."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.attention import tf32_rounded
from proofs_checks.mutants.registry import mutant
from refimpl.attention import log_sum_exp
from refimpl.locks.combine import head_shares, locks_page_shares
from refimpl.locks.score import exact_page_scores, locks_score_pages

S = "locks_score_pages"


def _logits(queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    centre = np.einsum("hgd,hpd->hgp", queries, centroid)[..., None]
    spread = np.einsum("hgpr,hpbr->hgpb", np.einsum("hgd,hpdr->hgpr", queries, basis), coefficients)
    return (centre + spread) / np.sqrt(queries.shape[-1])


@mutant("score-page-maximum", S, "B", "the largest logit stands for the log-sum-exp")
def maximum(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """U10."""
    return _logits(queries, centroid, basis, coefficients).max(axis=-1)


@mutant("score-mean-logit", S, "B", "the mean logit plus ln B stands for the log-sum-exp")
def mean_logit(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """First order only."""
    logits = _logits(queries, centroid, basis, coefficients)
    return logits.mean(axis=-1) + np.log(logits.shape[-1])


@mutant("score-in-bits", S, "B", "scores are reported in base 2")
def score_bits(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """log2 for log."""
    scores = locks_score_pages(queries=queries, centroid=centroid, basis=basis, coefficients=coefficients)
    return scores / np.log(2)


@mutant("score-log-mean-exp", S, "B", "the sum is divided by B")
def log_mean(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """ln B off: the open page then weighs too much."""
    scores = locks_score_pages(queries=queries, centroid=centroid, basis=basis, coefficients=coefficients)
    return scores - np.log(coefficients.shape[2])


@mutant("score-centroid-forgotten", S, "H", "q.mu is left out")
def no_centroid(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """Deviations only."""
    zero = np.zeros_like(centroid)
    return locks_score_pages(queries=queries, centroid=zero, basis=basis, coefficients=coefficients)


@mutant("score-centroid-only", S, "H", "the deviations are left out")
def only_centroid(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """The centroid baseline."""
    zero = np.zeros_like(coefficients)
    return locks_score_pages(queries=queries, centroid=centroid, basis=basis, coefficients=zero)


@mutant("score-scale-after-lse", S, "B", "the softmax scale is applied to the log-sum-exp")
def scale_after(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """Outside the sum."""
    scale = 1 / np.sqrt(queries.shape[-1])
    return log_sum_exp(_logits(queries, centroid, basis, coefficients) / scale) * scale


@mutant("score-scale-twice", S, "H", "the softmax scale is applied twice to the deviations")
def scale_twice(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """Folded into the coefficients too."""
    scaled = coefficients / np.sqrt(queries.shape[-1])
    return locks_score_pages(queries=queries, centroid=centroid, basis=basis, coefficients=scaled)


@mutant("score-tf32", S, "I", "the projection runs in TF32")
def score_tf32(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """U12."""
    return locks_score_pages(
        queries=tf32_rounded(queries),
        centroid=tf32_rounded(centroid),
        basis=tf32_rounded(basis),
        coefficients=coefficients,
    )


@mutant("score-padded-scale", S, "A", "the scale comes from the padded head size")
def score_padded(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """U13."""
    width = 2 ** int(np.ceil(np.log2(queries.shape[-1])))
    scale = 1 / np.sqrt(width)
    return locks_score_pages(
        queries=queries, centroid=centroid, basis=basis, coefficients=coefficients, softmax_scale=scale
    )


@mutant("score-heads-tiled", S, "G", "query head h is scored on the summary of KV head h mod H")
def score_tiled(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """The tiled map."""
    heads, group, d = queries.shape
    order = np.tile(np.arange(heads), group)
    flat = locks_score_pages(
        queries=queries.reshape(heads * group, 1, d),
        centroid=centroid[order],
        basis=basis[order],
        coefficients=coefficients[order],
    )
    return flat.reshape(heads, group, -1)


@mutant("score-first-query-only", S, "G", "the first query of the group scores for all")
def first_query(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """G = 1 thinking."""
    first = np.broadcast_to(queries[:, :1], queries.shape)
    return locks_score_pages(queries=first, centroid=centroid, basis=basis, coefficients=coefficients)


@mutant("score-no-maximum", S, "B", "exp without the maximum subtracted, in float32")
def score_overflow(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """Overflows."""
    with np.errstate(over="ignore", divide="ignore"):
        weights = np.exp(_logits(queries, centroid, basis, coefficients).astype(np.float32))
        return np.log(weights.sum(axis=-1))


@mutant("score-half-accumulation", S, "B", "the log-sum-exp is kept in float16")
def score_half(*, queries: Any, centroid: Any, basis: Any, coefficients: Any) -> Any:
    """Three digits."""
    scores = locks_score_pages(queries=queries, centroid=centroid, basis=basis, coefficients=coefficients)
    with np.errstate(over="ignore"):
        return scores.astype(np.float16).astype(np.float32)


E = "exact_page_scores"


@mutant("exact-score-padded-page", E, "A", "a short page is padded with keys of 0 that count")
def padded_page(*, queries: Any, key_pages: Any) -> Any:
    """Right for 16 tokens."""
    pad = -key_pages.shape[2] % 16
    return exact_page_scores(queries=queries, key_pages=np.pad(key_pages, ((0, 0), (0, 0), (0, pad), (0, 0))))


@mutant("exact-score-maximum-from-0", E, "A", "masked lanes read 0, so a page of negative logits has maximum 0")
def masked_zero(*, queries: Any, key_pages: Any) -> Any:
    """I5: exp of very negative numbers underflows."""
    logits = np.einsum("hgd,hpbd->hgpb", queries, key_pages) / np.sqrt(queries.shape[-1])
    top = np.maximum(logits.max(axis=-1), 0).astype(np.float32)
    with np.errstate(divide="ignore", under="ignore"):
        weights = np.exp((logits - top[..., None]).astype(np.float32))
        return np.log(weights.sum(axis=-1)) + top


@mutant("exact-score-mean", E, "B", "the mean over tokens instead of the sum")
def exact_mean(*, queries: Any, key_pages: Any) -> Any:
    """ln B off."""
    return exact_page_scores(queries=queries, key_pages=key_pages) - np.log(key_pages.shape[2])


H = "locks_page_shares"


@mutant("shares-group-maximum", H, "C", "the largest share of the group instead of the mean")
def group_max(*, scores: Any) -> Any:
    """U15."""
    return head_shares(scores).max(axis=1)


@mutant("shares-mean-of-scores", H, "C", "raw scores are averaged before the softmax")
def mean_scores(*, scores: Any) -> Any:
    """U15, the other way."""
    return head_shares(np.where(np.isneginf(scores), -1e30, scores).mean(axis=1))


@mutant("shares-peak-normalised", H, "C", "scores are normalised by their peak, not by their sum")
def peak(*, scores: Any) -> Any:
    """The released package's rule."""
    top = scores.max(axis=-1, keepdims=True)
    return np.exp(scores - np.where(np.isneginf(top), 0, top)).mean(axis=1)


@mutant("shares-last-page-left-out", H, "C", "the open page is missing from the denominator")
def no_last(*, scores: Any) -> Any:
    """AMB-01."""
    lse = log_sum_exp(scores[..., :-1])[..., None]
    return np.exp(scores - np.where(np.isneginf(lse), 0, lse)).mean(axis=1)


@mutant("shares-first-page-left-out", H, "C", "the sink page is missing from the denominator")
def no_first(*, scores: Any) -> Any:
    """AMB-01."""
    lse = log_sum_exp(scores[..., 1:])[..., None]
    return np.exp(scores - np.where(np.isneginf(lse), 0, lse)).mean(axis=1)


@mutant("shares-nan-on-empty-head", H, "B", "a head of only -inf gives 0/0")
def nan_head(*, scores: Any) -> Any:
    """No guard."""
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        return (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=1)


@mutant("shares-sum-over-group", H, "C", "shares are summed over the group")
def summed(*, scores: Any) -> Any:
    """Ranks alike, but is no share."""
    return head_shares(scores).sum(axis=1)


@mutant("shares-group-mass", H, "C", "the pooled mass of the group stands for the share average")
def pooled(*, scores: Any) -> Any:
    """Loud heads outvote quiet ones."""
    return locks_page_shares(scores=scores, combine="group_mass")
