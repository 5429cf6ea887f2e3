"""Statistics by hand, and bootstrap intervals against distributions that are known."""

import math

import numpy as np
import pytest

from proofs_checks.microscope import statistics
from refimpl.checks import ArgumentError


def test_nll_weighs_tokens_not_documents():
    assert statistics.token_weighted_nll([1.0, 90.0], [1, 9]) == 9.1
    assert abs(statistics.perplexity(math.log(2)) - 2) <= 4 * np.finfo(float).eps  # one rounding of log 2, one of exp


def test_perplexity_increase_uses_unrounded_means_over_seeds():
    """11.789 against 11.362, as ReadKV prints them for Qwen3B at (3, 1): 3.76%."""
    assert round(statistics.perplexity_increase([11.789], [11.362]), 2) == 3.76
    assert statistics.perplexity_increase([1.0, 3.0], [2.0, 2.0]) == 0.0


@pytest.mark.parametrize(
    ("answer", "references", "f1"),
    [
        ("The Cat!", ["a cat"], 1.0),
        ("cat", ["dog"], 0.0),
        ("", ["the"], 1.0),
        ("", ["cat"], 0.0),
        ("red red cat", ["red cat"], 2 * (2 / 3) * 1 / (2 / 3 + 1)),
        ("in 1912\nbecause", ["1912"], 2 * 0.5 * 1 / 1.5),
        ("x", ["y", "x"], 1.0),
    ],
)
def test_token_f1_by_hand(answer, references, f1):
    assert statistics.token_f1(answer, references) == f1


def test_f1_loss_is_in_points():
    assert statistics.f1_loss([0.25, 0.5], [0.5, 0.75]) == 25.0


def test_paired_interval_ignores_what_both_scores_share():
    """A common document effect of size 100 cancels in pairs; the difference is 1 everywhere but in one document."""
    base = np.random.default_rng(0).standard_normal(40) * 100
    base = np.round(base)  # whole numbers: differences are exact
    shift = np.ones(40)
    shift[0] = 3.0
    interval = statistics.paired_bootstrap(base + shift, base, replicates=2000)
    assert interval.estimate == (39 + 3) / 40
    assert 1.0 <= interval.low <= interval.estimate <= interval.high <= 1.2


def test_interval_of_two_documents_is_their_range():
    """Four equally likely resamples: (1, 1), (1, 3), (3, 1), (3, 3); 2.5% and 97.5% lie at the ends."""
    interval = statistics.paired_bootstrap([1.0, 3.0], [0.0, 0.0], replicates=5000)
    assert (interval.estimate, interval.low, interval.high) == (2.0, 1.0, 3.0)


def test_weights_are_token_counts():
    interval = statistics.paired_bootstrap([10.0, 0.0], [0.0, 0.0], [1.0, 9.0], replicates=10)
    assert interval.estimate == 1.0


def test_bootstrap_of_a_normal_mean_has_its_width():
    """1.96 standard errors each way, up to the bootstrap's own noise."""
    draws = np.random.default_rng(1).standard_normal(400)
    interval = statistics.paired_bootstrap(draws, np.zeros(400))
    half = (interval.high - interval.low) / 2
    expected = 1.959964 * draws.std() / 20
    # a quantile at p of n draws has the standard error sqrt(p (1 - p) / n) / density; half is the mean of two of them
    density = np.exp(-(1.959964**2) / 2) / np.sqrt(2 * np.pi)
    noise = np.sqrt(0.025 * 0.975 / 10_000 / 2) / density / 1.959964
    assert abs(half / expected - 1) < 5 * noise


def test_strata_keep_their_size():
    """Half the trials succeed by position; stratified resampling sees no variation, plain resampling does."""
    scores, strata = [1.0] * 20 + [0.0] * 20, ["front"] * 20 + ["back"] * 20
    fixed = statistics.stratified_bootstrap(scores, strata, replicates=500)
    free = statistics.stratified_bootstrap(scores, ["all"] * 40, replicates=500)
    assert (fixed.low, fixed.high) == (0.5, 0.5)
    assert free.low < 0.5 < free.high


@pytest.mark.parametrize(
    "call",
    [
        lambda: statistics.token_weighted_nll([1.0], [0]),
        lambda: statistics.token_weighted_nll([1.0, 2.0], [1]),
        lambda: statistics.perplexity_increase([1.0], [1.0, 2.0]),
        lambda: statistics.token_f1("x", []),
        lambda: statistics.paired_bootstrap([1.0], [1.0, 2.0]),
        lambda: statistics.paired_bootstrap([1.0], [1.0], [0.0]),
        lambda: statistics.paired_bootstrap([math.nan], [1.0]),
        lambda: statistics.stratified_bootstrap([1.0], ["a", "b"]),
        lambda: statistics.stratified_bootstrap([], []),
    ],
)
def test_bad_arguments_are_refused(call):
    with pytest.raises(ArgumentError):
        call()
