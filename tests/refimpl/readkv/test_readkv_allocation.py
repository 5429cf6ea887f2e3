import time
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.allocation import choose_depths_heap, choose_group_depths, readkv_choose_depths, surrogate
from refimpl.readkv.optimum import optimum_by_milp, optimum_by_programming
from refimpl.readkv.tree import deployed_table, readkv_tree

# Weights are integers up to 15 and gains dyadic with 6 bits, so every product and sum is exact in float64.
weights_lists = st.lists(st.integers(0, 15).map(float), min_size=0, max_size=6)
gain_lists = st.lists(st.integers(0, 63), min_size=1, max_size=4).map(
    lambda g: sorted((x / 64 for x in g), reverse=True)
)
instances = st.tuples(weights_lists, gain_lists).flatmap(
    lambda wg: st.tuples(st.just(wg[0]), st.just(wg[1]), st.integers(0, len(wg[0]) * len(wg[1])))
)


def exact_objective(weights, gains, depths):
    return sum(
        (
            Fraction(float(a)) * (1 - sum((Fraction(float(g)) for g in gains[:t]), Fraction(0)))
            for a, t in zip(weights, depths, strict=True)
        ),
        Fraction(0),
    )


@given(instances, st.data())
def test_heap_and_threshold_give_the_same_schedule_and_the_optimum(instance, data):
    weights, gains, budget = instance
    minimum = data.draw(st.integers(0, budget // len(weights) if weights else len(gains)))
    minimum = min(minimum, len(gains))
    arguments = {"importance": weights, "gains": gains, "budget": budget, "minimum_depth": minimum}
    depths = readkv_choose_depths(**arguments)
    assert depths.tolist() == choose_depths_heap(**arguments).tolist()
    assert depths.sum() <= budget
    assert ((depths >= minimum) & (depths <= len(gains))).all()
    assert exact_objective(weights, gains, depths) == optimum_by_programming(**arguments)


@settings(max_examples=25)  # each example starts a branch-and-bound solver
@given(instances)
def test_the_mixed_integer_program_finds_the_same_objective(instance):
    weights, gains, budget = instance
    by_program = optimum_by_milp(importance=np.array(weights), gains=np.array(gains), budget=budget)
    assert by_program.sum() <= budget
    depths = readkv_choose_depths(importance=weights, gains=gains, budget=budget)
    # the solver's own rounding is about 1e-6 of the objective; all objectives here are multiples of 1/64
    assert exact_objective(weights, gains, by_program) == exact_objective(weights, gains, depths)


@given(st.lists(st.floats(0, 1e6), max_size=40), st.integers(0, 320), st.integers(0, 8))
def test_the_schedules_agree_on_any_weights_and_the_deployed_gains(weights, budget, minimum):
    gains = readkv_tree(depth=8)["gains"]
    budget = min(budget, 8 * len(weights))
    minimum = min(minimum, budget // len(weights)) if weights else 0
    arguments = {"importance": weights, "gains": gains, "budget": budget, "minimum_depth": minimum}
    assert readkv_choose_depths(**arguments).tolist() == choose_depths_heap(**arguments).tolist()


@given(instances)
def test_a_power_of_two_on_all_weights_changes_nothing(instance):
    weights, gains, budget = instance
    scaled = [w * 2.0**-30 for w in weights]
    a = readkv_choose_depths(importance=weights, gains=gains, budget=budget)
    assert a.tolist() == readkv_choose_depths(importance=scaled, gains=gains, budget=budget).tolist()


def test_ties_go_to_the_lower_item():
    gains = [0.5, 0.5, 0.25]
    for choose in (readkv_choose_depths, choose_depths_heap):
        assert choose(importance=[1, 1, 1], gains=gains, budget=2).tolist() == [2, 0, 0]  # levels of item 0 tie as well
        assert choose(importance=[1, 1, 1], gains=gains, budget=5).tolist() == [2, 2, 1]
        assert choose(importance=[1, 2, 1], gains=gains, budget=4).tolist() == [2, 2, 0]


def test_zero_gains_are_never_bought_but_the_minimum_depth_is():
    gains = readkv_tree(depth=8)["gains"]
    for choose in (readkv_choose_depths, choose_depths_heap):
        assert choose(importance=[1, 0, 0, 0], gains=gains, budget=20).tolist() == [8, 0, 0, 0]
        assert choose(importance=[1, 0, 0, 0], gains=gains, budget=20, minimum_depth=1).tolist() == [8, 1, 1, 1]
        assert choose(importance=[1, 1], gains=[0.5, 0.0], budget=4).tolist() == [1, 1]
        assert choose(importance=[], gains=gains, budget=0).tolist() == []
        assert choose(importance=[3.0], gains=[], budget=0).tolist() == [0]
        assert choose(importance=[1.0, 1.0], gains=[0.5], budget=2, minimum_depth=1).tolist() == [1, 1]


def test_theorem_2_gives_all_eight_levels_to_the_heavy_token():
    p, rho = 1 / (1 + np.exp(-10)), 1 / (1 + np.exp(10))
    gains = readkv_tree(depth=8)["gains"]
    assert readkv_choose_depths(importance=[rho**2, p**2], gains=gains, budget=8).tolist() == [0, 8]
    assert readkv_choose_depths(importance=[rho**2, p**2], gains=gains, budget=9).tolist() == [1, 8]


def test_equal_weights_fill_level_by_level():
    gains = readkv_tree(depth=8)["gains"]  # E.1.3: strictly falling gains, budget 2d
    assert set(readkv_choose_depths(importance=np.ones(128), gains=gains, budget=256).tolist()) == {2}


@pytest.mark.parametrize("rate", [1, 2, 4])
def test_half_a_million_items_in_under_a_second(rate):
    N = 4 * 131072
    importance = np.random.default_rng(0).exponential(size=N) ** 4
    gains = deployed_table().gains
    started = time.process_time()
    depths = readkv_choose_depths(importance=importance, gains=gains, budget=rate * N)
    assert time.process_time() - started < 1.0
    assert depths.sum() == rate * N


def test_grouped_items_stop_at_the_first_step_that_does_not_fit():
    gains = np.array([0.5, 0.25])
    choose = {"gains": gains, "minimum_depth": 0}
    weights, costs = np.array([1.0, 4.0, 0.5]), np.array([2, 2, 1])
    spend = [choose_group_depths(importance=weights, costs=costs, budget=b, **choose).tolist() for b in range(11)]
    # steps in order: item 1 (gain 2), item 1 (1), item 0 (1/2), then items 0 and 2 tie at 1/4, then item 2 (1/8)
    assert spend[:6] == [[0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 2, 0], [0, 2, 0]]
    assert spend[6:] == [[1, 2, 0], [1, 2, 0], [2, 2, 0], [2, 2, 1], [2, 2, 2]]


@given(instances, st.data())
def test_grouped_items_of_cost_one_are_the_plain_rule(instance, data):
    weights, gains, budget = instance
    minimum = min(data.draw(st.integers(0, 3)), budget // len(weights) if weights else 0, len(gains))
    plain = readkv_choose_depths(importance=weights, gains=gains, budget=budget, minimum_depth=minimum)
    grouped = choose_group_depths(
        importance=np.array(weights),
        costs=np.ones(len(weights), dtype=int),
        gains=np.array(gains),
        budget=budget,
        minimum_depth=minimum,
    )
    assert plain.tolist() == grouped.tolist()


@given(instances)
def test_the_surrogate_is_the_exact_objective(instance):
    weights, gains, budget = instance
    depths = readkv_choose_depths(importance=weights, gains=gains, budget=budget)
    value = surrogate(importance=np.array(weights), depths=depths, gains=np.array(gains))
    assert Fraction(value) == exact_objective(weights, gains, depths)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"importance": [1.0, -2.0]}, r"importance: expected nonnegative weights, got -2.0 at \[1\]"),
        ({"importance": [1.0, np.nan]}, r"importance: expected finite values, got nan at \[1\]"),
        ({"importance": [np.inf, 1.0]}, "importance: expected finite values"),
        ({"gains": [0.25, 0.5]}, r"gains: expected nonincreasing gains \(Proposition 8\), got 0.25 then 0.5"),
        ({"gains": [0.25, -0.5]}, r"gains: expected nonnegative gains \(Proposition 8\), got -0.5 at \[1\]"),
        ({"budget": -1}, "budget: expected at least 0, got -1"),
        ({"budget": 1.0}, "budget: expected a whole number"),
        (
            {"budget": 1, "minimum_depth": 1},
            "minimum_depth: expected one that fits the budget, got 2 items x 1 = 2 > 1",
        ),
        ({"minimum_depth": 3}, "minimum_depth: expected in 0..2"),
    ],
)
@pytest.mark.parametrize("choose", [readkv_choose_depths, choose_depths_heap])
def test_bad_arguments(choose, changes, message):
    arguments = {"importance": [1.0, 2.0], "gains": [0.5, 0.25], "budget": 2} | changes
    with pytest.raises(ArgumentError, match=message):
        choose(**arguments)


@pytest.mark.parametrize("choose", [readkv_choose_depths, choose_depths_heap])
def test_a_budget_beyond_all_refinements_buys_all_of_them(choose):
    depths = choose(importance=[1.0, 2.0, 0.0], gains=[0.5, 0.25], budget=1000)
    assert depths.tolist() == [2, 2, 0]  # a gain of 0 is never bought
