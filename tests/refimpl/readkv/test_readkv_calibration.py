import numpy as np
import pytest

from refimpl.checks import ArgumentError, Sizes
from refimpl.readkv.calibration import calibrate_moments, calibrate_samples, check_scales, restore, standardize
from refimpl.readkv.rotation import readkv_rotate, rotation_matrix

U = 2.0**-53


def test_moments_and_samples_agree_under_a_rotation():
    rng = np.random.default_rng(0)
    n, d = 50, 8
    samples, signs = rng.normal(size=(3, n, d)) @ rng.normal(size=(d, d)), rng.choice([-1, 1], size=d)
    centred = samples - samples.mean(axis=1, keepdims=True)
    covariance = np.swapaxes(centred, 1, 2) @ centred / n
    by_samples = calibrate_samples(samples=readkv_rotate(x=samples, signs=signs))
    by_moments = calibrate_moments(mean=samples.mean(axis=1), covariance=covariance, transform=rotation_matrix(signs))
    # sums of n samples and of d^2 products, of magnitude at most max|samples|^2 d
    size = np.abs(samples).max() * np.sqrt(d)
    assert np.abs(by_samples.mean - by_moments.mean).max() <= 4 * (n + d) * U * size
    assert np.abs(by_samples.scale**2 - by_moments.scale**2).max() <= 8 * (n + d * d) * U * size**2


def test_standardising_is_undone_exactly_on_powers_of_two():
    x, mean, scale = np.array([[[5.0, -3.0]]]), np.array([[1.0, 1.0]]), np.array([[0.5, 4.0]])
    z = standardize(x, mean, scale)
    assert z.tolist() == [[[8.0, -1.0]]]
    assert (restore(z, mean, scale) == x).all()


def test_a_dead_channel_is_an_error_unless_a_floor_is_passed():
    samples = np.array([[[0.1, 1.0], [0.1, 2.0], [0.1, 3.0]]])  # the mean of three 0.1 is not 0.1 in floating point
    with pytest.raises(ArgumentError, match=r"dead channel at \[0, 0\]"):
        calibrate_samples(samples=samples)
    assert calibrate_samples(samples=samples, floor=0.25).scale[0, 0] == 0.25
    with pytest.raises(ArgumentError, match="dead channel"):
        calibrate_moments(mean=[0.0, 0.0], covariance=np.diag([1.0, 0.0]), transform=np.eye(2))
    with pytest.raises(ArgumentError, match=r"key_scale: expected positive scales, got a dead channel 0.0 at \[0, 1\]"):
        check_scales("key_scale", [[1.0, 0.0]], "H d", Sizes())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: calibrate_samples(samples=np.zeros((0, 4))), "samples: expected shape"),
        (lambda: calibrate_samples(samples=[[np.inf]]), "samples: expected finite"),
        (lambda: calibrate_samples(samples=[[1.0], [2.0]], floor=-1.0), "floor: expected a number above 0, got -1.0"),
        (
            lambda: calibrate_moments(mean=[0.0], covariance=[[1.0, 0.0]], transform=[[1.0]]),
            r"covariance: expected shape \[1, 1\], got \[1, 2\]",
        ),
        (
            lambda: calibrate_moments(mean=[0.0], covariance=[[0.0]], transform=[[1.0]]),
            "^covariance: expected",
        ),
        (lambda: calibrate_moments(mean=[0.0], covariance=[[-1.0]], transform=[[1.0]]), "nonnegative variances"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ArgumentError, match=message):
        call()
