"""The library's ReadKV stages one by one against the second reference, each within the rounding of float64.

With u = 2^-53 and gamma_n = n u / (1 - n u): a rotation sums d signed terms, takes a root and divides; an importance is
a product, a square and a sum over the query heads. Tables, codes, and allocations of small integers are exact.
"""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from proofs_checks.golden.second import reader, tree
from proofs_checks.golden.second.allocation import choose_depths
from refimpl import port

UNIT = mpf(2) ** -53


@pytest.fixture(autouse=True)
def _digits():
    with mpmath.workdps(60):
        yield


def gamma(count):
    return count * UNIT / (1 - count * UNIT)


def real(number):
    return mpf(number.numerator) / number.denominator


def within(got, expected, bounds):
    assert len(got) == len(expected) == len(bounds)
    for x, y, bound in zip(got, expected, bounds, strict=True):
        assert abs(mpf(x) - y) <= bound, f"{x} is not {y} within {bound}"


def test_the_float32_tables_are_equal_bit_for_bit():
    own, got = tree.deployed_tree(), port.readkv_tree(depth=8)
    for name in ("thresholds", "centroids"):
        assert [row.dtype for row in got[name]] == [np.float32] * len(getattr(own, name))
        assert [[Fraction(float(x)) for x in row] for row in got[name]] == getattr(own, name)
    assert [Fraction(float(x)) for x in got["gains"]] == own.gains


def test_a_shallow_tree_is_the_top_of_the_deep_one():
    own, got = tree.deployed_tree(), port.readkv_tree(depth=3)
    assert [[Fraction(float(x)) for x in row] for row in got["thresholds"]] == own.thresholds[:3]
    assert [[Fraction(float(x)) for x in row] for row in got["centroids"]] == own.centroids[:4]
    assert [Fraction(float(x)) for x in got["gains"]] == own.gains[:3]


def test_every_prefix_of_every_code_decodes_to_the_same_number():
    codes = np.arange(256, dtype=np.uint8)
    for depth in range(9):
        got = port.readkv_decode(codes=codes, depth=depth)
        assert [Fraction(float(x)) for x in got] == [tree.decode(code, depth) for code in range(256)]


def test_codes_are_equal_also_on_and_beside_every_threshold():
    cuts = [np.float64(float(cut)) for level in tree.deployed_tree().thresholds for cut in level]
    near = [np.nextafter(cut, side) for cut in cuts for side in (-np.inf, np.inf)]
    far = [-1e300, -9.0, -0.0, 0.0, 5e-324, 9.0, 1e300]
    z = np.array([*cuts, *near, *far, *np.random.default_rng(1).normal(size=200)])
    assert port.readkv_encode(z=z).tolist() == [tree.encode(x) for x in z.tolist()]


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_rotations_agree(size):
    rng = np.random.default_rng(size)
    signs = rng.choice([-1.0, 1.0], size)
    x = rng.normal(size=(3, size))
    for got, row in zip(port.readkv_rotate(x=x, signs=signs).tolist(), x.tolist(), strict=True):
        spread = sum(abs(mpf(value)) for value in row) / mpmath.sqrt(size)
        within(got, reader.rotate(row, signs.tolist()), [gamma(size + 3) * spread] * size)


def test_importances_agree():
    rng = np.random.default_rng(2)
    q, sigma = rng.normal(size=(2, 3, 4)), rng.uniform(0.1, 9, (2, 4))
    got = port.readkv_key_importance(rotated_queries=q, key_scale=sigma)
    for row, own in zip(got.tolist(), reader.key_importance(q.tolist(), sigma.tolist()), strict=True):
        within(row, [real(a) for a in own], [gamma(3 + 4) * real(a) for a in own])
    weights, head_weight = rng.dirichlet(np.ones(5), (2, 3)), np.array([0.0, 2.5])
    got = port.readkv_value_importance(weights=weights, value_head_weight=head_weight)
    for row, own in zip(got.tolist(), reader.value_importance(weights.tolist(), head_weight.tolist()), strict=True):
        within(row, [real(a) for a in own], [gamma(3 + 3) * real(a) for a in own])


@pytest.mark.parametrize("minimum_depth", [0, 1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_allocations_of_small_integers_are_equal_ties_included(seed, minimum_depth):
    rng = np.random.default_rng(seed)
    importance = rng.integers(0, 4, 7).astype(float)
    gains = np.sort(rng.integers(0, 5, 5))[::-1].astype(float)
    for budget in range(7 * minimum_depth, 7 * 5 + 1):
        got = port.readkv_choose_depths(importance=importance, gains=gains, budget=budget, minimum_depth=minimum_depth)
        assert got.tolist() == choose_depths(importance.tolist(), gains.tolist(), budget, minimum_depth)
