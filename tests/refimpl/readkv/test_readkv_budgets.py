from fractions import Fraction

import pytest

from refimpl.checks import ArgumentError
from refimpl.readkv.budgets import (
    Split,
    budget_of_rate,
    choose_split,
    exact_rate,
    integer_splits,
    mean_payload_rate,
    payload_bits,
)


def test_rates_are_floored_exactly():
    budget = lambda rate, items: budget_of_rate(rate=rate, items=items, stored_depth=8)  # noqa: E731
    assert budget(2, 1344) == 2688
    assert budget(0.29, 100) == 29  # the float product is 28.999999999999996
    assert budget(2.3, 10) == 23
    assert budget(Fraction(1, 3), 10) == 3
    assert budget(8, 0) == 0


@pytest.mark.parametrize("rate", [-1, float("nan"), float("inf"), "2", True])
def test_rates_that_are_no_rates(rate):
    with pytest.raises(ArgumentError, match="rate: expected a"):
        exact_rate("rate", rate)


def test_a_rate_above_what_is_stored_is_refused():
    with pytest.raises(ArgumentError, match="rate: expected at most the stored depth 4, got 5"):
        budget_of_rate(rate=5, items=3, stored_depth=4)


def test_mean_rate_is_the_mean_of_the_stages():
    rate = mean_payload_rate(key_budget=3 * 2 * 64, value_budget=1 * 2 * 100, heads=2, tokens=100, channels=64)
    assert rate == Fraction(3 + 1, 2)
    assert payload_bits(key_refinements=3 * 2 * 64, value_refinements=200, tokens=100, channels=64) == 38400 + 12800


def test_theorem_2_reads_2_00390625_bits():
    rate = mean_payload_rate(key_budget=1, value_budget=8, heads=1, tokens=2, channels=128)
    assert float(rate) == 2.00390625


def test_integer_splits_of_the_papers_rates():
    assert integer_splits(rate=2, stored_depth=8) == [Split(k, 4 - k) for k in range(5)]
    assert integer_splits(rate=4, stored_depth=4) == [Split(4, 4)]
    assert integer_splits(rate=1.5, stored_depth=2) == [Split(1, 2), Split(2, 1)]


def test_the_chosen_split_has_the_least_loss_and_ties_go_to_fewer_key_bits():
    losses = {0: 3.0, 1: 1.0, 2: 2.0, 3: 1.0, 4: 5.0}
    seen = []
    chosen = choose_split(rate=2, stored_depth=8, development_loss=lambda s: seen.append(s) or losses[s.key_rate])
    assert chosen == Split(1, 3)
    assert len(seen) == 5


@pytest.mark.parametrize("rate", [0.3, 9, 4.5])
def test_rates_without_integer_splits(rate):
    with pytest.raises(ArgumentError, match="rate: expected a multiple of 1/2"):
        integer_splits(rate=rate, stored_depth=4)


def test_an_undefined_loss_is_an_error():
    with pytest.raises(ArgumentError, match="development_loss: expected numbers"):
        choose_split(rate=1, stored_depth=8, development_loss=lambda s: float("nan"))
