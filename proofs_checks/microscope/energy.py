"""Captured energy: how much of a page's key variance a basis of each scope keeps (Locks App. D, Table D.12)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.microscope.accumulate import Results, Values
from proofs_checks.microscope.selectors import PageContext, shared_fit, shared_scopes
from refimpl.baselines.shared_basis import captured_energy, shared_basis_pages
from refimpl.checks import FloatArray

PAGE_RANKS = (2, 4, 8, 15)


def page_spectrum(key_pages: FloatArray) -> FloatArray:
    """Cumulative fraction of within-page variance at ranks 1..min(B, d), [P, m] of pages [P, B, d].

    A page of identical keys has fraction 1 at every rank: it has nothing to lose.

    >>> page_spectrum(np.array([[[0.0, 0.0], [2.0, 0.0], [1.0, 3.0]]]))[0].round(6).tolist()
    [0.75, 1.0]
    """
    deviations = key_pages - key_pages.mean(axis=1, keepdims=True)
    energies = np.linalg.svd(deviations, compute_uv=False) ** 2  # [P, m]
    total = energies.sum(axis=1, keepdims=True)
    return np.divide(np.cumsum(energies, axis=1), total, out=np.ones_like(energies), where=total > 0)


def shared_ranks(head_size: int) -> tuple[int, ...]:
    """Ranks of the shared scopes as the paper's 8, 16, 32, 48, 64 of d = 128: compared at equal r/d.

    >>> shared_ranks(128), shared_ranks(64)
    ((8, 16, 32, 48, 64), (4, 8, 16, 24, 32))
    """
    return tuple(max(1, r * head_size // 128) for r in (8, 16, 32, 48, 64))


def measure_energy(capture: str, context: PageContext, results: Results) -> None:
    """Add one KV head's pages to the energy table: page scope, and both shared scopes in both forms."""
    spectrum = page_spectrum(context.key_pages)
    for rank in (r for r in PAGE_RANKS if r <= spectrum.shape[1]):
        results.at(Values, "energy", capture, "page", rank, "projected").add(spectrum[:, rank - 1])
    for scope in shared_scopes(context):
        for rank in shared_ranks(context.key_pages.shape[2]):
            fit = shared_fit(context, scope, rank)
            for form in ("projected", "reconstruction"):
                rebuilt = shared_basis_pages(key_pages=context.key_pages[None], form=form, **fit)
                energy = captured_energy(key_pages=context.key_pages[None], reconstruction=rebuilt)
                results.at(Values, "energy", capture, scope, rank, form).add(energy)


@dataclass(frozen=True)
class IsotropicNull:
    """Energy that a rank-r basis of its own captures of flat-spectrum pages."""

    median: float
    mean: float
    deviation: float
    pages: int


def isotropic_null(page_size: int, head_size: int, rank: int, pages: int = 20_000, seed: int = 0) -> IsotropicNull:
    """Captured energy of independent Gaussian pages [B, d]: what rank alone buys without structure.

    Source: Locks App. D (N = 20,000 synthetic isotropic pages). At d = 64, B = 16, r = 8 the median is .736.

    >>> null = isotropic_null(2, 3, 1, pages=10)                   # two keys span one mode, always
    >>> round(null.median, 9), null.deviation < 1e-9
    (1.0, True)
    """
    generator = np.random.default_rng(seed)
    fractions = np.empty(pages)
    for start in range(0, pages, 1000):
        stop = min(start + 1000, pages)
        deviations = generator.standard_normal((stop - start, page_size, head_size))
        deviations -= deviations.mean(axis=1, keepdims=True)
        energies = np.linalg.eigvalsh(deviations @ np.swapaxes(deviations, 1, 2))  # ascending, B of them
        fractions[start:stop] = energies[:, -rank:].sum(axis=1) / energies.sum(axis=1)
    return IsotropicNull(float(np.median(fractions)), float(fractions.mean()), float(fractions.std()), pages)
