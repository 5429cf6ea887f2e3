"""Attention and Locks where a sum has no terms, a budget is small or a page stands among many."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.attention import attention, softmax
from refimpl.checks import ArgumentError
from refimpl.locks.coverage import coverage_identity
from refimpl.locks.decode import locks_decode
from refimpl.locks.dialect import to_bf16
from refimpl.locks.oracle import per_head_traffic
from refimpl.locks.quantize import quantize_symmetric
from refimpl.locks.select import pages_within_budget
from refimpl.locks.summary import zero_mode_level
from refimpl.paging import paged_sparse_attention

EPS = np.finfo(float).eps
seeds = st.integers(0, 2**32 - 1)


def test_every_row_of_a_softmax_is_shifted_by_its_own_maximum():
    assert softmax(np.array([[-2000.0, -2000.0], [0.0, 0.0], [3000.0, -3000.0]])).tolist() == [[0.5] * 2] * 2 + [[1, 0]]


def test_no_channels_weigh_all_tokens_alike():
    result = attention(queries=np.zeros((1, 2, 0)), keys=np.zeros((1, 3, 0)), values=np.zeros((1, 3, 0)))
    assert result["output"].shape == (1, 2, 0)
    assert (np.abs(result["lse"] - math.log(3)) <= 4 * EPS).all()


@given(seeds, st.integers(-60, 0))
def test_the_bound_of_lemma_1_is_twice_the_largest_value_times_the_dropped_mass(seed, power):
    """Whatever the size of the values: Euclidean length of every token's value, the largest of them per KV head."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(2, 5, 3)) * 2.0**power
    queries, keys = rng.normal(size=(2, 1, 3)), rng.normal(size=(2, 5, 3))
    sides = coverage_identity(queries=queries, keys=keys, values=values, pages=[[0, 2]] * 2, page_size=1)
    for head in range(2):
        radius = max(math.sqrt(sum(x * x for x in value)) for value in values[head])
        expected = 2 * radius * sides["dropped_mass"][head, 0]
        assert abs(sides["bound"][head, 0] - expected) <= 16 * EPS * expected


def test_no_tokens_have_integer_pages():
    empty = np.zeros((1, 0, 4))
    call = {"rank": 1, "basis_bits": 4, "budget_tokens": 8, "page_size": 4}
    assert locks_decode(queries=np.ones((1, 1, 4)), keys=empty, values=empty, **call)["pages"].dtype == np.int64


def test_results_of_paged_sparse_attention_are_float64():
    pool = np.zeros((1, 2, 1, 1))
    call = {"queries": np.ones((1, 1, 1, 1)), "key_pool": pool, "value_pool": pool, "block_table": [[0]], "tokens": [2]}
    result = paged_sparse_attention(**call, pages=[[[-1]]])
    assert [result[name].dtype for name in ("output", "lse")] == [np.float64] * 2
    assert result["lse"].tolist() == [[[-math.inf]]]


def test_two_pages_need_a_budget_of_two():
    assert pages_within_budget(16, 16, 1) == 1
    assert pages_within_budget(17, 16, 2) == 2
    with pytest.raises(ArgumentError, match=r"^budget_tokens: expected at least two pages .* of 16 tokens, got 16$"):
        pages_within_budget(16, 16, 2)


def test_no_tokens_cost_nothing():
    cost = per_head_traffic(pages=np.zeros((1, 2, 0), int), tokens=0, page_size=4)
    assert (cost["read_tokens"].tolist(), cost["attended_tokens"].tolist()) == ([0], [[0, 0]])


@given(seeds)
def test_the_zero_mode_level_of_a_page_does_not_depend_on_its_neighbours(seed):
    pages = np.random.default_rng(seed).normal(size=(3, 50, 4, 2))
    levels = zero_mode_level(pages)
    assert levels.shape == (3, 50)
    assert levels[1, 7] == zero_mode_level(pages[1, 7])
    # max(B, d) = 4 roundings of the page's length; the length itself is off by a sum of eight squares
    assert abs(levels[2, 3] - 4 * EPS * math.sqrt(sum(x * x for x in pages[2, 3].ravel()))) <= 16 * EPS * levels[2, 3]


def test_codes_of_the_smallest_numbers_stay_in_range():
    """190 units of 2^-1074 over 127 are one unit, since there is no other scale: the code is clipped."""
    codes, scale = quantize_symmetric(np.array([190.0, -190.0, 3.0]) * 2.0**-1074, 0, 8)
    assert (codes.tolist(), float(scale)) == ([127, -127, 3], 2.0**-1074)


def test_bfloat16_keeps_shapes_even_of_a_single_number():
    assert to_bf16(np.array(1.5)).shape == ()
    assert to_bf16(np.zeros((2, 0, 3))).shape == (2, 0, 3)
