import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq

from refimpl.checks import ArgumentError
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.waterfilling import (
    ROUNDING_LOSS,
    continuous_depths,
    dependent_rounding,
    geometric_objective,
)

EPS = 2.0**-52
weights_lists = st.lists(st.floats(2.0**-20, 2.0**20), min_size=1, max_size=8)


@given(weights_lists, st.integers(1, 8), st.floats(0.001, 0.999))
def test_depths_satisfy_the_optimality_conditions(weights, cap, part):
    a, budget = np.array(weights), part * cap * len(weights)
    t = continuous_depths(importance=a, depth_cap=cap, budget=budget)
    # log_4 of weights within 2^+-20 lies within 10 and errs by a few ulps of 10; a sum of N terms within [0, cap]
    slack = 8 * (len(a) + 20) * EPS * (cap + 10)
    assert abs(t.sum() - budget) <= slack * len(a)
    level = np.log2(a) / 2 - t  # log_4(a_i / 4^t_i): tau where interior, below it at 0, above it at the cap
    inner = (t > 0) & (t < cap)
    tau = level[inner].mean() if inner.any() else max(level[t == 0], default=min(level))
    assert (np.abs(level[inner] - tau) <= slack).all()
    assert (level[t == 0] <= tau + slack).all()
    assert (level[t == cap] >= min(tau, *level) - slack).all()
    if inner.any():
        assert (level[t == cap] >= tau - slack).all()


@given(weights_lists, st.integers(1, 8), st.floats(0.01, 0.99))
def test_depths_match_a_root_finder(weights, cap, part):
    a, budget = np.array(weights), part * cap * len(weights)
    spent = lambda x: np.clip(np.log2(a) / 2 - x, 0, cap).sum() - budget  # noqa: E731
    x = brentq(spent, -40.0, 40.0, xtol=1e-13)
    t = continuous_depths(importance=a, depth_cap=cap, budget=budget)
    # brentq stops within xtol + 4 eps |x|; the depths themselves are unique where the water level is not
    ours, theirs = (geometric_objective(importance=a, depths=s) for s in (t, np.clip(np.log2(a) / 2 - x, 0, cap)))
    assert ours <= theirs * (1 + 4 * math.log(4) * (1e-13 + 64 * (len(a) + 20) * EPS * (cap + 10)))


def test_the_papers_example_and_the_boundary_cases():
    assert continuous_depths(importance=[64.0, 1.0], depth_cap=1, budget=1).tolist() == [1.0, 0.0]
    assert continuous_depths(importance=[4.0, 0.0], depth_cap=8, budget=0).tolist() == [0.0, 0.0]
    assert continuous_depths(importance=[4.0, 0.0, 1.0], depth_cap=8, budget=16).tolist() == [8.0, 0.0, 8.0]
    assert continuous_depths(importance=[0.0, 0.0], depth_cap=8, budget=3).tolist() == [0.0, 0.0]
    assert continuous_depths(importance=[], depth_cap=8, budget=3).tolist() == []


@mpmath.workdps(40)
def test_rounding_loss_is_the_maximum_of_its_function():
    f = mpmath.mpf(4) / 3 - 1 / mpmath.log(4)
    loss = (1 - 3 * f / 4) * mpmath.power(4, f)
    assert f"{float(loss):.9f}" == "1.263740721"
    assert abs(loss - ROUNDING_LOSS) <= 8 * EPS  # five roundings of numbers below 4
    grid = [mpmath.mpf(i) / 1000 for i in range(1001)]
    assert max((1 - 3 * g / 4) * mpmath.power(4, g) for g in grid) <= loss


@given(weights_lists, st.integers(1, 6), st.data())
def test_integer_optimum_lies_between_the_continuous_one_and_its_bound(weights, cap, data):
    a = np.array(weights)
    budget = data.draw(st.integers(0, cap * len(a)))
    continuous = geometric_objective(importance=a, depths=continuous_depths(importance=a, depth_cap=cap, budget=budget))
    gains = [0.75 * 4.0**-t for t in range(cap)]
    integer = geometric_objective(importance=a, depths=readkv_choose_depths(importance=a, gains=gains, budget=budget))
    margin = 1 + 64 * (len(a) + 20) * EPS * (cap + 10)  # the continuous depths' rounding, as above
    assert continuous <= integer * margin
    assert integer <= ROUNDING_LOSS * continuous * margin


@given(weights_lists, st.integers(1, 6), st.data(), st.integers(0, 2**32 - 1))
def test_rounding_keeps_total_cap_and_neighbours(weights, cap, data, seed):
    a = np.array(weights)
    budget = data.draw(st.integers(0, cap * len(a)))
    t = continuous_depths(importance=a, depth_cap=cap, budget=budget)
    rounded = dependent_rounding(depths=t, total=budget, generator=np.random.default_rng(seed))
    assert rounded.sum() == budget
    assert ((rounded >= 0) & (rounded <= cap)).all()
    assert (np.abs(rounded - t) <= 1 + len(a) * EPS * cap).all()


def test_rounding_keeps_means():
    depths = np.array([0.25, 1.5, 0.75, 2.5])
    rng, n = np.random.default_rng(0), 4000
    mean = np.mean([dependent_rounding(depths=depths, total=5, generator=rng) for _ in range(n)], axis=0)
    # Hoeffding: P(|mean - t| > h) <= 2 exp(-2 n h^2); h = 0.06 gives 6e-13
    assert (np.abs(mean - depths) <= 0.06).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: continuous_depths(importance=[-1.0], depth_cap=1, budget=1), "importance: expected nonnegative"),
        (
            lambda: continuous_depths(importance=[1.0], depth_cap=0, budget=1),
            "depth_cap: expected a number above 0, got 0",
        ),
        (
            lambda: continuous_depths(importance=[1.0], depth_cap=1, budget=-1),
            "budget: expected a number of at least 0, got -1",
        ),
        (
            lambda: continuous_depths(importance=[1.0], depth_cap=1, budget=math.nan),
            "budget: expected a finite number, got nan",
        ),
        (
            lambda: dependent_rounding(depths=np.array([0.25]), total=1, generator=np.random.default_rng(0)),
            "total: expected the sum",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
