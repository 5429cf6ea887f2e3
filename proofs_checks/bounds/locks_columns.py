"""How far single modes of a page move between two honest builds, entry by entry (Locks Sec. 4, Build).

A mode whose gaps on both sides stay open has a definite column v_k, coefficients c_k and projection v_k.q. To first
order X turns it towards the others by X_kl / (lambda_k - lambda_l), and these X_kl have norm E / sqrt(2) together. The
Gram route divides D^T u_k by sigma_k, which weighs mode l by sigma_l / sigma_k; coefficients are U sigma or D V. The
weights here are the largest of all ways.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proofs_checks.bounds.common import gamma
from proofs_checks.bounds.locks_perturbation import Cut, Spectrum
from refimpl.checks import FloatArray


@dataclass(frozen=True)
class Columns:
    """Moves of the first r modes; infinite where a mode is not separated. ``common`` is a factor on a whole column."""

    basis: FloatArray  # [H, P, d, r], without the common factor
    coefficients: FloatArray  # [H, P, B, r]
    projections: FloatArray  # [H, G, P, r], of v_k.q
    common: FloatArray  # [H, P, r], relative
    alone: NDArray[np.bool_]  # [H, P, r], whether separated


@dataclass(frozen=True)
class _Weights:
    """What a squared coordinate weighs in first order and in the remainders of both sides' gaps, [H, 1, P, n, r]."""

    gram: FloatArray  # [H, 1, P, 1, 1]
    first: FloatArray
    rest: list[FloatArray]
    factor: list[FloatArray]  # [H, 1, P, 1, r], (E / 2) t / (1 - t) sqrt(2 / g)

    def move(self, squares: FloatArray, ratio: FloatArray) -> FloatArray:
        """Moves [H, ., P, ., r] of functionals with squared coordinates [H, ., P, ., n], by ``ratio`` [H, P, n, r]."""
        ratio = ratio[:, None]
        total = self.gram * np.sqrt(squares @ (ratio * self.first) / 2)
        for factor, weight in zip(self.factor, self.rest, strict=True):
            total = total + factor * np.sqrt(squares @ (ratio * weight))
        return total


def columns(s: Spectrum, queries: FloatArray, cuts: list[Cut], u: float) -> Columns:
    """Moves of the modes between neighbouring ``cuts`` (after 0 .. r modes)."""
    r, B = len(cuts) - 1, s.deviations.shape[2]
    m = s.sigma.shape[-1]
    energy = s.energy
    own = energy[..., None, :r]  # [H, P, 1, r]
    turn = np.stack([c.turn for c in cuts], axis=-1)
    t = np.stack([c.t for c in cuts], axis=-1)
    turn = turn[..., :-1] + turn[..., 1:]  # [H, P, r]
    alone = (np.maximum(t[..., :-1], t[..., 1:]) < 0.5) & (turn < 0.5) & (own[..., 0, :] > 2 * s.gram[..., None])
    safe = np.where(alone[..., None, :], own, 1.0)
    weights = _weights(s, cuts, alone)
    ratio_v = np.maximum(1.0, energy[..., None] / safe)  # [H, P, n, r]
    ratio_c = np.maximum(safe, energy[..., None] ** 2 / safe)
    sigma = np.sqrt(safe)  # [H, P, 1, r]
    common = np.where(alone, s.gram[..., None] / (safe[..., 0, :] - s.gram[..., None] * alone) + turn**2 + 8 * u, 0.0)

    entries = np.swapaxes(s.right, -1, -2) ** 2  # [H, P, d, m]
    outside = np.maximum(1 - np.sum(entries, axis=-1, keepdims=True), 0.0)
    pad = np.zeros((*entries.shape[:3], energy.shape[-1] - m - 1))
    size = np.linalg.norm(s.deviations, axis=2)[..., None]  # [H, P, d, 1], by channel
    shift = np.sqrt(B) * s.centroid_error[..., None]
    rounding = (gamma(B + 6, u) * size + (turn[..., None, :] + 2 * u) * shift) / sigma  # [H, P, d, r]
    basis = weights.move(np.concatenate([entries, pad, outside], axis=-1)[:, None], ratio_v)[:, 0] + rounding

    tokens = np.pad(s.left, ((0, 0),) * 3 + ((0, 1),)) ** 2  # [H, P, B, n]
    column = np.swapaxes(s.right[..., :r, :], -1, -2)  # [H, P, d, r]
    moved_mean = np.einsum("hpd,hpdr->hpr", s.centroid_error, np.abs(column))[..., None, :]
    moved_mean = moved_mean + np.linalg.norm(s.centroid_error, axis=-1)[..., None, None] * turn[..., None, :]
    token_size = np.linalg.norm(s.deviations, axis=-1)[..., None]  # [H, P, B, 1]
    exact = np.abs(s.left[..., :r]) * np.sqrt(own)
    coefficients = (
        weights.move(tokens[:, None], ratio_c)[:, 0] * (1 + common[..., None, :]) + common[..., None, :] * exact
    )
    coefficients = coefficients + gamma(s.deviations.shape[-1] + 8, u) * token_size + moved_mean

    inside = np.einsum("hpmd,hgd->hgpm", s.right, queries, optimize=True)
    far = np.maximum(np.sum(queries**2, axis=-1)[:, :, None] - np.sum(inside**2, axis=-1), 0.0)[..., None]
    squares = np.concatenate([inside**2, np.zeros((*inside.shape[:3], pad.shape[-1])), far], axis=-1)
    projections = weights.move(squares[..., None, :], ratio_v)[..., 0, :]
    projections = projections + np.einsum("hgd,hpdr->hgpr", np.abs(queries), rounding, optimize=True)
    projections = projections * (1 + common[:, None]) + common[:, None] * np.abs(inside[..., :r])

    def where(x: FloatArray, mask: NDArray[np.bool_]) -> FloatArray:
        return np.where(mask, x, np.inf)

    return Columns(
        where(basis, alone[..., None, :]),
        where(coefficients, alone[..., None, :]),
        where(projections, alone[:, None]),
        common,
        alone,
    )


def _factor(gram: FloatArray, cut: Cut) -> FloatArray:
    """E t / (1 - t) / sqrt(2 gap) of one gap, [H, P]; used only where t < 1/2, and 0 elsewhere."""
    narrow = (cut.t < 0.5) & (cut.gap > 0)
    t, gap = np.where(narrow, cut.t, 0.0), np.where(narrow, cut.gap, 1.0)
    factor: FloatArray = gram * t / (1 - t) / np.sqrt(2 * gap)
    return factor


def _weights(s: Spectrum, cuts: list[Cut], alone: NDArray[np.bool_]) -> _Weights:
    """1 / (lambda_k - lambda_l)^2 for l != k, and 1 / |lambda_l - c| of the gaps before and behind mode k."""
    r, energy = len(cuts) - 1, s.energy
    difference = energy[..., None] - energy[..., None, :r]  # [H, P, n, r]
    other = ~np.eye(energy.shape[-1], r, dtype=bool) & alone[..., None, :]
    first = np.divide(1.0, difference**2, out=np.zeros_like(difference), where=other)
    near = np.stack([c.near for c in cuts], axis=-1)  # [H, P, n, r + 1]
    factor = np.stack([_factor(s.gram, c) for c in cuts], axis=-1)  # [H, P, r + 1]
    sides = (slice(None, -1), slice(1, None))
    gram = s.gram[:, None, :, None, None]
    rest, factors = [near[:, None, ..., i] for i in sides], [factor[:, None, :, None, i] for i in sides]
    return _Weights(gram, first[:, None], rest, factors)
