"""Coverage, Lemma 1(i) and the oracles, against sums in 50 digits and brute force."""

from itertools import combinations

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.attention import attention, sparse_attention
from refimpl.checks import ArgumentError
from refimpl.locks.coverage import coverage, coverage_identity, output_error
from refimpl.locks.decode import locks_decode
from refimpl.locks.oracle import exact_scores, oracle_decode, per_head_pages, per_head_traffic

EPS = np.finfo(float).eps
SLACK = 2 * (11 + 7 * 40 + 20) * EPS
"""11 weights: exponents off by (d + 4) roundings of |logit| <= 40, sums by 11; doubled for both sides."""


def instance(seed, tokens=11, d=3):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, 2, d)), rng.standard_normal((1, tokens, d)) * 2, rng.standard_normal((1, tokens, d))


def exact_sides(queries, keys, values, kept):
    """dropped mass and o - o_S of query head 0 in 50 digits."""
    with mpmath.workdps(50):
        scale = 1 / mpmath.sqrt(queries.shape[-1])
        weights = [mpmath.exp(scale * mpmath.fdot(map(mpmath.mpf, queries[0, 0]), map(mpmath.mpf, k))) for k in keys[0]]
        total, held = mpmath.fsum(weights), mpmath.fsum(w for w, k in zip(weights, kept, strict=True) if k)
        out = [
            mpmath.fsum(w * mpmath.mpf(v) for w, v in zip(weights, column, strict=True)) / total
            for column in values[0].T
        ]
        part = [
            mpmath.fsum(w * mpmath.mpf(v) for w, v, k in zip(weights, column, kept, strict=True) if k) / held
            for column in values[0].T
        ]
        return float(1 - held / total), np.array([float(a - b) for a, b in zip(out, part, strict=True)])


@given(st.integers(0, 2**32 - 1))
def test_identity_and_bound_of_lemma_1(seed):
    queries, keys, values = instance(seed)
    sides = coverage_identity(queries=queries, keys=keys, values=values, pages=[[0, 2]], page_size=4)
    kept = [True] * 4 + [False] * 4 + [True] * 3
    dropped, difference = exact_sides(queries, keys, values, kept)
    radius = np.linalg.norm(values, axis=-1).max()
    assert abs(sides["dropped_mass"][0, 0] - dropped) <= SLACK
    assert np.abs(sides["difference"][0, 0] - difference).max() <= 2 * SLACK * radius
    right = sides["dropped_mass"][..., None] * (sides["dropped_mean"] - sides["kept_mean"])
    assert np.abs(sides["difference"] - right).max() <= 2 * SLACK * radius
    error = output_error(queries=queries, keys=keys, values=values, pages=[[0, 2]], page_size=4)
    assert (error <= sides["bound"] + 2 * SLACK * radius).all()


def test_difference_is_that_of_the_two_attentions():
    queries, keys, values = instance(1)
    sides = coverage_identity(queries=queries, keys=keys, values=values, pages=[[1]], page_size=4)
    whole = attention(queries=queries, keys=keys, values=values)["output"]
    part = sparse_attention(queries=queries, keys=keys, values=values, pages=[[1]], page_size=4)["output"]
    assert np.abs(sides["difference"] - (whole - part)).max() <= 2 * SLACK * np.linalg.norm(values, axis=-1).max()


def test_coverage_of_each_heads_own_pages():
    queries, keys, _ = instance(2)
    own = coverage(queries=queries, keys=keys, pages=[[[0], [2]]], page_size=4)
    for head, page in enumerate((0, 2)):
        shared = coverage(queries=queries, keys=keys, pages=[[page]], page_size=4)[0, head]
        assert abs(own[0, head] - shared) <= 22 * EPS  # 11 weights below 1, summed in two orders


def test_all_pages_cover_everything_and_lose_nothing():
    queries, keys, values = instance(3)
    sides = coverage_identity(queries=queries, keys=keys, values=values, pages=[[2, 0, 1]], page_size=4)
    assert sides["dropped_mass"].tolist() == [[0.0, 0.0]]
    assert not sides["dropped_mean"].any()


@pytest.mark.parametrize("pages", [[[0, 0]], [[3]], [[-1]]])
def test_bad_pages_are_refused(pages):
    queries, keys, _ = instance(4)
    with pytest.raises(ArgumentError, match="pages"):
        coverage(queries=queries, keys=keys, pages=pages, page_size=4)


def test_no_page_has_no_kept_mean():
    queries, keys, values = instance(4)
    with pytest.raises(ArgumentError, match="at least one page"):
        coverage_identity(queries=queries, keys=keys, values=values, pages=np.zeros((1, 0), int), page_size=4)


@given(st.integers(0, 2**32 - 1))
def test_oracle_attains_the_best_group_mean_coverage(seed):
    queries, keys, values = instance(seed, tokens=13)
    chosen = oracle_decode(queries=queries, keys=keys, values=values, budget_tokens=12, page_size=3)["pages"]
    best = max(
        coverage(queries=queries, keys=keys, pages=[[0, 4, *pair]], page_size=3).mean()
        for pair in combinations((1, 2, 3), 2)
    )
    attained = coverage(queries=queries, keys=keys, pages=chosen, page_size=3).mean()
    assert attained >= best - 4 * (13 + 7 * 40) * EPS  # rounding of both coverages, as above


def test_oracle_is_decode_at_full_rank():
    queries, keys, values = instance(5, tokens=14, d=6)
    arguments = {"queries": queries, "keys": keys, "values": values, "budget_tokens": 9, "page_size": 3}
    oracle = oracle_decode(**arguments)
    decode = locks_decode(**arguments, rank=3, basis_bits=None)
    assert np.array_equal(oracle["pages"], decode["pages"])
    assert np.array_equal(oracle["output"], decode["output"])


def test_oracle_of_an_empty_and_a_short_cache():
    empty = np.zeros((1, 0, 2))
    assert exact_scores(queries=np.ones((1, 2, 2)), keys=empty, page_size=4).shape == (1, 2, 0)
    short = oracle_decode(queries=np.ones((1, 1, 2)), keys=np.ones((1, 3, 2)), values=np.ones((1, 3, 2)),
                          budget_tokens=8, page_size=4)  # fmt: skip
    assert short["pages"].tolist() == [[0]]


def test_per_head_pages_and_what_their_union_reads():
    scores = np.log([[[1.0, 9.0, 2.0, 3.0, 1.0], [1.0, 2.0, 9.0, 3.0, 1.0]]])
    pages = per_head_pages(scores=scores, budget_tokens=12, page_size=4)
    assert pages.tolist() == [[[0, 1, 4], [0, 2, 4]]]
    cost = per_head_traffic(pages=pages, tokens=18, page_size=4)  # the open page 4 holds two tokens
    assert cost["read_tokens"].tolist() == [4 + 4 + 4 + 2]
    assert cost["attended_tokens"].tolist() == [[10, 10]]


def test_one_shared_set_read_by_all_heads_costs_itself():
    cost = per_head_traffic(pages=[[[0, 2], [0, 2]]], tokens=12, page_size=4)
    assert cost["read_tokens"].tolist() == [8]
