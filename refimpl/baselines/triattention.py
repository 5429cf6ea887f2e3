"""TriAttention: tokens scored by a trigonometric model of the calibrated queries (Locks App. C.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.baselines.rope import as_complex, pair_values
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, integers, real, whole

OFFSETS = tuple(2**i for i in range(17))
"""Distances ahead at which a token is scored: 1, 2, 4, ..., 65536."""

AGGREGATES = ("mean", "max")


def triattention_scores(
    *,
    keys: Any,
    positions: Any,
    frequencies: Any,
    centre: Any,
    magnitude: Any,
    step: int,
    offsets: Any = OFFSETS,
    aggregate: str = "mean",
) -> FloatArray:
    """Scores [H, G, T] of cached keys for the steps ahead, from the mean and mean size of a head's queries.

    Per channel pair f and offset o: |E q_f||k_f| cos(w_f (t - p + o) + arg(E q_f conj k_f)), summed over f, mean or
    maximum over o, plus sum_f (E|q_f| - |E q_f|)|k_f|; k before its position was applied.

    Args:
        keys: [H, T, d], positions applied. positions: [T], p. frequencies: [d/2], w, radians per position.
        centre: [H, G, d], E q of the queries before positions, real parts then imaginary parts of the pairs.
        magnitude: [H, G, d/2], E|q_f|. step: t. offsets: [O] whole numbers. aggregate: "mean" or "max" over offsets.

    Raises:
        ArgumentError: a shape, a non-finite value, no offset, or another aggregate.

    Source: Locks App. C.2 (TriAttention); AMB-66.

    A query that never varies scores its own logit: here q = k turned one step ahead.

    >>> scores = triattention_scores(keys=[[[1.0, 0.0]]], positions=[0], frequencies=[0.0], centre=[[[3.0, 0.0]]],
    ...                              magnitude=[[[3.0]]], step=1)
    >>> scores.tolist()
    [[[3.0]]]
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    positions = integers("positions", positions, "T", sizes, low=0)
    centre = as_complex(real("centre", centre, "H G d", sizes))  # [H, G, F]
    frequencies = pair_values("frequencies", frequencies, "F", sizes)
    magnitude = real("magnitude", magnitude, "H G F", sizes)
    ahead = whole("step", step, low=0) + integers("offsets", offsets, "O", sizes)  # [O]
    if sizes["O"] == 0:
        raise ArgumentError("offsets: expected at least one, got O=0")
    cached = as_complex(keys)  # [H, T, F], e^{i w p} times the key before positions: p cancels below
    turned = centre[..., None, :] * np.exp(1j * ahead[:, None] * frequencies)  # [H, G, O, F]
    waves = np.einsum("hgof,htf->hgto", turned, np.conj(cached), optimize=True).real
    fixed = np.einsum("hgf,htf->hgt", magnitude - np.abs(centre), np.abs(cached), optimize=True)
    pooled = waves.max(axis=-1) if choice("aggregate", aggregate, AGGREGATES) == "max" else waves.mean(axis=-1)
    scores: FloatArray = pooled + fixed
    return scores


def triattention_pool(scores: FloatArray) -> FloatArray:
    """What a KV head ranks by: the maximum over its group, [H, G, T] -> [H, T] (Locks App. C.2).

    >>> triattention_pool(np.array([[[1.0, 5.0], [2.0, 0.0]]])).tolist()
    [[2.0, 5.0]]
    """
    pooled: FloatArray = scores.max(axis=1)
    return pooled


def triattention_resident_tokens(budget_tokens: int, prompt_tokens: int, generated_tokens: int) -> int:
    """Tokens that stay in Locks' port: the whole prompt, and at most b of the generated ones (Locks C.2).

    >>> triattention_resident_tokens(512, 200, 4000), triattention_resident_tokens(512, 200, 100)
    (712, 300)
    """
    kept = min(whole("budget_tokens", budget_tokens, low=0), whole("generated_tokens", generated_tokens, low=0))
    return whole("prompt_tokens", prompt_tokens, low=0) + kept
