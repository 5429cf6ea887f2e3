"""Enclosures of the page scores and shares that a right port may hold in the middle of `locks_decode`."""

from __future__ import annotations

import numpy as np

from proofs_checks.bounds.common import gamma, lse_bound
from proofs_checks.bounds.locks_perturbation import quantization_error, spectrum, subspace_error
from proofs_checks.bounds.locks_score import exact_score_bound, summary_logits
from proofs_checks.numbers import Precision
from refimpl.attention import scale_of
from refimpl.checks import FloatArray
from refimpl.locks.combine import head_shares
from refimpl.locks.decode import deployed_summary
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.paging import split_pages


def score_enclosure(
    queries: FloatArray,
    keys: FloatArray,
    rank: int,
    basis_bits: int | str | None,
    page_size: int,
    scale: float,
    precision: Precision,
) -> tuple[FloatArray, FloatArray]:
    """The reference's scores of all pages and how far a right port's may lie from them, both [H, G, P]."""
    complete, open_page = split_pages(keys, page_size)
    summary = deployed_summary(complete, rank, basis_bits)
    scores = locks_score_pages(queries=queries, **summary, softmax_scale=scale)
    eta = np.zeros(scores.shape)
    if complete.size:
        eta = _summary_eta(queries, complete, summary, rank, basis_bits, scale, precision.roundoff)
    if open_page.shape[1]:
        pages = open_page[:, None]
        exact = exact_page_scores(queries=queries, key_pages=pages, softmax_scale=scale)
        call = {"queries": queries, "key_pages": pages, "softmax_scale": scale}
        scores = np.concatenate([scores, exact], axis=-1)
        eta = np.concatenate([eta, exact_score_bound(call, {}, precision)["scores"]], axis=-1)
    return scores, eta


def _summary_eta(
    queries: FloatArray,
    complete: FloatArray,
    summary: dict[str, FloatArray],
    rank: int,
    basis_bits: int | str | None,
    scale: float,
    u: float,
) -> FloatArray:
    s = spectrum(complete, u)
    logits, rounding = summary_logits({"queries": queries, **summary, "softmax_scale": scale}, u)
    if basis_bits is None:
        centre = np.einsum("hgd,hpd->hgp", np.abs(queries), s.centroid_error)[..., None]
        moved = subspace_error(s, queries, rank) + centre
    else:
        moved = quantization_error(s, queries, rank, basis_bits, u)
    return lse_bound(logits, 2 * rounding + abs(scale) * moved, u)


def share_enclosure(scores: FloatArray, eta: FloatArray, precision: Precision) -> tuple[FloatArray, FloatArray]:
    """Low and high ends of the group-averaged shares [H, P] of any scores within ``eta`` of ``scores`` [H, G, P].

    A share is largest when its page's score is high and all others low: m e^eta / (m e^eta + sum_others m e^-eta).
    """
    P, u = scores.shape[-1], precision.roundoff
    shares = head_shares(scores)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        up, down = shares * np.exp(eta), shares * np.exp(-eta)
        high = up / (up + np.sum(down, axis=-1, keepdims=True) - down)
        low = down / (down + np.sum(up, axis=-1, keepdims=True) - up)
    high, low = np.where(np.isfinite(high), high, 1.0), np.where(np.isfinite(low), low, 0.0)
    largest = np.max(np.abs(scores), axis=-1, keepdims=True)
    relative = gamma(5 * P + scores.shape[1] + 20, u) + u * (8 * largest + 12)
    low_end = np.mean(low * np.maximum(1 - relative, 0.0), axis=1) - precision.tiny
    high_end = np.mean(high * (1 + relative), axis=1) + precision.tiny
    return low_end, high_end


def decode_enclosure(
    queries: FloatArray,
    keys: FloatArray,
    rank: int,
    basis_bits: int | str | None,
    page_size: int,
    softmax_scale: float | None,
    precision: Precision,
) -> tuple[FloatArray, FloatArray]:
    """Shares [H, P] from ``low`` to ``high`` that a right port may rank pages by."""
    scale = scale_of(softmax_scale, queries.shape[-1])
    scores, eta = score_enclosure(queries, keys, rank, basis_bits, page_size, scale, precision)
    return share_enclosure(scores, eta, precision)
