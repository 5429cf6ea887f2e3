import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.reader import PrefixCache, readkv_attention
from refimpl.readkv.restricted import (
    Restrictions,
    group_chooser,
    pair_costs,
    read_restricted,
    readkv_restricted_attention,
)
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import deployed_table

FREE = Restrictions(equal_rates=False, per_head=False, minimum_depth=0, paired_values=False)


def arguments_of(seed, H, G, T, d, stored_depth=8):
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, 256, size=(2, H, T, d))
    mean, scale = rng.normal(size=(2, H, d)), rng.uniform(0.5, 3, size=(2, H, d))
    signs = rng.choice([-1.0, 1.0], size=(2, d))
    names = [("key_codes", "value_codes"), ("key_mean", "value_mean"), ("key_scale", "value_scale")]
    arguments = {n: a[i] for pair, a in zip(names, (codes, mean, scale), strict=True) for i, n in enumerate(pair)}
    arguments |= {"key_signs": signs[0], "value_signs": signs[1]}
    return {"queries": 2 * rng.normal(size=(H, G, d)), **arguments, "stored_depth": stored_depth}


def cache_of(arguments):
    return PrefixCache(**{name: value for name, value in arguments.items() if name != "queries"})


def greedy_by_hand(importance, rate, gains, paired):
    """One head's depths by repeated scanning, as the text says it: an independent, slow restatement."""
    N = len(importance)
    groups = [range(i, min(i + 2, N)) for i in range(0, N, 2)] if paired else [[i] for i in range(N)]
    weights = [sum(float(importance[i]) for i in group) for group in groups]
    depths = [1] * len(groups)
    left = math.floor(Fraction(str(rate)) * N) - N
    while True:
        gain, best = max(
            ((w * gains[t], -i) for i, (w, t) in enumerate(zip(weights, depths, strict=True)) if t < len(gains)),
            default=(0, 0),
        )
        if gain <= 0 or len(groups[-best]) > left:
            break
        depths[-best] += 1
        left -= len(groups[-best])
    return [depths[g] for g, group in enumerate(groups) for _ in group]


@settings(max_examples=30)
@given(
    st.integers(0, 2**32 - 1), st.integers(0, 9), st.sampled_from([1, 1.25, 1.5, 2, 3.75, 4]), st.sampled_from([4, 8])
)
def test_schedules_are_those_of_the_rule_written_out(seed, T, rate, stored):
    arguments = arguments_of(seed, 2, 2, T, 8, stored)
    result = readkv_restricted_attention(**arguments, rate=rate)
    gains = deployed_table().gains[:stored].astype(float)
    rotated = readkv_rotate(x=arguments["queries"], signs=arguments["key_signs"])
    keys = readkv_key_importance(rotated_queries=rotated, key_scale=arguments["key_scale"])
    values = readkv_value_importance(weights=result["weights"])
    for h in range(2):
        assert result["key_depths"][h].tolist() == greedy_by_hand(keys[h], rate, gains, paired=False)
        assert result["value_depths"][h].tolist() == greedy_by_hand(values[h], rate, gains, paired=True)
        assert result["key_depths"][h].sum() <= math.floor(rate * 8)
        assert result["value_depths"][h].sum() <= math.floor(rate * T)


@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_pairs_share_a_depth_of_at_least_one(seed, T):
    depths = readkv_restricted_attention(**arguments_of(seed, 1, 3, T, 4), rate=2)["value_depths"][0]
    assert (depths >= 1).all()
    assert (depths[0 : T - 1 : 2] == depths[1::2]).all()


def test_the_budget_is_per_head():
    arguments = arguments_of(0, 2, 1, 8, 8)
    arguments["queries"][1] *= 100  # pooled, this head would take nearly everything
    result = readkv_restricted_attention(**arguments, rate=2)
    assert result["key_depths"].sum(axis=1).tolist() == [16, 16]


def test_all_switches_off_is_the_flexible_reader():
    arguments = arguments_of(1, 2, 2, 7, 8)
    flexible = readkv_attention(**arguments, key_budget=3 * 2 * 8, value_budget=2 * 7)
    free = read_restricted(arguments["queries"], cache_of(arguments), 3, 1, FREE)
    for name, value in flexible.items():
        assert np.array_equal(value, free[name]), name


@pytest.mark.parametrize(
    ("switch", "violates"),
    [
        ({"per_head": True}, lambda free: len({int(n) for n in free["key_depths"].sum(axis=1)}) > 1),
        ({"minimum_depth": 1}, lambda free: free["key_depths"].min() == 0),
        ({"paired_values": True}, lambda free: (free["value_depths"][:, 0::2] != free["value_depths"][:, 1::2]).any()),
    ],
)
def test_each_switch_alone_changes_what_it_names(switch, violates):
    arguments = arguments_of(2, 2, 2, 8, 8)
    free = read_restricted(arguments["queries"], cache_of(arguments), 2, 2, FREE)
    restrictions = Restrictions(
        **({"equal_rates": False, "per_head": False, "minimum_depth": 0, "paired_values": False} | switch)
    )
    restricted = read_restricted(arguments["queries"], cache_of(arguments), 2, 2, restrictions)
    assert violates(free)
    assert not violates(restricted)


def test_unequal_rates_need_the_switch_off():
    arguments = arguments_of(3, 1, 1, 4, 4)
    with pytest.raises(ArgumentError, match="value_rate: expected the key rate 3"):
        read_restricted(arguments["queries"], cache_of(arguments), 3, 1, Restrictions())
    unequal = read_restricted(arguments["queries"], cache_of(arguments), 3, 1, Restrictions(equal_rates=False))
    assert unequal["value_depths"].tolist() == [[1, 1, 1, 1]]  # R_V = 1 with minimum depth 1 is uniform (F.6)


def test_the_remainder_stays_unspent():
    choose = group_chooser(np.array([0.5, 0.25, 0.125]), 2, per_head=True, minimum_depth=1, paired=True)
    # 3 tokens, 6 refinements: 3 for the minimum; the pair (weight 2) takes 2, then its next step (.25) does not fit 1,
    # though the last token (weight 1/2, gain .125) would
    assert choose(np.array([[1.0, 1.0, 0.5]])).tolist() == [[2, 2, 1]]
    # weight 8 first: it takes two steps of 1, then the pair's step of 2 does not fit
    assert choose(np.array([[1.0, 1.0, 16.0]])).tolist() == [[1, 1, 3]]


def test_pair_costs():
    assert pair_costs(0).tolist() == []
    assert pair_costs(1).tolist() == [1]
    assert pair_costs(4).tolist() == [2, 2]


@pytest.mark.parametrize(
    ("rate", "message"),
    [
        (0.5, "rate: expected at least 1"),
        (8.5, "rate: expected at most the stored depth 8"),
        ("2", "rate: expected a finite"),
    ],
)
def test_bad_rates(rate, message):
    with pytest.raises(ArgumentError, match=message):
        readkv_restricted_attention(**arguments_of(4, 1, 1, 3, 4), rate=rate)


def test_an_empty_cache():
    result = readkv_restricted_attention(**arguments_of(5, 2, 2, 0, 4), rate=2)
    assert (result["output"] == 0).all()
    assert result["value_depths"].shape == (2, 0)
    assert result["key_depths"].sum() == 16


def test_a_chooser_names_its_rate():
    choose = group_chooser(np.array([0.5, 0.25]), 3, per_head=True, minimum_depth=0, paired=False)
    with pytest.raises(ArgumentError, match="rate: expected at most the stored depth 2, got 3"):
        choose(np.ones((1, 2)))
