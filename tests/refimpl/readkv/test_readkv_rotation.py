import math

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.checks import ArgumentError
from refimpl.readkv.rotation import hadamard_matrix, readkv_rotate, rotation_matrix, unrotate

U = 2.0**-53


def gamma(n):
    return n * U / (1 - n * U)


@pytest.mark.parametrize("d", [1, 2, 4, 8, 64, 128])
def test_hadamard_matrix_is_sylvesters(d):
    H = hadamard_matrix(d)
    assert np.array_equal(H @ H.T, d * np.eye(d))  # integers: exact
    parity = np.array([[(i & j).bit_count() % 2 for j in range(d)] for i in range(d)])
    assert np.array_equal(H, 1 - 2 * parity)  # natural order: H_ij = (-1)^popcount(i & j)


def test_signs_come_before_the_transform():
    x = np.arange(1.0, 17.0)
    signs = np.where(np.arange(16) % 3 == 0, -1.0, 1.0)
    assert (readkv_rotate(x=x, signs=signs) == hadamard_matrix(16) @ (signs * x) / 4).all()  # integers over 4: exact


@mpmath.workdps(50)
def test_fast_transform_matches_50_digits():
    rng = np.random.default_rng(3)
    d = 32
    x, signs = rng.normal(size=d), rng.choice([-1.0, 1.0], size=d)
    result = readkv_rotate(x=x, signs=signs)
    for row, value in zip(hadamard_matrix(d), result, strict=True):
        exact = mpmath.fsum(float(h * s) * mpmath.mpf(float(v)) for h, s, v in zip(row, signs, x, strict=True))
        exact /= mpmath.sqrt(d)
        # log2(d) roundings of sums, one of the root, one of the division
        assert abs(exact - float(value)) <= gamma(math.log2(d) + 2) * np.abs(x).sum() / math.sqrt(d)


@given(st.integers(0, 7), st.integers(0, 2**32 - 1))
def test_rotation_keeps_inner_products_and_is_undone(power, seed):
    d = 2**power
    rng = np.random.default_rng(seed)
    x, y, signs = rng.normal(size=d), rng.normal(size=d), rng.choice([-1, 1], size=d)
    a, b = readkv_rotate(x=x, signs=signs), readkv_rotate(x=y, signs=signs)
    # each rotated entry errs by gamma(log2 d + 2) |x|_1 / sqrt(d) <= gamma |x|_2; d of them meet in the inner product
    loss = gamma(power + 2) * math.sqrt(d) * np.linalg.norm(x) * np.linalg.norm(y)
    assert abs(a @ b - x @ y) <= 2 * loss + 2 * gamma(d + 2) * np.abs(x).sum() * np.abs(y).sum()
    assert (np.abs(unrotate(x=a, signs=signs) - x) <= 2 * gamma(power + 3) * math.sqrt(d) * np.linalg.norm(x)).all()


def test_matrix_and_fast_form_agree_on_the_identity():
    signs = np.array([1, -1, 1, 1])
    assert np.array_equal(readkv_rotate(x=np.eye(4), signs=signs).T, rotation_matrix(signs))  # halves: exact


def test_a_unit_vector_has_bit_equal_magnitudes():
    rotated = readkv_rotate(x=np.eye(128)[5], signs=np.ones(128))  # E.1.3 needs one weight for all channels
    assert len(set(np.abs(rotated).tolist())) == 1


@pytest.mark.parametrize("d", [3, 12, 80, 96])
def test_other_widths_are_refused(d):
    with pytest.raises(ArgumentError, match=f"power of two .* got d={d}"):
        readkv_rotate(x=np.zeros((2, d)), signs=np.ones(d))


@pytest.mark.parametrize(
    ("x", "signs", "message"),
    [
        (np.zeros(4), [1, 1, 0, 1], r"signs: expected \+1 or -1, got 0.0 at \[2\]"),
        (np.zeros(4), [1, 1], r"signs: expected shape \[d\] with d=4"),
        (np.array([1.0, np.nan]), [1, 1], "x: expected finite values"),
        (np.float64(1.0), [1], "x: expected at least one axis"),
    ],
)
def test_bad_arguments(x, signs, message):
    with pytest.raises(ArgumentError, match=message):
        readkv_rotate(x=x, signs=signs)
