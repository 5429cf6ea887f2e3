"""Scalar laws that quantisers are fitted to: moments of a cell, free of cancellation in narrow and in far cells."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.special import betaln

from refimpl.checks import FloatArray

NODES, WEIGHTS = np.polynomial.legendre.leggauss(64)
UNIT_NODES, UNIT_WEIGHTS = (NODES + 1.0) / 2.0, WEIGHTS / 2.0
"""64-point Gauss-Legendre rule on [0, 1]; its error on the integrands below is far under a float64 ulp."""

TAIL_NATS = 50.0
"""A cell ends where its density has fallen by this factor's exponential; exp(-50) is 2e-22."""


class Cell(NamedTuple):
    """Probability, conditional mean and conditional variance of cells, arrays of one shape."""

    mass: FloatArray
    mean: FloatArray
    variance: FloatArray


@dataclass(frozen=True)
class Normal:
    """N(0, 1). Its cells are given in x itself.

    >>> half = Normal().cell(np.array([0.0]), np.array([np.inf]))
    >>> float(half.mass[0].round(12)), float(half.mean[0].round(6))
    (0.5, 0.797885)
    """

    def position(self, x: FloatArray) -> FloatArray:
        """The integration coordinate of x: x itself."""
        return x

    def value(self, u: FloatArray) -> FloatArray:
        """x at integration coordinate u."""
        return u

    def cell(self, low: FloatArray, high: FloatArray) -> Cell:
        """Moments of the cells ``(low, high)``, 0 <= low < high <= inf, in the integration coordinate."""
        end = np.minimum(high, np.sqrt(low * low + 2.0 * TAIL_NATS))
        width = end - low
        step = width[..., None] * UNIT_NODES  # [..., 64], distance from the inner end
        fall = np.exp(-step * (low[..., None] + step / 2.0))  # density over the density at the inner end
        return _moments(self.density(low) * width, low, fall, step)

    def density(self, x: FloatArray) -> FloatArray:
        """Probability density at x."""
        height: FloatArray = np.exp(-x * x / 2.0) / math.sqrt(2.0 * math.pi)
        return height


@dataclass(frozen=True)
class Sphere:
    """sqrt(d) times one coordinate of a uniform unit vector of R^d: density ~ (1 - x^2/d)^((d-3)/2) on |x| < sqrt(d).

    Its cells are given by the angle u with x = sqrt(d) sin u, where the density cos(u)^(d-2) is smooth up to the end.

    >>> half = Sphere(5).cell(np.array([0.0]), np.array([math.pi / 2]))
    >>> float(half.mass[0].round(12))
    0.5
    """

    d: int

    def position(self, x: FloatArray) -> FloatArray:
        """The angle of x."""
        angle: FloatArray = np.arcsin(np.minimum(x / math.sqrt(self.d), 1.0))
        return angle

    def value(self, u: FloatArray) -> FloatArray:
        """x at the angle u."""
        x: FloatArray = math.sqrt(self.d) * np.sin(u)
        return x

    def cell(self, low: FloatArray, high: FloatArray) -> Cell:
        """Moments of the cells of angles ``(low, high)``, 0 <= low < high <= pi/2."""
        shortest = np.minimum(np.cos(low) * math.exp(-TAIL_NATS / (self.d - 2)), 1.0)  # the cosine where the tail ends
        width = np.minimum(high, np.arccos(shortest)) - low
        turn = width[..., None] * UNIT_NODES  # [..., 64]
        # cos(low + turn) / cos(low) and sqrt(d) (sin(low + turn) - sin(low)), both without cancellation
        ratio = np.cos(turn) - np.tan(low)[..., None] * np.sin(turn)
        step = math.sqrt(self.d) * 2.0 * np.cos(low[..., None] + turn / 2.0) * np.sin(turn / 2.0)
        fall = np.maximum(ratio, 0.0) ** (self.d - 2)
        return _moments(self.density(low) * width, self.value(low), fall, step)

    def density(self, u: FloatArray) -> FloatArray:
        """Probability density of the angle at u."""
        height: FloatArray = np.exp((self.d - 2) * np.log(np.cos(u)) - betaln(0.5, (self.d - 1) / 2.0))
        return height


def _moments(measure: FloatArray, start: FloatArray, fall: FloatArray, step: FloatArray) -> Cell:
    """Moments from the density's fall [..., 64] and the distance [..., 64] of each node from the inner end."""
    total = fall @ UNIT_WEIGHTS  # [...]
    shift = (fall * step) @ UNIT_WEIGHTS / total
    spread = (fall * (step - shift[..., None]) ** 2) @ UNIT_WEIGHTS / total
    return Cell(measure * total, start + shift, spread)


Law = Normal | Sphere
