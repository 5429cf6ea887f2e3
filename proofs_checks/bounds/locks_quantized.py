"""How far logits may differ between two honest quantised summaries of one page (Locks Sec. 4; underived in the paper).

A token's logit is q.mu + sum_k c_k (v_k.q), all three quantised. Every run of modes is bounded in one of two ways:
mode by mode, where only codes within reach of a half step may differ, and scales stretch a little; or freely, as a
subspace whose basis may turn: what the reference's codes make of it is known, and a port's lie within half a step of
the unquantised content. The best division of the r modes into runs is found for every token.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from proofs_checks.bounds.common import times
from proofs_checks.bounds.locks_columns import Columns, columns
from proofs_checks.bounds.locks_perturbation import (
    Cut,
    Route,
    Spectrum,
    cut,
    next_gap,
    prefix_contents,
    routes,
    stake,
)
from proofs_checks.bounds.locks_rounding import EXACT, Requantized, Storage, requantized
from proofs_checks.bounds.locks_runs import Run, run, unresolved_coefficients
from refimpl.checks import FloatArray
from refimpl.locks.quantize import LEVELS

INT8 = LEVELS[8]


def quantization_error(
    s: Spectrum, queries: FloatArray, rank: int, basis_bits: int | str, u: float, storage: Storage = EXACT
) -> FloatArray:
    """|logit change| / scale between two honest quantised summaries of the same page, [H, G, P, B]."""
    level = LEVELS[basis_bits] if isinstance(basis_bits, int) else None
    if storage.smallest_mode:  # modes near it are not sure to be kept as they are
        s = replace(s, band=np.maximum(s.band, storage.smallest_mode))
    call = _Call(s, queries, rank, level, u, storage)
    total = call.centre()[..., None] + np.sum(call.singles, axis=0)
    plain = call.columns.alone.all(axis=-1) & (s.surely_kept(rank) == rank)
    rough = np.flatnonzero(~plain.all(axis=0))  # pages where modes may turn together, or be dropped
    if len(rough):
        part = _Call(s.pages(rough), queries, rank, level, u, storage)
        total[:, :, rough] = part.centre()[..., None] + part.modes()
    return total


@dataclass(frozen=True)
class _Call:
    """One call's arrays, each computed when asked for."""

    s: Spectrum
    queries: FloatArray  # [H, G, d]
    rank: int
    level: int | None  # of the basis; None leaves it unquantised
    u: float
    storage: Storage = EXACT

    def centre(self) -> FloatArray:
        """Of q.mu, [H, G, P]."""
        mu = requantized(self.s.centroid, self.s.centroid_error, -1, INT8, self.u, storage=self.storage)
        known = np.abs(np.einsum("hgd,hpd->hgp", self.queries, mu.value, optimize=True))
        flips = np.einsum("hgd,hpd->hgp", np.abs(self.queries), mu.steps, optimize=True)
        return times(mu.stretch[:, None], known) + mu.step[:, None] * flips

    def modes(self) -> FloatArray:
        """Of all modes, [H, G, P, B]: the best division of modes 1..b, then what is dropped or swapped behind it."""
        single, kept = self.singles, self.s.surely_kept(self.rank)[:, None, :, None]
        best: list[FloatArray] = [np.zeros(single.shape[1:])]
        for b in range(1, self.rank + 1):
            ways = [best[b - 1] + single[b - 1]]
            ways += [best[a] + self.free(a, self.cuts[b], b) for a in range(b)]
            best.append(np.where(kept >= b, np.min(ways, axis=0), np.inf))
        result = best[self.rank]
        for a in range(self.rank + 1) if np.isinf(result).any() else ():
            for high in self.highs:
                result = np.minimum(result, best[a] + self.free(a, high, self.rank))
        return result

    def free(self, a: int, high: Cut, b: int) -> FloatArray:
        """Of modes a+1 .. b of r as a subspace that may turn within the modes up to ``high``, [H, G, P, B]."""
        low = self.cuts[a]
        whole = high is self.cuts[b]
        known = self.deployed[b] - self.deployed[a]
        ahead = self.changes[a]
        if whole:
            content = np.max([np.abs(c[b] - c[a] - known) for c in self.contents], axis=0) + ahead + self.changes[b]
        else:
            content = np.maximum(*(stake(route, low, high, known) for route in self.routes)) + ahead
        turned = run(self.s, self.queries, low, high)
        half_steps = self._half_steps(turned, b - a, b)
        return content + half_steps + self._stored(turned, b - a, half_steps)

    def _stored(self, turned: Run, count: int, half_steps: FloatArray) -> FloatArray | float:
        """What storing the scales of a run's columns and rows may add: sum_k |c_k v_k.q| times both relative changes.

        A scale at its floor has half a step of its own: |q|_1 floor / 2 on every coefficient.
        """
        if self.storage is EXACT:
            return 0.0
        part = np.maximum(*(turned.content(route) for route in self.routes))
        row = np.linalg.norm(self.s.deviations, axis=-1) + self.storage.smallest_mode  # [H, P, B]
        at_floor = np.sqrt(count) * self.storage.floor / 2 * row[:, None]
        both = (1 + self.storage.relative) ** 2
        norm1 = np.sum(np.abs(self.queries), axis=-1)[:, :, None, None]
        stored: FloatArray = (both - 1) * (part + half_steps) + both * norm1 * at_floor
        return stored

    def _half_steps(self, turned: Run, count: int, last: int) -> FloatArray:
        """Half a step of ``count`` columns and coefficients of a run, modes up to ``last`` kept, [H, G, P, B].

        sum_k |c_k| |q|_1 s_k / 2 with s_k = largest entry / level (Cauchy-Schwarz over k), and sum_k |v~_k.q| s / 2 of
        the token's row. Noise modes have no size of their own, but half a step never exceeds the coefficient itself.
        """
        norm1 = np.sum(np.abs(self.queries), axis=-1)[:, :, None, None]  # [H, G, 1, 1]
        half = norm1 * (np.sqrt(count) / (2 * self.level) if self.level else 0.0)
        basis = half * turned.spread[:, None]
        energy = self.s.energy[..., last - 1] - self.s.gram if last else np.zeros(self.s.gram.shape)
        sure = (self.s.surely_kept(self.rank) >= last) & (energy > 0)
        inflated = np.sqrt(1 + np.divide(self.s.gram, energy, out=np.zeros_like(energy), where=sure))
        sigma = np.sqrt(np.where(sure, energy, 1.0))
        size = np.minimum(turned.query + turned.leak / sigma[:, None], turned.whole) * inflated[:, None]  # [H, G, P]
        projected = size[..., None] + half * (turned.row * inflated)[:, None, :, None]
        row = self.rows.step[:, None] * np.sqrt(count) / 2 * projected
        if sure.all():
            return basis + row
        part = np.maximum(*(turned.content(route) for route in self.routes))
        return basis + np.where(sure[:, None, :, None], row, part + basis)

    @cached_property
    def cuts(self) -> list[Cut]:
        """After 0 .. r modes."""
        return [cut(self.s, np.full(self.s.gram.shape, a)) for a in range(self.rank + 1)]

    @cached_property
    def highs(self) -> list[Cut]:
        """Where a swap of modes may end: at the next clear gap, or nowhere."""
        return [cut(self.s, next_gap(self.s, self.rank, limit)) for limit in (0.25, 0.0)]

    @cached_property
    def routes(self) -> tuple[Route, Route]:
        """Both ways to the projector."""
        return routes(self.s, self.queries)

    @cached_property
    def changes(self) -> list[FloatArray]:
        """What the content before each cut may change by, [H, G, P, B], the worse of both routes."""
        return [np.maximum(*(c.change(route) for route in self.routes)) for c in self.cuts]

    @cached_property
    def contents(self) -> list[FloatArray]:
        """Unquantised content of modes 1 .. b, b = 0 .. r, by each route."""
        return [prefix_contents(route, self.rank) for route in self.routes]

    @cached_property
    def columns(self) -> Columns:
        """Moves of separated modes."""
        return columns(self.s, self.queries, self.cuts, self.u)

    @cached_property
    def basis(self) -> FloatArray:
        """The reference's columns, [H, P, d, r]."""
        kept = self.s.live[..., None, : self.rank]
        return np.where(kept, np.swapaxes(self.s.right[..., : self.rank, :], -1, -2), 0.0)

    @cached_property
    def coefficients(self) -> FloatArray:
        """The reference's coefficients, [H, P, B, r]."""
        kept = self.s.live[..., None, : self.rank]
        return np.where(kept, self.s.left[..., : self.rank] * self.s.sigma[..., None, : self.rank], 0.0)

    @cached_property
    def rows(self) -> Requantized:
        """Coefficients by token."""
        alone = self.columns.alone
        if self.storage.smallest_mode:  # raised modes have no coefficients of their own
            alone = alone & (np.arange(self.rank) < self.s.surely_kept(self.rank)[..., None])
        unresolved = np.maximum(unresolved_coefficients(self.s, alone), self.storage.smallest_mode)
        moved = np.where(alone[..., None, :], self.columns.coefficients, 0.0)
        return requantized(self.coefficients, moved, -1, INT8, self.u, unresolved, self.storage)

    @cached_property
    def deployed(self) -> FloatArray:
        """The reference's content of modes 1 .. b, b = 0 .. r, [r + 1, H, G, P, B]."""
        return prefix_contents(Route(self.rows.value[:, None], self.projected[0]), self.rank)

    @cached_property
    def projected(self) -> tuple[FloatArray, FloatArray]:
        """v~_k.q of the reference and how far a port's may lie from it, [H, G, P, r]; infinite if not separated."""
        q, moves = self.queries, self.columns
        exact = np.einsum("hgd,hpdr->hgpr", q, self.basis, optimize=True)
        if self.level is None:
            return exact, moves.projections
        moved = np.where(moves.alone[..., None, :], moves.basis, 0.0)
        codes = requantized(self.basis, moved, -2, self.level, self.u, storage=self.storage)
        known = np.einsum("hgd,hpdr->hgpr", q, codes.value, optimize=True)
        flips = np.einsum("hgd,hpdr->hgpr", np.abs(q), codes.steps, optimize=True)
        stretch = (codes.stretch + moves.common)[:, None]
        step = (codes.step * (1 + moves.common))[:, None]
        half = np.sum(np.abs(q), axis=-1)[:, :, None, None] * step / 2
        if self.storage.relative:
            size = np.einsum("hgd,hpdr->hgpr", np.abs(q), np.abs(self.basis) + moved, optimize=True)
            half = half + self.storage.relative * (size * (1 + moves.common)[:, None] + half)
        by_codes = times(stretch, np.abs(known)) + step * flips
        by_half = np.abs(exact - known) + moves.projections + half
        return known, np.where(moves.alone[:, None], np.minimum(by_codes, by_half), np.inf)

    @cached_property
    def singles(self) -> FloatArray:
        """Each mode alone, [r, H, G, P, B]."""
        known, moved = self.projected
        rows, moves = self.rows, self.columns.coefficients
        by_codes = times(rows.stretch[..., None], np.abs(rows.value)) + rows.steps * rows.step[..., None]
        half = rows.step[..., None] / 2
        if self.storage.relative:
            half = half + self.storage.relative * (np.abs(self.coefficients) + moves + half)
        by_half = np.abs(rows.value - self.coefficients) + moves + half
        change = np.minimum(by_codes, by_half)[:, None]  # [H, 1, P, B, r]
        with np.errstate(invalid="ignore"):
            total = np.abs(rows.value)[:, None] * moved[..., None, :] + change * (np.abs(known) + moved)[..., None, :]
        return np.moveaxis(np.where(np.isnan(total) | np.isinf(moved)[..., None, :], np.inf, total), -1, 0)
