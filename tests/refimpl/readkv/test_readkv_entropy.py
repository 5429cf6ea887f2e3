import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.entropy import (
    HIGH_WEIGHT,
    LOW_WEIGHT,
    cube_mmse_bound,
    observe_boxes,
    theorem_1_converse,
    theorem_1_upper,
    theorem_2_converse,
    theorem_2_upper,
)

U = 2.0**-53


def random_tree(rng, n, depth):
    """Boxes of a random branching tree of splits: lower and upper corners."""
    boxes = [(np.full(n, -1.0), np.full(n, 1.0))]
    for _ in range(depth):
        split = []
        for low, high in boxes:
            axis = int(rng.integers(n))
            cut = low[axis] + (high[axis] - low[axis]) * rng.uniform(0.1, 0.9)
            first, second = high.copy(), low.copy()
            first[axis] = second[axis] = cut
            split += [(low, first), (second, high)]
        boxes = split
    return np.array([b[0] for b in boxes]), np.array([b[1] for b in boxes])


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(0, 5))
def test_equation_4_holds_for_random_branching_observations(seed, n, depth):
    rng = np.random.default_rng(seed)
    lower, upper = random_tree(rng, n, depth)
    channel = None if seed % 2 else rng.dirichlet(np.full(4, 0.3), size=len(lower))
    seen = observe_boxes(lower=lower, upper=upper, channel=channel)
    assert -1e-12 <= seen.bits <= depth + 1e-12  # 2^depth boxes; a sum of up to 128 terms below 1
    # the paper's constant leaves at least pi e / 6 = 1.42 for boxes: the inequality is far from any rounding
    assert seen.mmse / n >= cube_mmse_bound(dimension=n, bits=max(seen.bits, 0.0))


@pytest.mark.parametrize("levels", [1, 2, 3])
def test_uniform_cells_sit_at_pi_e_over_6(levels):
    # b bits per axis: cells of width 2^(1-b), variance 4^(1-b)/12 against 2^(1-2b)/(pi e)
    edges = np.linspace(-1, 1, 2**levels + 1)
    seen = observe_boxes(lower=edges[:-1, None], upper=edges[1:, None])
    assert seen.bits == levels
    ratio = seen.mmse / cube_mmse_bound(dimension=1, bits=seen.bits)
    assert abs(ratio - math.pi * math.e / 6) <= 32 * U


def test_a_useless_observation_tells_nothing():
    edges = np.linspace(-1, 1, 5)
    seen = observe_boxes(lower=edges[:-1, None], upper=edges[1:, None], channel=np.full((4, 2), 0.5))
    assert seen.bits == 0.0
    assert abs(seen.mmse - 1 / 3) <= 8 * U


def test_a_binary_symmetric_channel_in_closed_form():
    flip = 0.125
    seen = observe_boxes(lower=[[-1.0], [0.0]], upper=[[0.0], [1.0]], channel=[[1 - flip, flip], [flip, 1 - flip]])
    entropy = -(flip * math.log2(flip) + (1 - flip) * math.log2(1 - flip))
    assert abs(seen.bits - (1 - entropy)) <= 16 * U
    assert abs(seen.mmse - (1 / 3 - ((1 - 2 * flip) / 2) ** 2)) <= 8 * U  # Var - Var(E[Z | O])


@mpmath.workdps(40)
def test_weights_of_theorem_2_without_cancellation():
    rho = 1 / (1 + mpmath.exp(10))
    assert abs(mpmath.mpf(LOW_WEIGHT) - rho) <= 4 * U * rho
    assert abs(mpmath.mpf(HIGH_WEIGHT) - (1 - rho)) <= 4 * U


def test_the_papers_numbers():
    assert theorem_1_converse(dimension=128, probes=256) * 128 > 0.01463
    ratio = theorem_1_converse(dimension=128, probes=256) / theorem_1_upper(dimension=128, sparsity=32, epsilon=0.0097)
    assert 4.85 < ratio < 4.87  # 155.57 / 32
    assert theorem_2_upper(epsilon=0.0097) < 9.50e-5
    assert theorem_2_converse(dimension=1) > 2.285e-4
    assert theorem_2_converse(dimension=1) / theorem_2_upper(epsilon=0.0097) > 2.40
    assert theorem_2_converse(dimension=128) / theorem_2_upper(epsilon=0.0097) > 9.52


@pytest.mark.parametrize("m", [1, 3, 128])
@mpmath.workdps(40)
def test_theorem_2s_converse_is_the_printed_formula(m):
    printed = mpmath.tanh(5) ** 2 / (mpmath.pi * mpmath.e) * mpmath.mpf(2) ** (-7 - mpmath.mpf(2) / m)
    assert abs(printed - theorem_2_converse(dimension=m)) <= 32 * U * printed


@pytest.mark.parametrize("m", [1, 5])
def test_theorem_2s_coefficient_matrix_has_the_stated_eigenvalues(m):
    plus, minus = np.array([HIGH_WEIGHT, LOW_WEIGHT]), np.array([LOW_WEIGHT, HIGH_WEIGHT])
    matrix = (np.outer(plus, plus) + np.outer(minus, minus)) / 2
    values = np.linalg.eigvalsh(matrix)
    assert np.abs(values - [math.tanh(5) ** 2 / 2, 0.5]).max() <= 16 * U


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cube_mmse_bound(dimension=0, bits=1), "dimension: expected at least 1"),
        (lambda: cube_mmse_bound(dimension=1, bits=-1), "bits: expected a number of at least 0, got -1"),
        (lambda: observe_boxes(lower=[[0.0]], upper=[[0.0]]), "lower: expected boxes of positive volume"),
        (lambda: observe_boxes(lower=[[-2.0]], upper=[[1.0]]), "lower: expected boxes of positive volume"),
        (lambda: observe_boxes(lower=[[-1.0]], upper=[[0.0]]), "upper: expected boxes that tile the cube"),
        (lambda: observe_boxes(lower=[[-1.0]], upper=[[1.0]], channel=[[0.5, 0.4]]), "channel: expected rows"),
        (lambda: theorem_1_upper(dimension=4, sparsity=5, epsilon=0.1), "sparsity: expected in 1..4"),
        (lambda: theorem_2_converse(dimension=0), "dimension: expected at least 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
