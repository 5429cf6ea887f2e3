"""Rounding once: against Python's own fractions, decimals and NumPy's casts."""

import math
from decimal import ROUND_CEILING, Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proofs_checks.golden.digits import mp, mpf
from proofs_checks.golden.rounding import RoundingError, fraction, round_once, rounded, three_digits_up


@given(st.floats(allow_nan=False, width=32))
def test_float32_numbers_stay(x):
    assert round_once(mpf(x), "float32") == x


@given(st.floats(min_value=-3e38, max_value=3e38, allow_nan=False))
def test_one_rounding_to_float32_is_that_of_the_hardware(x):
    assert round_once(Fraction(x), "float32") == float(np.float32(x))


def test_a_number_just_beside_a_tie_is_rounded_once_not_twice():
    """1 + 2^-24 + 2^-80 lies above a float32 tie; through float64 it would become the tie and go to even."""
    x = 1 + mpf(2) ** -24 + mpf(2) ** -80
    assert float(np.float32(float(x))) == 1.0
    assert round_once(x, "float32") == 1 + 2.0**-23
    assert round_once(1 + mpf(2) ** -53 + mpf(2) ** -120) == 1 + 2.0**-52
    assert round_once(-x, "float32") == -(1 + 2.0**-23)


def test_infinities_and_shapes_stay():
    assert rounded([[mpf(1) / 3, mp.ninf], [Fraction(1, 3), 0.5]]).tolist() == [[1 / 3, -math.inf], [1 / 3, 0.5]]
    assert fraction(-mpf(1) / 4) == Fraction(-1, 4)


def three_digits(x):
    return float(Context(prec=3, rounding=ROUND_CEILING).create_decimal(Decimal(x)))


@given(st.floats(min_value=1e-37, max_value=1e30))
def test_bounds_go_up_to_three_digits(x):
    try:
        up = float(three_digits_up(np.array([x]))[0])
    except RoundingError:
        assert three_digits(x) != three_digits(x * (1 + 4e-12)), "only just below a step"
        return
    assert x <= up
    assert three_digits(x * (1 + 1e-12)) <= up <= three_digits(x * (1 + 1e-12)) * (1 + 2.0**-22)


def test_noise_of_float64_moves_no_stored_bound():
    """A bound on a step goes one up, and stays there under noise; just below, noise could show, so it is refused."""
    for x in (0.123, 0.123 * (1 - 1e-13), 0.123 * (1 + 1e-13)):
        assert three_digits_up(np.array([x]))[0] == np.nextafter(
            np.float32(0.124), np.float32(1)
        )  # 0.124 itself is less
    with pytest.raises(RoundingError, match="three digits"):
        three_digits_up(np.array([0.123 * (1 - 2e-12)]))
    assert three_digits_up(np.array([0.123 * (1 - 4e-12)]))[0] == np.float32(0.123)  # which is more than 0.123
