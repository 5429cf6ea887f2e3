from fractions import Fraction

import numpy as np
import pytest

from refimpl.checks import ArgumentError
from refimpl.readkv.importance import physical_head_weight, readkv_key_importance, readkv_value_importance

U = 2.0**-53


def gamma(n):
    return n * U / (1 - n * U)


def test_key_importance_against_rationals():
    rng = np.random.default_rng(0)
    H, G, d = 2, 3, 4
    queries, scale = rng.normal(size=(H, G, d)), rng.uniform(0.5, 2, size=(H, d))
    result = readkv_key_importance(rotated_queries=queries, key_scale=scale)
    for h, c in np.ndindex(H, d):
        exact = sum((Fraction(float(queries[h, g, c])) * Fraction(float(scale[h, c]))) ** 2 for g in range(G))
        assert abs(Fraction(float(result[h, c])) - exact) <= Fraction(gamma(G + 2)) * exact  # all terms positive


def test_value_importance_against_rationals():
    weights = np.random.default_rng(1).dirichlet(np.ones(5), size=(2, 3))
    factor = np.array([0.3, 2.0])
    result = readkv_value_importance(weights=weights, value_head_weight=factor)
    for h, t in np.ndindex(2, 5):
        exact = Fraction(float(factor[h])) * sum(Fraction(float(w)) ** 2 for w in weights[h, :, t])
        assert abs(Fraction(float(result[h, t])) - exact) <= Fraction(gamma(3 + 2)) * exact


def test_exact_values_and_the_default_factor():
    assert readkv_key_importance(rotated_queries=[[[3.0], [4.0]]], key_scale=[[2.0]]).tolist() == [[100.0]]
    weights = [[[0.5, 0.25]], [[1.0, 0.0]]]
    assert readkv_value_importance(weights=weights).tolist() == [[0.25, 0.0625], [1.0, 0.0]]
    assert readkv_value_importance(weights=weights, value_head_weight=[4, 0]).tolist() == [[1.0, 0.25], [0.0, 0.0]]


def test_the_physical_factor_is_the_total_variance():
    assert physical_head_weight(value_scale=[[3.0, 4.0], [1.0, 1.0]]).tolist() == [25.0, 2.0]


def test_empty_groups_and_tokens():
    assert readkv_value_importance(weights=np.zeros((2, 3, 0))).shape == (2, 0)
    assert (
        readkv_key_importance(rotated_queries=np.zeros((2, 0, 4)), key_scale=np.ones((2, 4))).tolist()
        == [[0.0] * 4] * 2
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readkv_key_importance(rotated_queries=[[[1.0]]], key_scale=[[0.0]]), "key_scale: .* dead channel"),
        (lambda: readkv_key_importance(rotated_queries=[[[1.0]]], key_scale=[[-1.0]]), "key_scale: .* dead channel"),
        (lambda: readkv_key_importance(rotated_queries=[[[np.inf]]], key_scale=[[1.0]]), "rotated_queries: .* finite"),
        (lambda: readkv_key_importance(rotated_queries=[[[1.0, 2.0]]], key_scale=[[1.0]]), "key_scale: expected shape"),
        (lambda: readkv_value_importance(weights=[[[np.nan]]]), "weights: expected finite"),
        (lambda: readkv_value_importance(weights=[[[1.0]]], value_head_weight=[-1.0]), "value_head_weight: .* nonneg"),
        (lambda: physical_head_weight(value_scale=[[0.0]]), "value_scale: .* dead channel"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
