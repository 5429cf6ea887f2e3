"""Rotation control: the same scopes fitted before and after rotary embedding (Locks Table D.16, Sec. 3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.microscope.selectors import PageContext, Selector, rebuilt_scores
from proofs_checks.microscope.source import Rope
from refimpl.baselines.shared_basis import bucket_basis_pages, captured_energy, sequence_basis, shared_basis_pages
from refimpl.checks import ArgumentError, FloatArray, IntArray
from refimpl.locks.summary import locks_build_summary, reconstruct

BUCKETS = (4, 16, 64)


def rotate(x: FloatArray, positions: IntArray, rope: Rope, *, inverse: bool = False) -> FloatArray:
    """Rotate vectors [..., d] by their positions [...], or back: frequency f turns by position theta^(-2f/d).

    Half-split pairing turns channels f and f + d/2 together, interleaved pairing 2f and 2f + 1. Raises ArgumentError
    for an odd d or another pairing.

    >>> turned = rotate(np.array([[1.0, 0.0]]), np.array([3]), Rope(10000.0))
    >>> turned.round(6).tolist() == [[round(float(np.cos(3)), 6), round(float(np.sin(3)), 6)]]
    True
    """
    d = x.shape[-1]
    if d % 2 or rope.pairing not in ("half-split", "interleaved"):
        raise ArgumentError(
            f"rope: expected an even d and pairing half-split or interleaved, got {d}, {rope.pairing!r}"
        )
    angle = positions[..., None] * rope.theta ** (-2 * np.arange(d // 2) / d)  # [..., d/2]
    cos, sin = np.cos(angle), np.sin(angle) * (-1 if inverse else 1)
    first, second = (
        (slice(0, d // 2), slice(d // 2, d)) if rope.pairing == "half-split" else (slice(0, d, 2), slice(1, d, 2))
    )
    turned = np.empty_like(x)
    turned[..., first] = x[..., first] * cos - x[..., second] * sin
    turned[..., second] = x[..., first] * sin + x[..., second] * cos
    return turned


def _rebuild(scope: str, rank: int, pages: FloatArray, first_head: FloatArray) -> FloatArray:
    """Reconstruction [P, B, d] of pages by the basis and mean of "page", "sequence", "global" or "bucket-n"."""
    if scope == "page":
        built = locks_build_summary(key_pages=pages[None], rank=rank)
        return reconstruct(built["centroid"], built["basis"], built["coefficients"])[0]
    if scope.startswith("bucket-"):
        bucket = int(scope.removeprefix("bucket-"))
        return bucket_basis_pages(key_pages=pages[None], rank=rank, bucket=bucket, form="reconstruction")[0]
    keys = first_head if scope == "global" else pages.reshape(-1, pages.shape[2])
    fit = sequence_basis(keys=keys[None], rank=rank)
    return shared_basis_pages(key_pages=pages[None], form="reconstruction", **fit)[0]


@dataclass(frozen=True)
class RotationRow:
    """One row of Table D.16: a scope, fitted to keys before or after rotation, in reconstruction form (AMB-28).

    "global" is the basis of the layer's KV head 0, as in Fig. 1: held-out moments of rotated keys say nothing about
    unrotated ones.
    """

    scope: str
    rank: int
    before: bool

    @property
    def name(self) -> str:
        """The row's label."""
        return f"{self.scope} r{self.rank} {'before' if self.before else 'after'} rotation"

    def fit(self, context: PageContext) -> tuple[FloatArray, FloatArray]:
        """The pages in the regime of the fit and their reconstruction there, both [P, B, d]."""
        pages, first = context.key_pages, context.first_head_keys
        if first is None:
            first = context.keys
        if not self.before:
            return pages, _rebuild(self.scope, self.rank, pages, first)
        if context.rope is None:
            raise ArgumentError("rope: expected the capture to describe its rotation, got none")
        plain = rotate(pages, context.positions, context.rope, inverse=True)
        first = rotate(first, context.positions.reshape(-1), context.rope, inverse=True)
        return plain, _rebuild(self.scope, self.rank, plain, first)

    def energy(self, context: PageContext) -> FloatArray:
        """Captured energy [P], of the variance in the regime of the fit; the residual is the same in both."""
        pages, rebuilt = self.fit(context)
        return captured_energy(key_pages=pages[None], reconstruction=rebuilt[None])[0]

    def selector(self) -> Selector:
        """The row as a selector: reconstructions fitted before rotation are rotated again, then scored."""

        def build(context: PageContext) -> FloatArray:
            rebuilt = self.fit(context)[1]
            if not self.before or context.rope is None:
                return rebuilt
            return rotate(rebuilt, context.positions, context.rope)

        return Selector(self.name, build, rebuilt_scores)


def rotation_rows(rank: int, context: PageContext) -> list[RotationRow]:
    """Table D.16's rows that a capture allows: three scopes before and after rotation, and bucketed bases after it."""
    scopes = ("global", "sequence", "page") if context.first_head_keys is not None else ("sequence", "page")
    regimes = (True, False) if context.rope is not None else (False,)
    rows = [RotationRow(scope, rank, before) for before in regimes for scope in scopes]
    return rows + [RotationRow(f"bucket-{n}", rank, False) for n in BUCKETS]
