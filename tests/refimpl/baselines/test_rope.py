"""Positions: pairs of channels are turned, lengths stay, and the average of turns shortens."""

import numpy as np
import pytest

from refimpl.baselines.expected_attention import average_rotation
from refimpl.baselines.rope import rope_frequencies, rope_rotate
from refimpl.checks import ArgumentError

EPS = np.finfo(float).eps


def close(left, right, size=1.0):
    """Equal up to a hundred roundings of the size."""
    assert np.abs(np.asarray(left) - right).max() <= 100 * EPS * size


@pytest.mark.parametrize("d", [6, 64])
def test_positions_turn_pairs_and_keep_lengths(d):
    x = np.random.default_rng(d).normal(size=(1, 4, d))
    turned = rope_rotate(x=x, positions=[0, 1, 50, 4000], frequencies=rope_frequencies(d))
    assert np.array_equal(turned[:, 0], x[:, 0])
    close(np.linalg.norm(turned, axis=-1), np.linalg.norm(x, axis=-1), 10)


@pytest.mark.parametrize("position", [0, 1, 17])
def test_channel_f_turns_with_channel_f_plus_half(position):
    w = rope_frequencies(6)
    turned = rope_rotate(x=np.eye(6)[None, [1]], positions=[position], frequencies=w)[0, 0]
    wanted = np.zeros(6)
    wanted[1], wanted[4] = np.cos(position * w[1]), np.sin(position * w[1])
    close(turned, wanted)


def test_products_depend_on_distance_alone():
    rng = np.random.default_rng(0)
    q, k, w = rng.normal(size=(1, 1, 8)), rng.normal(size=(1, 1, 8)), rope_frequencies(8)
    at = [
        rope_rotate(x=q, positions=[p], frequencies=w)[0, 0] @ rope_rotate(x=k, positions=[s], frequencies=w)[0, 0]
        for p, s in ((9, 2), (107, 100), (7, 0))
    ]
    close(at[0], at[1], 10)
    close(at[0], at[2], 10)


def test_an_odd_width_is_refused():
    with pytest.raises(ArgumentError, match="d: expected an even number"):
        rope_frequencies(5)
    with pytest.raises(ArgumentError, match="frequencies: expected a pair of channels"):
        rope_rotate(x=np.ones((1, 1, 3)), positions=[0], frequencies=[1.0])


def test_the_averaged_rotation_is_the_average_of_rotations_and_shortens():
    w = rope_frequencies(8)
    turned = [rope_rotate(x=np.eye(8)[None], positions=np.full(8, p), frequencies=w)[0].T for p in range(5, 12)]
    mean = average_rotation(frequencies=w, start=5, positions=7)
    close(mean, np.mean(turned, axis=0))
    assert np.linalg.norm(mean, 2) < 1
