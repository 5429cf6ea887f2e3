"""Sizes of a run of modes whose basis may turn: what bounds the rounding of any basis of it (Locks Sec. 4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from proofs_checks.bounds.locks_perturbation import Cut, Route, Spectrum, cut, next_gap
from refimpl.checks import FloatArray


@dataclass(frozen=True)
class Run:
    """The modes between two cuts, what leaks in through the cuts included."""

    low: Cut
    high: Cut
    spread: FloatArray
    """[H, P, B], largest sqrt(sum_k c_k^2 max_j v_jk^2) of any basis."""
    query: FloatArray
    """[H, G, P], norm of the query's part."""
    leak: FloatArray
    """[H, G, P], sigma_1 times the turn times |q|, to be divided by the run's smallest sigma."""
    whole: FloatArray
    """[H, G, 1], |q|."""
    row: FloatArray
    """[H, P], largest norm of a channel's row of the run's columns."""

    def content(self, route: Route) -> FloatArray:
        """|x| |y| of the parts that any basis of the run can carry, [H, G, P, B]."""
        between = _between(self.low, self.high, route.queries.shape[-1])
        x = np.linalg.norm(route.tokens * between[:, None, :, None], axis=-1)
        y = np.linalg.norm(route.queries * between[:, None], axis=-1)
        x = x + self.low.leak(route.tokens) + self.high.leak(route.tokens)
        return x * (y + self.low.leak(route.queries) + self.high.leak(route.queries))[..., None]


def _between(low: Cut, high: Cut, n: int) -> FloatArray:
    modes = np.arange(n)
    return ((modes >= low.after[..., None]) & (modes < high.after[..., None])).astype(np.float64)  # [H, P, n]


def run(s: Spectrum, queries: FloatArray, low: Cut, high: Cut) -> Run:
    """The run between two cuts. The Gram route divides D^T U by sigma, the covariance route takes D V."""
    B, m = s.left.shape[-1], s.sigma.shape[-1]
    between = _between(low, high, B + 1)
    inside = between[..., :m]
    open_end = between[..., -1]  # the covariance route may go outside the page's row space
    turn = low.turn + high.turn  # [H, P]
    energy = s.energy[..., :m]
    entries = np.swapaxes(s.right, -1, -2) ** 2  # [H, P, d, m]
    row = np.sqrt(np.max((entries @ inside[..., None])[..., 0], axis=-1)) + turn
    row = np.where(open_end > 0, 1.0, np.minimum(row, 1.0))
    channel = np.sqrt(np.max((entries @ (inside * energy)[..., None])[..., 0], axis=-1))
    channel = channel + turn * np.max(np.linalg.norm(s.deviations, axis=2), axis=-1)
    token = np.sqrt((s.left**2 @ between[..., :B, None])[..., 0])  # [H, P, B]
    token = np.minimum(token + turn[..., None], 1.0)
    size = np.linalg.norm(s.deviations, axis=-1)
    part = np.sqrt((s.left[..., :m] ** 2 @ (inside * energy)[..., None])[..., 0])
    part = np.minimum(part + turn[..., None] * size, size)
    spread = np.maximum(token * channel[..., None], part * row[..., None])
    squares = np.einsum("hpmd,hgd->hgpm", s.right, queries, optimize=True) ** 2
    whole = np.linalg.norm(queries, axis=-1)[..., None]
    outside = np.maximum(whole**2 - np.sum(squares, axis=-1), 0.0) * open_end[:, None]
    query = np.sqrt(np.einsum("hgpm,hpm->hgp", squares, inside, optimize=True) + outside)
    leak = (s.sigma[..., 0] * turn)[:, None] * whole
    return Run(low, high, spread, query, leak, whole, row)


def unresolved_coefficients(s: Spectrum, alone: NDArray[np.bool_]) -> FloatArray:
    """Largest magnitude of coefficients of modes that are not ``alone`` [H, P, r], NaN where they are, [H, P, B, r].

    Such a mode lies between the nearest clear gaps; its coefficient is at most the token's part there, by U sigma or
    by D V, and what leaks in.
    """
    result = np.full((*s.left.shape[:3], alone.shape[-1]), np.nan)
    energy, n = s.energy, s.left.shape[-1] + 1
    gap = energy[..., :-1] - energy[..., 1:]
    clear = (4 * s.gram[..., None] < gap) & (gap > 0)
    below = np.zeros(s.gram.shape, dtype=np.int64)
    size = np.linalg.norm(s.deviations, axis=-1)
    for k in range(alone.shape[-1]):
        if k:
            below = np.where(clear[..., k - 1], k, below)
        if alone[..., k].all():
            continue
        high = cut(s, np.where(clear[..., k], k + 1, next_gap(s, k + 1, 0.5)))
        low = cut(s, below)
        turn = (low.turn + high.turn)[..., None]
        between = _between(low, high, n)[..., :-1]
        token = np.sqrt((s.left**2 @ between[..., None])[..., 0]) + turn
        part = np.sqrt((s.left**2 @ (between * energy[..., :-1])[..., None])[..., 0]) + turn * size
        largest = np.take_along_axis(energy, below[..., None], axis=-1) + s.gram[..., None]
        cap = np.maximum(np.minimum(token, 1.0) * np.sqrt(largest), np.minimum(part, size))
        result[..., k] = np.where(alone[..., None, k], np.nan, cap)
    return result
