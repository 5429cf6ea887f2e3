"""Huge and tiny keys: squares that overflow or vanish must not decide which modes a page has."""

import numpy as np
import pytest

from refimpl.locks.summary import locks_build_summary, zero_mode_level


@pytest.mark.parametrize("power", [-520, 520])
def test_a_power_of_two_on_the_keys_drops_no_mode(power):
    pages = np.random.default_rng(3).standard_normal((1, 2, 4, 3))
    scaled = np.ldexp(pages, power)
    assert (np.abs(locks_build_summary(key_pages=scaled, rank=2)["basis"]).sum(axis=-2) > 0).all()
    np.testing.assert_array_equal(zero_mode_level(scaled), np.ldexp(zero_mode_level(pages), power))


def test_the_level_of_a_page_does_not_depend_on_its_neighbours():
    """Beside a page of 2^700 the squares of one of 2^-700 vanish."""
    page = np.random.default_rng(4).standard_normal((4, 3))
    both = zero_mode_level(np.stack([np.ldexp(page, -700), np.ldexp(page, 700)]))
    assert both.tolist() == np.ldexp(zero_mode_level(page), [-700, 700]).tolist()
