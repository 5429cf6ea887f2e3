import numpy as np
import pytest

from refimpl.checks import ArgumentError
from refimpl.readkv.allocation import readkv_choose_depths, surrogate
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.policies import (
    calibration_key_importance,
    protected_layers,
    read_calibrated,
    read_full,
    read_layer,
    read_schedule,
    read_two_depth,
    read_uniform,
    two_depth_count,
    two_depth_schedule,
    two_depth_spent,
)
from refimpl.readkv.reader import PrefixCache, readkv_attention
from refimpl.readkv.rotation import readkv_rotate

H, G, T, D = 2, 2, 12, 8


@pytest.fixture
def cache():
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 256, size=(2, H, T, D))
    mean, scale = rng.normal(size=(2, H, D)), rng.uniform(0.5, 3, size=(2, H, D))
    signs = rng.choice([-1.0, 1.0], size=(2, D))
    return PrefixCache(codes[0], codes[1], mean[0], scale[0], mean[1], scale[1], signs[0], signs[1])


@pytest.fixture
def queries():
    return np.random.default_rng(1).normal(size=(H, G, D))


def stage(cache, queries, key_budget, value_budget):
    names = (
        "key_codes",
        "value_codes",
        "key_mean",
        "key_scale",
        "value_mean",
        "value_scale",
        "key_signs",
        "value_signs",
    )
    arrays = {name: getattr(cache, name) for name in names}
    return readkv_attention(queries=queries, **arrays, key_budget=key_budget, value_budget=value_budget)


def same(a, b):
    return all(np.array_equal(a[name], b[name]) for name in ("output", "key_depths", "value_depths", "weights"))


def test_full_reading_is_every_refinement(cache, queries):
    assert same(read_full(queries=queries, cache=cache), stage(cache, queries, H * D * 8, H * T * 8))


def test_uniform_reading_has_one_depth_per_stage(cache, queries):
    result = read_uniform(queries=queries, cache=cache, key_depth=3, value_depth=1)
    assert (result["key_depths"] == 3).all()
    assert (result["value_depths"] == 1).all()


def test_a_given_schedule_reproduces_the_reader_that_chose_it(cache, queries):
    chosen = stage(cache, queries, 30, 40)
    again = read_schedule(
        queries=queries, cache=cache, key_depths=chosen["key_depths"], value_depths=chosen["value_depths"]
    )
    assert same(chosen, again)


def test_calibrated_reading_ignores_the_query(cache, queries):
    calibration = np.random.default_rng(2).normal(size=(5, H, G, D))
    importance = calibration_key_importance(rotated_queries=calibration, key_scale=cache.key_scale)
    mean = np.mean([readkv_key_importance(rotated_queries=q, key_scale=cache.key_scale) for q in calibration], axis=0)
    assert (np.abs(importance - mean) <= 16 * 2.0**-53 * mean).all()  # the same fifteen positive terms, reordered
    schedules = [
        read_calibrated(
            queries=q,
            cache=cache,
            key_importance=importance,
            value_importance=np.ones((H, T)),
            key_budget=33,
            value_budget=30,
        )
        for q in (queries, -3 * queries)
    ]
    for name in ("key_depths", "value_depths"):
        assert np.array_equal(schedules[0][name], schedules[1][name])
    assert schedules[0]["value_depths"].ravel().tolist() == [2] * 6 + [1] * 18  # level by level, lower item first


def test_current_query_allocation_has_the_least_surrogate_of_all_policies(cache, queries):
    gains = cache.gains
    rotated = readkv_rotate(x=queries, signs=cache.key_signs)
    keys = readkv_key_importance(rotated_queries=rotated, key_scale=cache.key_scale).ravel()
    current = stage(cache, queries, 2 * H * D, 2 * H * T)
    others = [
        read_uniform(queries=queries, cache=cache, key_depth=2, value_depth=2),
        read_two_depth(queries=queries, cache=cache, key_budget=2 * H * D, value_budget=2 * H * T, key_lower=0),
        read_two_depth(queries=queries, cache=cache, key_budget=2 * H * D, value_budget=2 * H * T, key_lower=1),
    ]
    best = surrogate(importance=keys, depths=current["key_depths"].ravel(), gains=gains)
    slack = 64 * 2.0**-53 * keys.sum()  # 2 N roundings of terms that sum to at most sum(keys)
    for other in others:
        assert best <= surrogate(importance=keys, depths=other["key_depths"].ravel(), gains=gains) + slack


@pytest.mark.parametrize("lower", [0, 1])
def test_two_depth_schedules_spend_what_f6_says(lower):
    importance = np.random.default_rng(3).exponential(size=20)
    for budget in (20, 41, 63, 159, 160):
        count = two_depth_count(items=20, lower=lower, upper=8, budget=budget)
        depths = two_depth_schedule(importance=importance, lower=lower, upper=8, budget=budget)
        spent = two_depth_spent(items=20, lower=lower, upper=8, count=count)
        assert depths.sum() == spent <= budget < spent + (8 - lower) + (160 if count == 20 else 0)
        assert set(depths.tolist()) <= {lower, 8}
        assert (depths == 8).sum() == count
        if 0 < count < 20:
            assert importance[depths == 8].min() >= importance[depths == lower].max()


def test_two_depth_ties_go_to_the_lower_item():
    assert two_depth_schedule(importance=[1, 1, 1], lower=0, upper=4, budget=8).tolist() == [4, 4, 0]
    # enough items that an unstable sort would shuffle them
    mixed = np.arange(200) % 2
    depths = two_depth_schedule(importance=mixed, lower=0, upper=4, budget=120 * 4)
    assert np.flatnonzero(depths).tolist() == sorted([*range(1, 200, 2), *range(0, 40, 2)])


def test_restricting_one_stage_leaves_the_other_multilevel(cache, queries):
    values_only = read_two_depth(
        queries=queries, cache=cache, key_budget=32, value_budget=48, key_lower=None, value_lower=1
    )
    flexible = stage(cache, queries, 32, 48)
    assert np.array_equal(values_only["key_depths"], flexible["key_depths"])
    assert np.array_equal(values_only["weights"], flexible["weights"])  # identical reconstructed keys
    assert set(values_only["value_depths"].ravel().tolist()) == {1, 8}
    importance = readkv_value_importance(weights=flexible["weights"]).ravel()
    expected = readkv_choose_depths(importance=importance, gains=cache.gains, budget=48)
    assert flexible["value_depths"].ravel().tolist() == expected.tolist()


def test_protected_layers_and_their_dispatch():
    assert protected_layers(layers=28).count(True) == 4
    assert protected_layers(layers=3) == [True, True, True]
    assert protected_layers(layers=4, edge=0) == [False] * 4
    protected = protected_layers(layers=5)
    read = [read_layer(layer=i, protected=protected, dense=lambda: "d", compressed=lambda: "r") for i in range(5)]
    assert "".join(read) == "ddrdd"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: two_depth_count(items=3, lower=1, upper=8, budget=2), "lower: expected a depth that fits"),
        (lambda: two_depth_count(items=3, lower=8, upper=8, budget=99), "upper: expected at least 9"),
        (
            lambda: calibration_key_importance(rotated_queries=np.zeros((0, 1, 1, 2)), key_scale=[[1, 1]]),
            "at least one",
        ),
        (lambda: two_depth_schedule(importance=[-1.0], lower=0, upper=8, budget=8), "importance: expected nonnegative"),
        (
            lambda: read_layer(layer=2, protected=[True], dense=lambda: 0, compressed=lambda: 1),
            "layer: expected in 0..0",
        ),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()


def test_schedules_beyond_what_is_stored_are_refused(cache, queries):
    with pytest.raises(ArgumentError, match=r"key_depths: expected values in 0\.\.8"):
        read_schedule(queries=queries, cache=cache, key_depths=np.full((H, D), 9), value_depths=np.zeros((H, T), int))
