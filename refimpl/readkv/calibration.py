"""Calibration: means and scales of transformed channels, from samples or from moments (Sec. 3.1, App. D.1)."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, number, real
from refimpl.readkv.arrays import real_array


class Calibration(NamedTuple):
    """Per-channel ``mean`` and ``scale`` [..., d]; the leading axes are layers, heads or whatever was given."""

    mean: FloatArray
    scale: FloatArray


def calibrate_samples(*, samples: Any, floor: float | None = None) -> Calibration:
    """Mean and standard deviation (divisor n) of transformed channels over the samples.

    Args:
        samples: [..., n, d], n >= 1 transformed vectors per leading index (layer, head).
        floor: smallest scale; None makes a dead channel an error (AMB-23).

    Returns:
        ``mean`` [..., d] and ``scale`` [..., d].

    Raises:
        ArgumentError: no samples, a non-finite value, or a channel without spread and no floor.

    Source: ReadKV App. D.1 (Calibration).

    >>> calibrate_samples(samples=[[1.0, 0.0], [3.0, 4.0]])
    Calibration(mean=array([2., 2.]), scale=array([1., 2.]))
    """
    samples = real_array("samples", samples)
    if samples.ndim < 2 or samples.shape[-2] == 0:
        raise ArgumentError(f"samples: expected shape [..., n, d] with n >= 1, got {list(samples.shape)}")
    mean = samples.mean(axis=-2)
    spread = samples - mean[..., None, :]
    # identical samples may leave a mean off by an ulp; the range tells a dead channel from a narrow one
    dead = np.ptp(samples, axis=-2) == 0
    return Calibration(mean, _scales(np.where(dead, 0.0, np.sqrt((spread**2).mean(axis=-2))), floor, "samples"))


def calibrate_moments(*, mean: Any, covariance: Any, transform: Any, floor: float | None = None) -> Calibration:
    """Calibration under any orthogonal transform U from moments of untransformed vectors: U mean, diag(U C U^T).

    Args:
        mean: [..., d]. covariance: [..., d, d], symmetric. transform: U [d, d], orthogonal.
        floor: as `calibrate_samples`.

    Returns:
        ``mean`` [..., d] and ``scale`` [..., d] of the transformed channels.

    Raises:
        ArgumentError: a shape, a negative variance, or a channel without spread and no floor.

    Source: ReadKV Sec. 3.1.

    >>> calibrate_moments(mean=[1.0, 2.0], covariance=[[4.0, 0.0], [0.0, 9.0]], transform=[[0.0, 1.0], [1.0, 0.0]])
    Calibration(mean=array([2., 1.]), scale=array([3., 2.]))
    """
    mean, covariance = real_array("mean", mean), real_array("covariance", covariance)
    transform = real("transform", transform, "d d", Sizes())
    d = len(transform)
    if mean.shape[-1:] != (d,):
        raise ArgumentError(f"mean: expected shape [..., {d}], got {list(mean.shape)}")
    if covariance.shape != (*mean.shape, d):
        raise ArgumentError(f"covariance: expected shape {[*mean.shape, d]}, got {list(covariance.shape)}")
    variance = np.einsum("ci,...ij,cj->...c", transform, covariance, transform, optimize=True)
    if (variance < 0).any():
        raise ArgumentError(f"covariance: expected nonnegative variances, got {variance.min()}")
    return Calibration(np.einsum("ci,...i->...c", transform, mean), _scales(np.sqrt(variance), floor, "covariance"))


def standardize(x: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """z = (x - mean) / scale of transformed scalars: x [..., T, d], mean and scale [..., d] -> [..., T, d].

    >>> standardize(np.array([[5.0]]), np.array([1.0]), np.array([2.0])).tolist()
    [[2.0]]
    """
    z: FloatArray = (x - mean[..., None, :]) / scale[..., None, :]
    return z


def restore(z: FloatArray, mean: FloatArray, scale: FloatArray) -> FloatArray:
    """mean + scale z, the inverse of `standardize`; depth-0 prefixes have z = 0 and give the mean (AMB-22).

    >>> restore(np.array([[0.0, 1.0]]), np.array([3.0, 3.0]), np.array([2.0, 2.0])).tolist()
    [[3.0, 5.0]]
    """
    x: FloatArray = mean[..., None, :] + scale[..., None, :] * z
    return x


def check_scales(name: str, value: Any, axes: str, sizes: Sizes) -> FloatArray:
    """Scales of shape ``axes``, all positive; ArgumentError names the first dead channel.

    >>> check_scales("key_scale", [[1.0, 2.0]], "H d", Sizes()).tolist()
    [[1.0, 2.0]]
    """
    scale = real(name, value, axes, sizes)
    if (scale <= 0).any():
        index = [int(i) for i in np.argwhere(scale <= 0)[0]]
        raise ArgumentError(f"{name}: expected positive scales, got a dead channel {scale[tuple(index)]} at {index}")
    return scale


def _scales(scale: FloatArray, floor: float | None, name: str) -> FloatArray:
    if floor is not None:
        return np.maximum(scale, number("floor", floor, above=0))
    if (scale == 0).any():
        index = [int(i) for i in np.argwhere(scale == 0)[0]]
        raise ArgumentError(f"{name}: expected channels with spread, got a dead channel at {index}; pass a floor")
    return scale
