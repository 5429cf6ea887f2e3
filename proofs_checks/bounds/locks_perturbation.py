"""How far the reconstruction of a page's logits may differ between two honest builds of its summary (Locks Sec. 4).

Without quantisation a token's logit is x^T P y: P projects on the kept modes, and (x, y) are the token and D q in
the token coordinates of the Gram route (D D^T), or its deviation and the query in the channel coordinates of the
covariance route (D^T D). A port's projector belongs to a matrix perturbed by a symmetric X with ||X||_F <= E. With
lambda the squared singular values, a the number of modes in P, g = lambda_a - lambda_{a+1} and t = 2 E / g < 1:

- first order: sum_{k <= a < l} X_kl (x_k y_l + x_l y_k) / (lambda_k - lambda_l), at most E / sqrt(2) times the norm of
  the coefficients, since every X_kl stands in X twice;
- the rest, from the resolvent's series on the vertical line through the middle c of the gap: the term of order n is
  at most (E / 2) t^(n-1) N(x) N(y) with N(x)^2 = sum_k x_k^2 / |lambda_k - c| (Cauchy-Schwarz along the line).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from proofs_checks.bounds.common import gamma
from proofs_checks.bounds.locks_build import page_scale
from refimpl.checks import FloatArray
from refimpl.locks.summary import zero_mode_level

EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True)
class Spectrum:
    """Singular structure of every page, D = U diag(sigma) V^T, and the errors of a port that computes it."""

    deviations: FloatArray  # [H, P, B, d]
    left: FloatArray  # [H, P, B, B], columns beyond the m singular values span the rest
    sigma: FloatArray  # [H, P, m]
    right: FloatArray  # [H, P, m, d]
    gram: FloatArray  # [H, P], E of the eigenproblem
    band: FloatArray  # [H, P], singular values up to it may be dropped
    centroid: FloatArray  # [H, P, d]
    centroid_error: FloatArray  # [H, P, d]
    live: NDArray[np.bool_]  # [H, P, m], modes that the reference keeps

    @cached_property
    def energy(self) -> FloatArray:
        """Squared singular values, zeros behind them: [H, P, max(m, B) + 1]."""
        more = self.left.shape[-1] + 1 - self.sigma.shape[-1]
        squares: FloatArray = self.sigma**2
        return np.concatenate([squares, np.zeros((*squares.shape[:2], more))], axis=-1)

    def pages(self, chosen: NDArray[np.int64]) -> Spectrum:
        """The spectrum of some pages only."""
        return Spectrum(**{field.name: getattr(self, field.name)[:, chosen] for field in fields(self)})

    def surely_kept(self, rank: int) -> NDArray[np.int64]:
        """How many of the first ``rank`` modes every port keeps, [H, P] (AMB-10; lambda is known to E)."""
        sure = self.sigma[..., :rank] ** 2 > self.band[..., None] ** 2 + self.gram[..., None]
        return np.sum(np.cumprod(sure, axis=-1), axis=-1)


def spectrum(key_pages: FloatArray, u: float) -> Spectrum:
    """The spectrum of pages [H, P, B, d] and the error magnitudes of a port whose operations err by ``u``."""
    B, d = key_pages.shape[2:]
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    left, sigma, right = np.linalg.svd(deviations, full_matrices=False)  # as the reference, so its codes are these
    if d < B:
        rest = np.linalg.qr(left, mode="complete")[0][..., d:]
        left = np.concatenate([left, rest], axis=-1)
    scale = page_scale(key_pages, deviations, u)
    error = gamma(B + 1, u) * np.abs(key_pages).mean(axis=2)
    live = sigma > zero_mode_level(key_pages)[..., None]
    return Spectrum(deviations, left, sigma, right, scale.gram, scale.band, centroid, error, live)


@dataclass(frozen=True)
class Route:
    """One way to the projector: both sides of x^T P y in its coordinates, zeros where there is no mode."""

    tokens: FloatArray  # [H, 1, P, B, n]
    queries: FloatArray  # [H, G, P, n]


def routes(s: Spectrum, queries: FloatArray) -> tuple[Route, Route]:
    """The Gram and the covariance route; the last coordinate of the second is the query outside the row space."""
    inside = np.einsum("hpmd,hgd->hgpm", s.right, queries, optimize=True)  # [H, G, P, m]
    size = np.linalg.norm(queries, axis=-1)[:, :, None]
    outside = np.sqrt(np.maximum(size**2 - np.sum(inside**2, axis=-1), 0.0))[..., None]
    n, m = s.left.shape[-1] + 1, s.sigma.shape[-1]
    pad = ((0, 0),) * 3
    gram = Route(np.pad(s.left, (*pad, (0, 1)))[:, None], np.pad(s.sigma[:, None] * inside, (*pad, (0, n - m))))
    channel = np.concatenate([np.pad(inside, (*pad, (0, n - 1 - m))), outside], axis=-1)
    covariance = Route(np.pad(s.left[..., :m] * s.sigma[:, :, None], (*pad, (0, n - m)))[:, None], channel)
    return gram, covariance


@dataclass(frozen=True)
class Cut:
    """The gap after the first ``after`` modes of every page, and how far a projector on them may turn.

    ``turn`` [H, P] bounds the norm of the projector's change, 1 where t >= 1 leaves it free; after = 0 and after all
    modes nothing turns.
    """

    after: NDArray[np.int64]  # [H, P]
    gram: FloatArray  # [H, P], E
    gap: FloatArray  # [H, P], infinite where nothing turns
    t: FloatArray  # [H, P], infinite where the gap closes
    near: FloatArray  # [H, P, n], 1 / |lambda - c|
    pairs: FloatArray  # [H, P, n, n], 1 / (lambda_k - lambda_l)^2 across the gap, both ways

    @property
    def turn(self) -> FloatArray:
        """Norm of the projector's change, (t / 2) / (1 - t) and never above 1, [H, P]."""
        return np.where(self.t < 1, np.minimum(0.5 * self.t / np.where(self.t < 1, 1 - self.t, 1.0), 1.0), 1.0)

    def leak(self, side: FloatArray) -> FloatArray:
        """Norm of the projector's change times a vector: [H, ., P, (B,) n] -> [H, ., P, (B)]."""
        shape = (len(self.gap), 1, self.gap.shape[1], *([1] * (side.ndim - 4)))
        root = np.where(self.t < 1, self.gram / np.sqrt(2 * self.gap) / np.where(self.t < 1, 1 - self.t, 1.0), np.inf)
        size = np.linalg.norm(side, axis=-1)
        with np.errstate(invalid="ignore"):
            moved = root.reshape(shape) * self._near(side)
        return np.fmin(moved, size)

    def change(self, route: Route) -> FloatArray:
        """|x^T (P^ - P) y| of every token and query, [H, G, P, B]; infinite where t >= 1."""
        x, y = route.tokens, route.queries
        squares = np.squeeze(x**2 @ (y[..., None, :] ** 2 @ self.pairs[:, None]).swapaxes(-1, -2), -1)
        both = x * y[..., None, :]  # [H, G, P, B, n]
        cross = np.sum((both @ self.pairs[:, None]) * both, axis=-1)
        first = np.sqrt(np.maximum(squares + cross, 0.0) + 64 * EPS * squares) / np.sqrt(2)
        free = self.t >= 1
        tail = 0.5 * np.where(free, 0.0, self.t) / np.where(free, 1.0, 1 - self.t)
        rest = self._near(x) * self._near(y)[..., None] * tail[:, None, :, None]
        total: FloatArray = self.gram[:, None, :, None] * (first + rest)
        return np.where(free[:, None, :, None], np.inf, total)

    def _near(self, side: FloatArray) -> FloatArray:
        """N of a vector, [H, ., P, (B,) n] -> [H, ., P, (B)]."""
        weight = self.near[:, None, :, None] if side.ndim == 5 else self.near[:, None]
        return np.sqrt(np.sum(side**2 * weight, axis=-1))


def cut(s: Spectrum, after: NDArray[np.int64]) -> Cut:
    """The cut after ``after`` [H, P] modes, 0 <= after <= n."""
    energy, gram = s.energy, s.gram
    n = energy.shape[-1]
    inside = np.arange(n) < after[..., None]  # [H, P, n]
    at = np.clip(after, 1, n - 1)[..., None]
    upper, lower = (np.take_along_axis(energy, at - 1 + i, axis=-1)[..., 0] for i in (0, 1))
    fixed = (after <= 0) | (after >= n)
    gap = np.where(fixed, np.inf, upper - lower)
    t = np.where(fixed, 0.0, np.divide(2 * gram, gap, out=np.full(gap.shape, np.inf), where=gap > 0))
    t = np.where((gram == 0) & (gap <= 0), np.inf, t)
    open_ = (t < 1) & ~fixed
    away = np.abs(energy - ((upper + lower) / 2)[..., None])
    near = np.divide(1.0, away, out=np.zeros_like(away), where=open_[..., None] & (away > 0))
    across = (inside[..., :, None] != inside[..., None, :]) & open_[..., None, None]
    difference = energy[..., :, None] - energy[..., None, :]
    pairs = np.divide(1.0, difference**2, out=np.zeros_like(difference), where=across)
    return Cut(after, gram, np.where(gap > 0, gap, 1.0), t, near, pairs)


def next_gap(s: Spectrum, rank: int, limit: float) -> NDArray[np.int64]:
    """The first number of modes >= ``rank`` after which t <= ``limit``; n where there is none. [H, P]."""
    energy = s.energy
    n = energy.shape[-1]
    gap = energy[..., :-1] - energy[..., 1:]  # after 1 .. n - 1 modes
    good = (2 * s.gram[..., None] <= limit * gap) & (gap > 0)
    good[..., : rank - 1] = False
    return np.where(good.any(axis=-1), np.argmax(good, axis=-1) + 1, n)


def stake(route: Route, low: Cut, high: Cut, reference: FloatArray) -> FloatArray:
    """How far the content of any projector between two cuts may lie from ``reference``, [H, G, P, B].

    With x', y' the sides between the cuts, x'^T Q y' of any projector Q lies within |x'| |y'| / 2 of x'.y' / 2 (2 Q - I
    is a reflection); the cuts' own turning leaks into both sides.
    """
    modes = np.arange(route.queries.shape[-1])
    between = (modes >= low.after[..., None]) & (modes < high.after[..., None])  # [H, P, n]
    x, y = route.tokens * between[:, None, :, None], route.queries * between[:, None]
    centre = (x @ y[..., None])[..., 0] / 2  # [H, G, P, B]
    size_x, size_y = np.linalg.norm(x, axis=-1), np.linalg.norm(y, axis=-1)[..., None]
    leak_x = low.leak(route.tokens) + high.leak(route.tokens)
    leak_y = (low.leak(route.queries) + high.leak(route.queries))[..., None]
    return np.abs(centre - reference) + size_x * size_y / 2 + leak_x * (size_y + leak_y) + size_x * leak_y


def prefix_contents(route: Route, rank: int) -> FloatArray:
    """x_k y_k summed over the first 0..rank modes, [rank + 1, H, G, P, B]."""
    single = np.moveaxis(route.tokens[..., :rank] * route.queries[..., None, :rank], -1, 0)
    return np.concatenate([np.zeros((1, *single.shape[1:])), np.cumsum(single, axis=0)])


def subspace_error(s: Spectrum, queries: FloatArray, rank: int) -> FloatArray:
    """|logit change| / scale between two unquantised reconstructions of rank ``rank``, [H, G, P, B].

    The best of: the change of the rank-r projector, where no mode may be dropped; and for every cut a that surely
    holds, its change and what the modes behind it have at stake. A port may take either route.
    """
    worst: FloatArray = np.zeros(())
    kept = s.surely_kept(rank)[:, None, :, None]
    cuts = [cut(s, np.full(s.gram.shape, a)) for a in range(rank + 1)]
    highs = [cut(s, next_gap(s, rank, limit)) for limit in (0.25, 0.0)]
    for route in routes(s, queries):
        contents = prefix_contents(route, rank)
        best = np.where(kept >= rank, cuts[rank].change(route), np.inf)
        for a, low in enumerate(cuts):
            ahead = np.where(kept >= a, low.change(route), np.inf)
            if np.all(ahead >= best):
                continue
            wanted = contents[rank] - contents[a]
            behind = np.minimum(*(stake(route, low, high, wanted) for high in highs))
            best = np.minimum(best, ahead + behind)
        worst = np.maximum(worst, best)
    return worst
