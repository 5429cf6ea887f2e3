"""Every function with a softmax_scale: a factor may move between scale and queries, and None is 1/sqrt(d)."""

import math

import numpy as np
import pytest
import valid_calls_baselines
import valid_calls_locks
import valid_calls_readkv
from argument_kinds import Reals

CALLS = [c for t in (valid_calls_locks, valid_calls_readkv, valid_calls_baselines) for c in t.CALLS]
SCALED = [(f, a) for f, a in CALLS if "softmax_scale" in a and {"queries", "query_mean"} & set(a)]
IDS = [f.__qualname__ for f, _ in SCALED]


def drawn(arguments, seed=5):
    """The valid call with every free float array drawn anew, so that selections depend on the scale."""
    rng = np.random.default_rng(seed)
    values = {}
    for name, kind in arguments.items():
        free = isinstance(kind, Reals) and kind.low is None and kind.above is None and "signs" not in name
        values[name] = rng.normal(size=kind.value.shape) if free else kind.value
    if "queries" in arguments and not isinstance(arguments["queries"], Reals):
        values["queries"] = rng.normal(size=values["queries"].shape)
    if "minimum" in values:
        values["maximum"] = values["minimum"] + 1
    return values


def times(values, factor):
    """The same call with all queries multiplied; a covariance of queries takes the factor twice."""
    powers = {"queries": 1, "query_mean": 1, "query_covariance": 2}
    return {name: value * factor ** powers[name] if name in powers else value for name, value in values.items()}


def results(function, arguments):
    result = function(**arguments)
    return result if isinstance(result, dict) else {"": result}


def assert_same(one, other):
    assert set(one) == set(other)
    for name in one:
        assert np.array_equal(one[name], other[name]), name


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("function", "arguments"), SCALED, ids=IDS)
def test_a_factor_moves_between_scale_and_queries(function, arguments, seed):
    """Powers of two are exact, so the results are the same bit for bit."""
    values = drawn(arguments, seed)
    at_two = results(function, values | {"softmax_scale": 2.0})
    assert_same(at_two, results(function, times(values, 64.0) | {"softmax_scale": 1 / 32}))
    at_none = results(function, values | {"softmax_scale": 0.0})
    assert any(not np.array_equal(at_two[name], at_none[name]) for name in at_two), "the draw does not show the scale"


@pytest.mark.parametrize(("function", "arguments"), SCALED, ids=IDS)
def test_no_scale_is_one_over_the_root_of_the_channels(function, arguments):
    values = drawn(arguments)
    given = results(function, values | {"softmax_scale": 1 / math.sqrt(8)})
    assert_same(results(function, values | {"softmax_scale": None}), given)
    del values["softmax_scale"]
    assert_same(results(function, values), given)
