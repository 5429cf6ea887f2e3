"""Statistics as ReadKV App. F states them: token-weighted NLL, perplexity loss, token F1, paired bootstraps."""

from __future__ import annotations

import math
import re
import string
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray


def _real(name: str, values: Any) -> FloatArray:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0 or not np.isfinite(array).all():
        raise ArgumentError(f"{name}: expected finite numbers, at least one, got shape {list(array.shape)}")
    return array


def token_weighted_nll(document_nll: Sequence[float], tokens: Sequence[int]) -> float:
    """Mean negative log likelihood per predicted token, in nats, from documents' sums and their token counts.

    Documents count by their length, not equally. Raises ArgumentError for no tokens or another length.

    Source: ReadKV App. F.1 (Aggregation and Uncertainty).

    >>> token_weighted_nll([2.0, 12.0], [1, 3])
    3.5
    """
    total, weight = _real("document_nll", document_nll), _real("tokens", tokens)
    if total.shape != weight.shape or weight.sum() <= 0 or (weight < 0).any():
        raise ArgumentError(f"tokens: expected one nonnegative count per document, got {list(weight)}")
    return float(total.sum() / weight.sum())


def perplexity(nll: float) -> float:
    """exp of the token-weighted NLL.

    >>> perplexity(0.0)
    1.0
    """
    return math.exp(nll)


def perplexity_increase(method: Sequence[float], dense: Sequence[float]) -> float:
    """Delta PPL in percent: 100 (mean method PPL / mean Dense PPL - 1), means over matched seeds, unrounded.

    Source: ReadKV Sec. 5 (Reading the Results), App. F.1.

    >>> round(perplexity_increase([11.0, 13.0], [10.0, 10.0]), 9)
    20.0
    """
    ours, reference = _real("method", method), _real("dense", dense)
    if ours.shape != reference.shape:
        raise ArgumentError(f"dense: expected the method's {ours.size} seeds, got {reference.size}")
    return float(100 * (ours.mean() / reference.mean() - 1))


def normalized_tokens(text: str) -> list[str]:
    """Words of the first line, lower case, without punctuation and English articles (the usual QA normalisation).

    >>> normalized_tokens("The  Cat, sat!\\nAnd more")
    ['cat', 'sat']
    """
    line = text.strip().split("\n", 1)[0].lower()
    bare = "".join(" " if c in string.punctuation else c for c in line)
    return re.sub(r"\b(a|an|the)\b", " ", bare).split()


def token_f1(answer: str, references: Sequence[str]) -> float:
    """Normalised token F1 of an answer's first line, the largest over the references, 0..1.

    Two empty answers agree (1); one empty answer against a word is 0. Raises ArgumentError for no reference.

    Source: ReadKV App. F.1 (Question Answering).

    >>> token_f1("the red cat", ["red dog", "a cat that is red"])       # 2 of 2 words, 2 of 4 words
    0.6666666666666666
    """
    if not references:
        raise ArgumentError("references: expected at least one, got none")
    return max(_f1(normalized_tokens(answer), normalized_tokens(reference)) for reference in references)


def _f1(ours: list[str], theirs: list[str]) -> float:
    if not ours or not theirs:
        return float(ours == theirs)
    common = sum((Counter(ours) & Counter(theirs)).values())
    if common == 0:
        return 0.0
    precision, recall = common / len(ours), common / len(theirs)
    return 2 * precision * recall / (precision + recall)


def f1_loss(method: Sequence[float], dense: Sequence[float]) -> float:
    """Delta F1 in points: Dense minus method, 100 times the difference of their means over the same questions.

    >>> round(f1_loss([0.5, 0.7], [0.6, 0.8]), 9)
    10.0
    """
    ours, reference = _real("method", method), _real("dense", dense)
    if ours.shape != reference.shape:
        raise ArgumentError(f"dense: expected the method's {ours.size} questions, got {reference.size}")
    return float(100 * (reference.mean() - ours.mean()))


@dataclass(frozen=True)
class Interval:
    """A percentile bootstrap interval and the estimate on the data themselves."""

    estimate: float
    low: float
    high: float
    replicates: int


def _percentiles(estimate: float, draws: FloatArray, confidence: float) -> Interval:
    tail = 50 * (1 - confidence)
    low, high = np.percentile(draws, [tail, 100 - tail])
    return Interval(estimate, float(low), float(high), len(draws))


def paired_bootstrap(
    method: Sequence[float],
    dense: Sequence[float],
    weights: Sequence[float] | None = None,
    *,
    replicates: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile interval of the weighted mean difference method - dense, resampling documents with both their scores.

    Args:
        method, dense: one score per document or question, in the same order; for NLL their sums over tokens.
        weights: what the difference is divided by, per document (token counts); None weighs all equally.
        replicates, confidence, seed: the paper uses at least 10,000 replicates and 95%.

    Raises:
        ArgumentError: lengths that differ, a weight that is not positive, a confidence outside 0..1.

    Source: ReadKV App. F.1: intervals resample paired documents, not tokens, layers or heads.

    >>> paired_bootstrap([2.0, 4.0], [1.0, 3.0], replicates=100)
    Interval(estimate=1.0, low=1.0, high=1.0, replicates=100)
    """
    difference = _real("method", method)
    reference = _real("dense", dense)
    weight = np.ones_like(difference) if weights is None else _real("weights", weights)
    if not difference.shape == reference.shape == weight.shape or (weight <= 0).any() or not 0 < confidence < 1:
        raise ArgumentError(
            f"dense: expected {difference.size} paired scores with positive weights and a confidence inside 0..1, "
            f"got {reference.size}, {weight.size} and {confidence}"
        )
    difference = difference - reference
    chosen = np.random.default_rng(seed).integers(0, difference.size, (replicates, difference.size))
    draws = difference[chosen].sum(axis=1) / weight[chosen].sum(axis=1)
    return _percentiles(float(difference.sum() / weight.sum()), draws, confidence)


def stratified_bootstrap(
    scores: Sequence[float],
    strata: Sequence[Any],
    *,
    replicates: int = 10_000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Percentile interval of a mean, resampling inside every stratum so that each keeps its size.

    Passkey trials are stratified by insertion position. Raises ArgumentError for another number of strata.

    Source: ReadKV App. F.1.

    Each stratum is constant, so nothing is left to vary:

    >>> stratified_bootstrap([0.0, 0.0, 1.0, 1.0], ["front", "front", "back", "back"], replicates=50)
    Interval(estimate=0.5, low=0.5, high=0.5, replicates=50)
    """
    values = _real("scores", scores)
    if len(strata) != values.size or not 0 < confidence < 1:
        raise ArgumentError(f"strata: expected {values.size} labels and a confidence inside 0..1, got {len(strata)}")
    generator, sums = np.random.default_rng(seed), np.zeros(replicates)
    for label in dict.fromkeys(strata):
        inside = values[[other == label for other in strata]]
        sums += inside[generator.integers(0, inside.size, (replicates, inside.size))].sum(axis=1)
    return _percentiles(float(values.mean()), sums / values.size, confidence)
