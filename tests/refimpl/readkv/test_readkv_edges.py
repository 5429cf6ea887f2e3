"""ReadKV where a message shows a place, a default is left out, a budget ends in a tie or a table is another one."""

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError, Sizes
from refimpl.readkv.accounting import (
    Geometry,
    Method,
    cache_bits,
    read_bits,
    readkv_method,
    schedule_payload_bits,
)
from refimpl.readkv.affine import affine_dequantize, affine_quantize
from refimpl.readkv.allocation import check_gains, check_importance, choose_group_depths
from refimpl.readkv.calibration import calibrate_samples
from refimpl.readkv.entropy import observe_boxes, theorem_2_upper
from refimpl.readkv.laws import Sphere
from refimpl.readkv.optimum import optimum_by_milp, optimum_by_programming
from refimpl.readkv.policies import read_two_depth
from refimpl.readkv.reader import PrefixCache, read_two_stages, reconstructed_keys, reconstructed_values
from refimpl.readkv.reuse_model import extra_write_fraction
from refimpl.readkv.rotation import check_signs, fast_hadamard, readkv_rotate
from refimpl.readkv.tree import Table, deployed_table
from refimpl.readkv.waterfilling import continuous_depths, dependent_rounding, geometric_objective

SMALL = Geometry(2, 1, 8)


def group_depths(budget, minimum_depth, importance=(4.0, 1.0)):
    call = {"costs": np.array([2, 1]), "gains": np.array([0.5, 0.25]), "budget": budget, "minimum_depth": minimum_depth}
    return choose_group_depths(importance=np.array(importance), **call)


def rounding(depths, total, seed=0):
    return dependent_rounding(depths=np.array(depths), total=total, generator=np.random.default_rng(seed))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: affine_quantize(x=1.0, bits=2),
            "x: expected at least one axis (the row), got a single number",
        ),
        (
            lambda: affine_dequantize(codes=np.zeros((2, 3, 4), int), scale=[1.0], zero=[1.0]),
            "scale: expected shape [2, 3], got [1]",
        ),
        (
            lambda: check_gains([0.5, 0.0, -1.0]),
            "gains: expected nonnegative gains (Proposition 8), got -1.0 at [2]",
        ),
        (
            lambda: check_gains([0.5, 0.25, 0.75]),
            "gains: expected nonincreasing gains (Proposition 8), got 0.25 then 0.75 at [1]",
        ),
        (
            lambda: check_importance("importance", [[0.5, 0.0], [-1.0, 2.0]], "H N", Sizes()),
            "importance: expected nonnegative weights, got -1.0 at [1, 0]",
        ),
        (
            lambda: group_depths(5, 2),
            "minimum_depth: expected one that fits the budget, got 6 > 5",
        ),
        (
            lambda: calibrate_samples(samples=[[1.0, 2.0], [3.0, 2.0]]),
            "samples: expected channels with spread, got a dead channel at [1]; pass a floor",
        ),
        (
            lambda: cache_bits(SMALL, Method(-8, 2), 1),
            "stored_bits: expected a nonnegative rate, got -8",
        ),
        (
            lambda: read_bits(SMALL, Method(8, -2), 1),
            "read_bits: expected a nonnegative rate, got -2",
        ),
        (
            lambda: cache_bits(SMALL, Method(8, 2, protected_layers=-1), 1),
            "protected_layers: expected in 0..2, got -1",
        ),
        (
            lambda: observe_boxes(lower=[[-1.0], [-0.5]], upper=[[-0.5], [1.5]]),
            "lower: expected boxes of positive volume inside the cube [-1, 1]^n, got [-0.5] to [1.5]",
        ),
        (
            lambda: observe_boxes(lower=[[-0.5]], upper=[[1.5]]),
            "lower: expected boxes of positive volume inside the cube [-1, 1]^n, got [-0.5] to [1.5]",
        ),
        (
            lambda: observe_boxes(lower=[[-1.0], [0.0]], upper=[[0.0], [1.0]], channel=[[1.0, 0.0], [1.5, -0.5]]),
            "channel: expected rows of probabilities that sum to 1, got [1.5, -0.5]",
        ),
        (
            lambda: extra_write_fraction(stored=8, fixed=4, prompt=0, steps=1),
            "steps: expected at least one historical read, got an empty cache and one step",
        ),
        (
            lambda: readkv_rotate(x=1.0, signs=[1]),
            "x: expected at least one axis (the channels), got a single number",
        ),
        (
            lambda: fast_hadamard(np.ones(3)),
            "x: expected a power of two of channels for the Hadamard transform, got d=3",
        ),
        (
            lambda: check_signs("key_signs", [1, 1, -1]),
            "key_signs: expected a power of two of channels for the Hadamard transform, got d=3",
        ),
        (
            lambda: rounding([1.5], 2),
            "total: expected the sum of the depths, 1.5, got 2",
        ),
        (
            lambda: rounding([0.5, 1.0], 1),
            "total: expected the sum of the depths, 1.5, got 1",
        ),
    ],
)
def test_the_whole_text_of_a_refusal(call, message):
    with pytest.raises(ArgumentError) as caught:
        call()
    assert str(caught.value) == message


def test_rows_without_entries():
    q = affine_quantize(x=np.zeros((2, 3, 0)), bits=2)
    assert (q["codes"].shape, q["scale"].shape, q["zero"].shape) == ((2, 3, 0), (2, 3), (2, 3))


def test_codes_of_the_smallest_range_stay_in_range():
    """380 units of 2^-1074 over 255 are one unit, since there is no other scale: the code is clipped."""
    q = affine_quantize(x=np.array([0.0, 3.0, 380.0]) * 2.0**-1074, bits=8)
    assert (q["codes"].tolist(), float(q["scale"])) == ([0, 3, 255], 2.0**-1074)


def test_a_cache_of_protected_layers_alone_has_no_tables():
    method = readkv_method(stored=8, read=2, protected_layers=2)
    assert method.protected_layers == 2
    assert cache_bits(SMALL, method, 5) == 2 * 16 * 2 * 8 * 5
    assert schedule_payload_bits(key_depths=[], value_depths=[], channels=4) == 0


def test_gains_of_zero_are_not_bought_for_groups_either():
    assert group_depths(6, 0, importance=(4.0, 0.0)).tolist() == [2, 0]
    assert group_depths(6, 1, importance=(0.0, 1.0)).tolist() == [1, 2]


@given(st.lists(st.integers(0, 7), min_size=0, max_size=4), st.lists(st.integers(0, 15), max_size=4), st.integers(0, 9))
def test_both_optima_need_no_order_of_the_gains(weights, gains, budget):
    """A level is read only after those below it, even where it gains more than they do; all numbers are exact."""
    weights, gains = np.array(weights, float), np.array(gains, float) / 64
    depths = optimum_by_milp(importance=weights, gains=gains, budget=budget)
    assert (depths.dtype, depths.shape) == (np.int64, weights.shape)
    assert depths.sum() <= budget
    curve = 1 - np.concatenate([[0.0], np.cumsum(gains)])
    best = optimum_by_programming(importance=weights, gains=gains, budget=budget)
    assert sum(w * curve[t] for w, t in zip(weights, depths, strict=True)) == best


def test_a_level_that_gains_more_than_the_one_below_it():
    """Two refinements of one item gain 0.5, the first ones of both 0.25; second ones alone are not for sale."""
    call = {"importance": np.ones(2), "gains": np.array([0.125, 0.375])}
    assert sorted(optimum_by_milp(**call, budget=2)) == [0, 2]
    assert optimum_by_milp(**call, budget=1).sum() == 1
    assert optimum_by_programming(**call, budget=2) == 1.5


def test_theorem_2s_bound_of_an_error_of_one_is_one():
    """p + rho = 1."""
    assert abs(theorem_2_upper(epsilon=1) - 1) <= 8 * 2.0**-53
    with mpmath.workdps(30):
        p, rho = 1 / (1 + mpmath.exp(-10)), 1 / (1 + mpmath.exp(10))
        exact = (p * mpmath.mpf(0.01) + rho) ** 2
        assert abs(theorem_2_upper(epsilon=0.01) - exact) <= 16 * 2.0**-53 * exact


@pytest.mark.parametrize("d", [4, 5, 128, 4096])
def test_the_half_of_a_sphere_of_any_dimension(d):
    """E[x | x > 0] = sqrt(d / pi) Gamma(d/2) / Gamma((d+1)/2), and the variance is what that leaves of 1."""
    half = Sphere(d).cell(np.array([0.0]), np.array([math.pi / 2]))
    with mpmath.workdps(40):
        mean = mpmath.sqrt(d / mpmath.pi) * mpmath.gamma(mpmath.mpf(d) / 2) / mpmath.gamma(mpmath.mpf(d + 1) / 2)
        # the quotient of two sums of 64 positive terms; a cosine off by three roundings, to the power of d - 2
        room = 2 * (64 + 4 + 3 * d) * 2.0**-53
        assert abs(half.mean[0] - mean) <= room * mean
        assert abs(half.variance[0] - (1 - mean**2)) <= 2 * room


def cached(table=None):
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, size=(2, 2, 6, 4))
    state = np.zeros((2, 4)), np.ones((2, 4)), np.zeros((2, 4)), np.ones((2, 4)), np.ones(4), np.ones(4)
    return PrefixCache(codes[0], codes[1], *state, 8, **({"table": table} if table else {}))


def test_prefixes_are_decoded_by_the_caches_own_table():
    """A table of doubled centroids doubles what every prefix stands for."""
    usual = deployed_table()
    doubled = Table(usual.thresholds, tuple(2 * level for level in usual.centroids), usual.gains)
    for rebuilt, shape in ((reconstructed_keys, (2, 4)), (reconstructed_values, (2, 6))):
        depths = np.full(shape, 3)
        assert np.array_equal(rebuilt(cached(doubled), depths), 2 * rebuilt(cached(), depths))


def test_the_deployed_table_cannot_be_written():
    table = deployed_table()
    for array in (*table.thresholds, *table.centroids, table.gains):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 7


def test_a_heads_weight_reaches_the_value_rule():
    queries, seen = np.random.default_rng(1).normal(size=(2, 3, 4)), []

    def values(importance):
        seen.append(importance)
        return np.zeros(importance.shape, dtype=np.int64)

    for weight in (None, [1.0, 4.0]):
        read_two_stages(queries, cached(), lambda i: np.full(i.shape, 8), values, value_head_weight=weight)
    assert np.array_equal(seen[1], seen[0] * np.array([[1.0], [4.0]]))


def test_two_depths_are_zero_and_all_unless_told_otherwise():
    queries = np.random.default_rng(1).normal(size=(2, 3, 4))
    call = {"queries": queries, "cache": cached(), "key_budget": 24, "value_budget": 40}
    read = read_two_depth(**call)
    assert np.sort(read["key_depths"].ravel()).tolist() == [0] * 5 + [8] * 3
    assert np.sort(read["value_depths"].ravel()).tolist() == [0] * 7 + [8] * 5
    free = read_two_depth(**call, key_lower=None, value_lower=None)
    assert set(free["key_depths"].ravel()) - {0, 8}
    assert set(free["value_depths"].ravel()) - {0, 8}


def test_no_budget_and_equal_weights_buy_nothing():
    assert continuous_depths(importance=[1.0, 1.0], depth_cap=8, budget=0).tolist() == [0.0, 0.0]
    assert continuous_depths(importance=[1.0, 1.0, 1.0], depth_cap=8, budget=6).tolist() == [2.0, 2.0, 2.0]


def test_integer_depths_of_any_type_have_an_objective():
    for dtype in (np.uint8, np.int64, np.float32):
        depths = np.array([2, 0], dtype=dtype)
        assert geometric_objective(importance=np.array([16.0, 1.0]), depths=depths) == 2.0


def test_halves_are_rounded_in_pairs():
    """Two halves always become whole together, and a whole depth between them is passed over."""
    found = [rounding([0.5] * 4, 2, seed) for seed in range(40)]
    assert {r.dtype for r in found} == {np.dtype(np.int64)}
    assert {tuple(r) for r in found} == {(1, 0, 1, 0), (1, 0, 0, 1), (0, 1, 1, 0), (0, 1, 0, 1)}
    assert {tuple(rounding([0.5, 1.0, 0.5], 2, seed)) for seed in range(20)} == {(1, 1, 0), (0, 1, 1)}
