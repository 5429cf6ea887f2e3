"""Enclosures of the page scores and shares that a right port may hold in the middle of `locks_decode`."""

from __future__ import annotations

import numpy as np

from proofs_checks.bounds.common import gamma, lse_bound
from proofs_checks.bounds.locks_perturbation import Spectrum, spectrum, subspace_error
from proofs_checks.bounds.locks_quantized import quantization_error
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
    logits, _ = summary_logits({"queries": queries, **summary, "softmax_scale": scale}, u)
    moved = build_rounding(s, queries, rank, u, quantised=basis_bits is not None)
    if basis_bits is None:
        moved = moved + subspace_error(s, queries, rank)
    else:
        moved = moved + quantization_error(s, queries, rank, basis_bits, u)
    return lse_bound(logits, abs(scale) * moved, u)


def build_rounding(s: Spectrum, queries: FloatArray, rank: int, u: float, quantised: bool) -> FloatArray:
    """Rounding of a logit / scale that no turning explains, [H, G, P, B].

    Centring: the mean's error goes into the centroid and, through any projector, into the deviations. Products:
    D^T U / sigma, C V^T q and the scale are at most gamma_{B + d + r + 12} of |q.mu| and of sum_j |q_j| ||D_j|| (Gram
    route) or |q|_1 ||delta|| (covariance route), since rows of U and V are no longer than 1; a code is less than
    twice its value, so quantised products are up to four times that. Coefficients D V instead of U sigma add
    E |V^T q| / sigma_r.
    """
    B, d = s.deviations.shape[2:]
    size = np.abs(queries)
    centre = np.einsum("hgd,hpd->hgp", size, np.abs(s.centroid), optimize=True)
    by_channel = np.einsum("hgd,hpd->hgp", size, np.linalg.norm(s.deviations, axis=2), optimize=True)
    by_token = np.sum(size, axis=-1)[:, :, None, None] * np.linalg.norm(s.deviations, axis=-1)[:, None]
    products = (4 if quantised else 1) * np.maximum(by_channel[..., None], by_token) + 2 * centre[..., None]
    whole = np.linalg.norm(queries, axis=-1)[:, :, None]
    shift = (1 + np.sqrt(B)) * np.linalg.norm(s.centroid_error, axis=-1)[:, None] * whole  # [H, G, P]
    kept = np.maximum(s.surely_kept(rank), 1)[..., None]
    smallest = np.take_along_axis(s.energy, kept - 1, axis=-1)[..., 0]
    ratio = np.divide(s.gram, smallest, out=np.zeros_like(smallest), where=smallest > s.gram)
    projected = (np.sqrt(ratio * s.gram * (1 + ratio)))[:, None] * whole
    return gamma(B + d + rank + 12, u) * products + (shift + projected)[..., None]


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
