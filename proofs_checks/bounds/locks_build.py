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
    """E: spectral-norm error of the Gram matrix's eigenproblem."""
    band: FloatArray
    """Singular values up to it may be kept or dropped (AMB-10)."""
    centring: FloatArray
    """Frobenius norm of the deviations' own rounding errors."""


def page_scale(pages: FloatArray, deviations: FloatArray, u: float) -> PageScale:
    """The magnitudes of pages [H, P, B, d] in a dtype whose operations err by ``u``.

    E = gamma_{d+2} ||D||^2 (inner products) + 2 ||D|| ||dD|| + ||dD||^2 (centring) + B u ||D||^2 (backward error of
    a symmetric eigensolver, ||D||^2 >= its largest eigenvalue).

    The band is sqrt(max(B, d) u) ||page|| as a port knows it: its norm is the root of a sum of B d squares in its own
    arithmetic, off by less than gamma_{B d + 4}. (Where that says nothing, a factor of two: a port whose norm is worse
    has no level to drop modes by.)
    """
    B, d = pages.shape[-2:]
    mean_error = gamma(B, u) * np.abs(pages).mean(axis=2, keepdims=True)
    centring = np.linalg.norm(mean_error * (1 + u) + u * np.abs(deviations), axis=(-2, -1))
    norm = np.linalg.norm(deviations, axis=(-2, -1))
    gram = (gamma(d + 2, u) + B * u) * norm**2 + 2 * norm * centring + centring**2
    # sqrt(max(B, d) eps): zero_mode_level holds max(B, d) eps ||page||, the band asks for its root
    size = max(B, d)
    band = zero_mode_level(pages, eps=1.0) / size * np.sqrt(size * u) * (1 + min(gamma(B * d + 4, u), 1.0))
    return PageScale(norm**2, gram, band, centring)
