"""Envelope, centroid and moment core: Lemma 2, Jensen, Prop. 3 and Eq. (A.2), in 50 digits where values matter."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proofs_checks.bounds.common import gamma
from refimpl.baselines.centroid import centroid_scores, centroid_state_bytes
from refimpl.baselines.moment_core import moment_build_summary, moment_scores
from refimpl.baselines.quest import quest_build_summary, quest_pages, quest_scores
from refimpl.checks import ArgumentError
from refimpl.locks.score import exact_page_scores

EPS = np.finfo(float).eps
whole_numbers = st.integers(-8, 8).map(float)


@given(arrays(np.float64, (1, 2, 5), elements=whole_numbers), arrays(np.float64, (1, 3, 4, 5), elements=whole_numbers))
def test_envelope_bounds_every_logit_of_its_page(queries, pages):
    """Whole numbers: both sides are exact, so no rounding is allowed for."""
    envelope = quest_build_summary(key_pages=pages)
    scores = quest_scores(queries=queries, **envelope)
    logits = np.einsum("hgd,hpbd->hgpb", queries, pages)
    assert (logits.max(axis=-1) <= scores).all()


@given(arrays(np.float64, (1, 2, 5), elements=whole_numbers))
def test_pages_of_equal_extremes_score_equally(queries):
    """Lemma 2's blindness: corners of a box against its two extreme keys and copies of them."""
    low, high = np.arange(5.0) - 3, np.arange(5.0) + 1
    first = np.stack([low, high, low, high])
    second = np.stack([np.where(np.arange(5) % 2, low, high), np.where(np.arange(5) % 2, high, low), low + 1, high - 1])
    scores = quest_scores(queries=queries, **quest_build_summary(key_pages=np.stack([first, second])[None]))
    assert np.array_equal(scores[..., 0], scores[..., 1])


def test_envelope_is_reached_by_a_page_of_one_key():
    key = np.array([1.0, -2.0, 3.0])
    scores = quest_scores(queries=[[[1.0, 1.0, -1.0]]], **quest_build_summary(key_pages=key[None, None, None]))
    assert scores.tolist() == [[[1.0 - 2.0 - 3.0]]]


def test_quest_refuses_an_envelope_turned_over_and_empty_pages():
    with pytest.raises(ArgumentError, match="minimum"):
        quest_scores(queries=[[[1.0]]], minimum=[[[2.0]]], maximum=[[[1.0]]])
    with pytest.raises(ArgumentError, match="at least one token"):
        quest_build_summary(key_pages=np.zeros((1, 2, 0, 3)))


@pytest.mark.parametrize(("budget", "kept"), [(0, 3), (47, 3), (64, 4), (79, 4), (4096, 6)])
def test_quest_keeps_at_least_three_pages(budget, kept):
    scores = np.arange(6.0)[None, None]
    chosen = quest_pages(scores=scores, budget_tokens=budget, page_size=16)
    assert chosen["pages"].tolist() == [[list(range(6 - kept, 6))]]


def test_quest_takes_the_lower_page_among_equals():
    assert quest_pages(scores=np.zeros((1, 1, 5)), budget_tokens=48, page_size=16)["pages"].tolist() == [[[0, 1, 2]]]


@given(
    arrays(np.float64, (1, 1, 4), elements=st.floats(-4, 4)),
    arrays(np.float64, (1, 2, 3, 4), elements=st.floats(-4, 4)),
)
def test_centroid_never_exceeds_the_exact_mass(queries, pages):
    """Jensen. Both sides are within some 20 roundings of logits up to 32 and of log 3."""
    estimate = centroid_scores(queries=queries, centroid=pages.mean(axis=2), page_tokens=3)
    exact = exact_page_scores(queries=queries, key_pages=pages)
    assert (estimate <= exact + 20 * EPS * 34).all()


def test_centroid_of_one_token_is_exact():
    pages = np.random.default_rng(0).standard_normal((1, 4, 1, 3))
    queries = np.ones((1, 1, 3))
    estimate = centroid_scores(queries=queries, centroid=pages.mean(axis=2), page_tokens=1)
    exact = exact_page_scores(queries=queries, key_pages=pages)
    # on either side a dot product of three channels, the root of d and a division
    assert np.abs(estimate - exact).max() <= 2 * gamma(3 + 2, EPS / 2) * np.abs(pages).sum(axis=-1).max()


def exact_modes(page):
    """Mean, eigenvalues (descending) and eigenvectors (columns) of the deviations' exact D^T D, in mpmath."""
    B, d = page.shape
    keys = mpmath.matrix(page.tolist())
    mean = [mpmath.fsum(keys[:, c]) / B for c in range(d)]
    deviations = mpmath.matrix(B, d)
    for i, c in np.ndindex(B, d):
        deviations[i, c] = keys[i, c] - mean[c]
    form = deviations.T * deviations
    values, vectors = mpmath.eigsy(form)
    return mean, [values[d - 1 - k] for k in range(d)], vectors[:, ::-1], form


def second_order(query, page, rank):
    """Eq. (A.2) plus log B in 50 digits; the rank-r form through the eigenvalues of the exact D^T D."""
    with mpmath.workdps(50):
        B, d = page.shape
        mean, values, vectors, _ = exact_modes(page)
        q = mpmath.matrix(query.tolist())
        spread = mpmath.fsum(values[k] * (vectors[:, k].T * q)[0] ** 2 for k in range(rank))
        centre = mpmath.fsum(q[c] * mean[c] for c in range(d)) / mpmath.sqrt(d)
        return centre + spread / (2 * B * d) + mpmath.log(B)


def core_error(page, core):
    """How far q^T V E V^T q may lie from the exact rank-r form for |q| = 1: from the core's residual, in 50 digits.

    A = D^T D, R = A V - V E, w = |V^T V - 1|, f the largest eigenvalue. The polar factor Q of V lies within w of V, so
    |A Q - Q E| <= |R| + 2 f w (E <= f up to |R|, which is far smaller). By Davis-Kahan Q's projector lies within that
    over the gap of A's (0 at full rank), hence Q Q^T A Q Q^T within twice f times it of A's own rank-r part; and
    |Q^T A Q - E| <= |R| + 2 f w, and V E V^T is within 3 f w of Q E Q^T.
    """
    with mpmath.workdps(50):
        _, values, _, form = exact_modes(page)
        v = mpmath.matrix(core["directions"][0, 0].tolist())
        energies = mpmath.diag(core["energies"][0, 0].tolist())
        r, d = v.cols, v.rows
        residual = mpmath.mnorm(form * v - v * energies, "f")
        skew, largest = mpmath.mnorm(v.T * v - mpmath.eye(r), "f"), values[0]
        off = residual + 2 * largest * skew
        turned = 0 if r == d else off / (values[r - 1] - values[r] - off)
        return float(2 * largest * turned + off + 3 * largest * skew)


def score_rounding(page, query):
    """A score's own rounding: a mean of B, two products over d channels, a square, log B; 40 cover them all."""
    B, d = page.shape
    size = np.abs(query).sum() * np.abs(page).max() + 2 * (query**2).sum() * (page**2).sum() / (B * d) + math.log(B)
    return gamma(40, EPS / 2) * size


@pytest.mark.parametrize("rank", [1, 2, 3, 4])
def test_moment_scores_are_equation_a2(rank):
    rng = np.random.default_rng(rank)
    page, query = rng.standard_normal((6, 4)), rng.standard_normal(4)
    core = moment_build_summary(key_pages=page[None, None], rank=rank)
    score = moment_scores(queries=query[None, None], **core, page_tokens=6)[0, 0, 0]
    allowed = core_error(page, core) * (query**2).sum() / (2 * 6 * 4) + score_rounding(page, query)
    assert allowed < 1e-10  # the residual is one of rounding
    assert abs(score - float(second_order(query, page, rank))) <= allowed


@given(seed=st.integers(0, 2**32 - 1), size=st.floats(0.01, 3))
def test_remainders_of_proposition_3(seed, size):
    rng = np.random.default_rng(seed)
    page, query = rng.standard_normal((6, 4)), rng.standard_normal(4) * size
    core = moment_build_summary(key_pages=page[None, None], rank=4)
    rank_2 = {
        "centroid": core["centroid"],
        "directions": core["directions"][..., :2],
        "energies": core["energies"][..., :2],
    }
    full = moment_scores(queries=query[None, None], **core, page_tokens=6)[0, 0, 0]
    cut = moment_scores(queries=query[None, None], **rank_2, page_tokens=6)[0, 0, 0]
    exact = exact_page_scores(queries=query[None, None], key_pages=page[None, None])[0, 0, 0]
    deviations = page - page.mean(axis=0)
    reach = np.abs(deviations @ query).max() / 2
    slack = 2 * score_rounding(page, query)  # of either side; an exact score rounds less
    at_full_rank = core_error(page, core) * (query**2).sum() / (2 * 6 * 4)
    assert abs(exact - full) <= reach**3 / 3 + slack + at_full_rank
    tail = core["energies"][0, 0, 2:]
    assert -slack <= full - cut <= min(tail[0], tail.sum()) * (query**2).sum() / (2 * 6 * 4) + slack


def test_a_symmetric_two_point_page_misses_by_its_fourth_cumulant():
    """Deviations -z and z: log cosh z against z^2/2, which differ by z^4/12 at leading order."""
    z = 0.01
    core = moment_build_summary(key_pages=[[[[-z], [z]]]], rank=1)
    score = moment_scores(queries=[[[1.0]]], **core, page_tokens=2)[0, 0, 0]
    gap = score - math.log(2) - math.log(math.cosh(z))
    assert abs(gap - z**4 / 12) <= z**6 / 45 + 8 * EPS  # the next term of the series, and rounding near log 2


def test_state_bytes_must_be_whole():
    assert centroid_state_bytes(128, 16) == 256
    with pytest.raises(ArgumentError, match="whole bytes"):
        centroid_state_bytes(3, 4)
