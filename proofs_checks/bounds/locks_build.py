"""Error magnitudes of building a page summary by the Gram route in a port's dtype (Locks Sec. 4, Build)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.bounds.common import gamma
from refimpl.checks import FloatArray
from refimpl.locks.summary import zero_mode_level


@dataclass(frozen=True)
class PageScale:
    """Magnitudes of every page [H, P] that the bounds are made of."""

    energy: FloatArray
    """||D||_F^2 of the deviations."""
    gram: FloatArray
    """E: Frobenius norm of the error of the eigenproblem that a port solves."""
    band: FloatArray
    """Singular values up to it may be kept or dropped (AMB-10)."""
    centring: FloatArray
    """Frobenius norm of the deviations' own rounding errors."""


def page_scale(pages: FloatArray, deviations: FloatArray, u: float) -> PageScale:
    """The magnitudes of pages [H, P, B, d] in a dtype whose operations err by ``u``.

    E is the larger of two routes', the Gram matrix D D^T and the covariance D^T D: gamma_n of the inner products,
    n = d + 4 or B + 4 with the deviations' own subtraction, plus u times the order of the matrix for the backward
    error of a symmetric eigensolver. The mean's error b stands in every row alike, D - 1 b^T. Since D^T 1 = 0 it adds
    only B b b^T to the covariance: the columns keep their directions, and what it does to the coefficients is a
    constant that bounds add where it matters. The last factor pays for coordinates that are those of D, not of
    D - 1 b^T: they differ by sqrt(B) ||b|| / sigma <= (B + 1) sqrt(u / d) above the band.
    """
    B, d = pages.shape[-2:]
    mean_error = gamma(B + 1, u) * np.abs(pages).mean(axis=2, keepdims=True)
    centring = np.linalg.norm(mean_error * (1 + u) + u * np.abs(deviations), axis=(-2, -1))
    size = np.abs(deviations) + mean_error
    norm = np.linalg.norm(deviations, axis=(-2, -1))
    shift = B * np.sum(mean_error**2, axis=(-2, -1))
    tokens = size @ np.swapaxes(size, -1, -2)
    order = np.linalg.norm(deviations @ np.swapaxes(deviations, -1, -2), axis=(-2, -1)) + shift
    by_token = gamma(d + 4, u) * np.linalg.norm(tokens, axis=(-2, -1)) + B * u * order
    # ||A^T A||_F = ||A A^T||_F
    by_channel = gamma(B + 4, u) * np.linalg.norm(tokens, axis=(-2, -1)) + d * u * order
    gram = (np.maximum(by_token, by_channel) + shift) * (1 + 2 * (B + 1) * np.sqrt(u / d))
    # sqrt(max(B, d) eps): zero_mode_level holds max(B, d) eps ||page||, the band asks for its root
    largest = max(B, d)
    # in the port's arithmetic the norm is off by less than gamma_{B d + 4}; where that says nothing, a factor of two
    band = zero_mode_level(pages, eps=1.0) / largest * np.sqrt(largest * u) * (1 + min(gamma(B * d + 4, u), 1.0))
    return PageScale(norm**2, gram, band, centring)
