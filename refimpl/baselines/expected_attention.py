"""Expected Attention: tokens kept by the attention that a Gaussian future query is expected to pay (kvpress form)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.checks import ArgumentError, FloatArray, Sizes, real, whole
from refimpl.locks.combine import head_shares

FUTURE = 512
"""Positions after the prompt over which the rotation is averaged."""


def expected_query_moments(*, queries: Any, skipped: int = 4) -> dict[str, FloatArray]:
    """Mean and covariance (divided by n) of the prompt's queries before positions, the first ``skipped`` left out.

    queries: [H, G, T, d]. Returns ``mean`` [H, G, d] and ``covariance`` [H, G, d, d]. Raises ArgumentError if no token
    is left.

    >>> moments = expected_query_moments(queries=[[[[9.0], [1.0], [3.0]]]], skipped=1)
    >>> moments["mean"].tolist(), moments["covariance"].tolist()
    ([[[2.0]]], [[[[1.0]]]])
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G T d", sizes)
    used = queries[:, :, whole("skipped", skipped, low=0) :]
    if used.shape[2] == 0:
        raise ArgumentError(f"queries: expected more than {skipped} tokens, got T={sizes['T']}")
    mean = used.mean(axis=2)
    centred = used - mean[:, :, None]
    return {"mean": mean, "covariance": np.swapaxes(centred, -1, -2) @ centred / used.shape[2]}


def average_rotation(*, frequencies: Any, start: int, positions: int = FUTURE) -> FloatArray:
    """The mean [d, d] of the position matrices of ``positions`` positions from ``start`` on; not orthogonal (AMB-64).

    >>> average_rotation(frequencies=[0.0], start=7).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    frequencies = real("frequencies", frequencies, "F", Sizes())
    steps = whole("start", start) + np.arange(whole("positions", positions, low=1))
    turn = np.exp(1j * np.outer(steps, frequencies)).mean(axis=0)
    cos, sin = np.diag(turn.real), np.diag(turn.imag)
    return np.block([[cos, 0.0 - sin], [sin, cos]])


def expected_attention_scores(
    *,
    keys: Any,
    values: Any,
    query_mean: Any,
    query_covariance: Any,
    sinks: int = 4,
    softmax_scale: float | None = None,
) -> FloatArray:
    """Scores [H, T]: the group's mean expected weight of a token times the length of its value.

    z_i = scale k.mu + scale^2/2 k^T Sigma k per query head, softmax over the tokens after the sinks; a sink has the
    largest score of all heads plus 1.

    Args:
        keys, values: [H, T, d]. query_mean: [H, G, d]; query_covariance: [H, G, d, d], both after the averaged
            rotation R: R mu and R Sigma R^T.
        sinks: first tokens that always stay, 4. softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, no query head, or no token after the sinks.

    Source: Locks Sec. 6 (Expected Attention); AMB-64.

    >>> scores = expected_attention_scores(keys=[[[0.0], [1.0], [1.0]]], values=[[[1.0], [3.0], [-4.0]]],
    ...     query_mean=[[[2.0]]], query_covariance=[[[[1.0]]]], sinks=1)
    >>> scores.round(12).tolist()
    [[3.0, 1.5, 2.0]]
    """
    sizes = Sizes()
    keys, values = real("keys", keys, "H T d", sizes), real("values", values, "H T d", sizes)
    mean = real("query_mean", query_mean, "H G d", sizes)
    covariance = real("query_covariance", query_covariance, "H G d d", sizes)
    sinks = whole("sinks", sinks, low=0, high=sizes["T"] - 1)
    if sizes["G"] == 0:
        raise ArgumentError("query_mean: expected at least one query head, got G=0")
    logits = expected_logits(keys[:, sinks:], mean, covariance, scale_of(softmax_scale, sizes["d"]))
    weights = head_shares(logits).mean(axis=1)  # [H, T - sinks]
    scores = np.empty(keys.shape[:2])
    scores[:, sinks:] = weights * np.linalg.norm(values[:, sinks:], axis=-1)
    scores[:, :sinks] = scores[:, sinks:].max(initial=-np.inf) + 1
    return scores


def expected_logits(keys: FloatArray, mean: FloatArray, covariance: FloatArray, scale: float) -> FloatArray:
    """log E exp(scale q.k) of Gaussian queries, [H, G, T]."""
    first = np.einsum("hgd,htd->hgt", mean, keys, optimize=True)
    second = ((keys[:, None] @ covariance) * keys[:, None]).sum(axis=-1)  # [H, G, T]
    logits: FloatArray = scale * first + scale**2 / 2 * second
    return logits
