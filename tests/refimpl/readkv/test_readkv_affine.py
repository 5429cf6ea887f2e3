from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from refimpl.checks import ArgumentError
from refimpl.readkv.affine import affine_dequantize, affine_quantize

U = 2.0**-53


def test_exact_rows():
    result = affine_quantize(x=[[0.0, 15.0, 7.0, 8.0], [5.0, 6.0, 5.0, 20.0]], bits=4)
    assert result["codes"].tolist() == [[0, 15, 7, 8], [0, 1, 0, 15]]  # the range starts at 5, not at 0
    assert result["scale"].tolist() == [1.0, 1.0]
    assert result["zero"].tolist() == [0.0, 5.0]
    assert result["codes"].dtype == np.uint8
    assert affine_dequantize(**result).tolist() == [[0.0, 15.0, 7.0, 8.0], [5.0, 6.0, 5.0, 20.0]]


def test_a_constant_row_has_codes_0_and_comes_back():
    result = affine_quantize(x=np.full((2, 3), -7.25), bits=2)
    assert result["codes"].tolist() == [[0] * 3] * 2
    assert np.isfinite(result["scale"]).all()
    assert (affine_dequantize(**result) == -7.25).all()


@given(arrays(np.float64, (3, 7), elements=st.floats(-1e6, 1e6)), st.integers(1, 8))
def test_codes_are_the_nearest_integers_in_exact_arithmetic(x, bits):
    result = affine_quantize(x=x, bits=bits)
    levels = 2**bits - 1
    for i, j in np.ndindex(x.shape):
        low, high = Fraction(float(x[i].min())), Fraction(float(x[i].max()))
        if low == high:
            assert result["codes"][i, j] == 0
            continue
        if (high - low) / levels < Fraction(2.0**-1022):
            continue  # a scale below the normal numbers has no relative precision to speak of
        steps = (Fraction(float(x[i, j])) - low) * levels / (high - low)
        # three roundings (x - zero, the scale's two and the quotient) of a number up to 2^bits - 1
        assert abs(int(result["codes"][i, j]) - steps) <= Fraction(1, 2) + Fraction(5 * U) * levels
        assert abs(Fraction(float(result["scale"][i])) * levels - (high - low)) <= Fraction(3 * U) * (high - low)


def test_a_range_that_no_scale_can_hold_gives_codes_0():
    """A third of the least number above 0 is 0."""
    result = affine_quantize(x=np.array([[5e-324, 0.0]]), bits=2)
    assert (result["scale"].tolist(), result["codes"].tolist()) == ([0.0], [[0, 0]])
    assert affine_dequantize(**result).tolist() == [[0.0, 0.0]]


@given(arrays(np.float64, (2, 5), elements=st.floats(-100, 100)), st.integers(1, 8))
def test_rows_do_not_see_each_other(x, bits):
    both = affine_quantize(x=x, bits=bits)
    for i in range(2):
        alone = affine_quantize(x=x[i], bits=bits)
        assert alone["codes"].tolist() == both["codes"][i].tolist()
        assert alone["scale"] == both["scale"][i]


def test_empty_rows():
    result = affine_quantize(x=np.zeros((2, 0)), bits=4)
    assert result["codes"].shape == (2, 0)
    assert affine_dequantize(**result).shape == (2, 0)
    assert affine_quantize(x=np.zeros((0, 4)), bits=4)["scale"].shape == (0,)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: affine_quantize(x=[1.0], bits=0), "bits: expected in 1..8"),
        (lambda: affine_quantize(x=[1.0], bits=9), "bits: expected in 1..8"),
        (lambda: affine_quantize(x=1.0, bits=4), "x: expected at least one axis"),
        (lambda: affine_quantize(x=[np.nan], bits=4), "x: expected finite"),
        (lambda: affine_dequantize(codes=[[256]], scale=[1.0], zero=[0.0]), "codes: expected values in 0..255"),
        (
            lambda: affine_dequantize(codes=[[1]], scale=[1.0, 2.0], zero=[0.0]),
            r"scale: expected shape \[1\], got \[2\]",
        ),
        (
            lambda: affine_dequantize(codes=1, scale=1.0, zero=0.0),
            "^codes: expected at least one axis",
        ),
        (lambda: affine_dequantize(codes=[[1]], scale=[np.inf], zero=[0.0]), "scale: expected finite"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
