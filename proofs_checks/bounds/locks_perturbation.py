"""How far reconstructed logits may differ between two honest summaries of one page (Locks Sec. 4).

The paper leaves the perturbation by the deployed quantisation underived; here it is, page by page. Two facts make it
sharp. A well separated mode moves by at most theta = 4 E / gap (Davis-Kahan, and the division by sigma of the Gram
route), so a quantised entry changes its code only where it lies within reach of a half step; each change moves the
logit by one step times its partner. A cluster of close modes may turn freely, so there its whole content is at stake.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from proofs_checks.bounds.common import gamma
from proofs_checks.bounds.locks_build import page_scale
from refimpl.checks import FloatArray
from refimpl.locks.quantize import LEVELS


@dataclass(frozen=True)
class Spectrum:
    """Singular structure of every page, D = U diag(sigma) V^T, and how far a port may turn it."""

    centroid: FloatArray  # [H, P, d]
    deviations: FloatArray  # [H, P, B, d]
    sigma: FloatArray  # [H, P, m]
    right: FloatArray  # [H, P, m, d]
    gram: FloatArray  # [H, P], E of the Gram matrix's eigenproblem
    band: FloatArray  # [H, P], true singular values up to it may be dropped
    centroid_error: FloatArray  # [H, P, d]


def spectrum(key_pages: FloatArray, u: float) -> Spectrum:
    """The spectrum of pages [H, P, B, d] and the error magnitudes of a port whose operations err by ``u``.

    A port drops a mode by its own sigma^2, which is off by up to E: so true values up to sqrt(band^2 + E) may go.
    """
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    _, sigma, right = np.linalg.svd(deviations, full_matrices=False)
    scale = page_scale(key_pages, deviations, u)
    error = gamma(key_pages.shape[2] + 1, u) * np.abs(key_pages).mean(axis=2)
    band = np.sqrt(scale.band**2 + scale.gram)
    return Spectrum(centroid, deviations, sigma, right, scale.gram, band, error)


def _turned(gap: FloatArray, gram: FloatArray) -> FloatArray:
    """4 E / gap, infinite where the gap is not above 4 E."""
    return np.where(gap > 4 * gram, 4 * gram / np.where(gap > 0, gap, 1.0), np.inf)


def subspace_error(s: Spectrum, queries: FloatArray, rank: int) -> FloatArray:
    """|delta_i^T (P^ - P) q| for the projectors on the first ``rank`` modes, [H, G, P, B].

    For every split a <= r of the modes: 4 E / gap_a turns the first a modes, and of the rest any r - a directions may
    be kept, so ||delta_{>a}|| ||q_{>a}|| is at stake (nothing for a = r). The smallest over a holds, and so does the
    whole. Modes in the band may be left out.
    """
    r = min(rank, s.sigma.shape[-1])
    inside_q = np.einsum("hpmd,hgd->hgpm", s.right, queries, optimize=True)
    inside_k = np.einsum("hpmd,hpbd->hpbm", s.right, s.deviations, optimize=True)
    energy = np.concatenate([s.sigma**2, np.zeros((*s.gram.shape, 1))], axis=-1)
    size_q = np.linalg.norm(queries, axis=-1)[:, :, None, None]  # [H, G, 1, 1]
    whole = size_q * np.linalg.norm(s.deviations, axis=-1)[:, None]  # [H, G, P, B]
    best = whole
    for a in range(1, r + 1):
        turned = _turned(energy[..., a - 1] - energy[..., a], s.gram)[:, None, :, None]
        rest_q = np.linalg.norm(inside_q[..., a:], axis=-1)[..., None]
        rest = 0.0 if a == r else rest_q * np.linalg.norm(inside_k[..., a:], axis=-1)[:, None]
        best = np.minimum(best, np.where(np.isinf(turned), np.inf, np.minimum(turned, 2.0) * whole + rest))
    return best + rank * s.band[:, None, :, None] * size_q


def requantized(x: FloatArray, moved: FloatArray, axis: int, level: int | None, u: float) -> FloatArray:
    """How far the dequantised value of ``x`` may move when x itself moves by up to ``moved``.

    With step s = absmax / level and M the largest move in its line, x / s moves by at most (moved + M) / s': a code
    changes only if that reaches its half step. The value then moves by the steps, and by M through the scale.
    """
    if level is None:
        return moved
    largest = np.max(np.abs(x), axis=axis, keepdims=True)
    move = np.max(moved, axis=axis, keepdims=True)
    step, low = largest / level, (largest - move) / level
    ratio = np.divide(x, step, out=np.zeros_like(x), where=step > 0)
    reach = np.divide(moved + move, low, out=np.full(x.shape, np.inf), where=low > 0) + 8 * u * (np.abs(ratio) + 1)
    near = np.abs(np.abs(ratio - np.floor(ratio)) - 0.5) <= reach
    steps = np.where(near | (reach >= 0.5), np.ceil(np.minimum(reach, 2.0 * level) + 0.5), 0.0)
    change = steps * (step + move / level) + move + 8 * u * np.abs(x)
    return np.minimum(change, 2 * (largest + move))  # neither value exceeds its line's maximum


def quantization_error(s: Spectrum, queries: FloatArray, rank: int, basis_bits: int | str, u: float) -> FloatArray:
    """|logit change| / scale between two honest quantised summaries of the same page, [H, G, P, B].

    The smaller of two bounds: codes that can flip, column by column, where every mode is separated; and what two free
    rotations of the kept subspace can do, each rounded by half a step everywhere.
    """
    level = LEVELS[basis_bits] if isinstance(basis_bits, int) else None
    sigma = s.sigma[..., :rank]
    live = sigma > s.band[..., None]  # [H, P, r]
    basis = np.where(live[..., None, :], np.swapaxes(s.right[..., :rank, :], -1, -2), 0.0)  # [H, P, d, r]
    coefficients = s.deviations @ basis  # [H, P, B, r]
    theta = np.where(live, _mode_turn(s)[..., :rank], 0.0)
    separated = np.asarray(np.isfinite(theta).all(axis=-1))[:, None, :, None]
    theta = np.where(np.isfinite(theta), theta, 0.0)[..., None, :]  # [H, P, 1, r]
    size = np.linalg.norm(s.deviations, axis=-1)[..., None]  # [H, P, B, 1]
    moved_c = size * theta + 2 * s.gram[..., None, None] / np.where(live, sigma, np.inf)[..., None, :]
    change_mu = requantized(s.centroid, s.centroid_error, -1, 127, u)
    change_v = requantized(basis, np.broadcast_to(theta, basis.shape), -2, level, u)
    change_c = requantized(coefficients, moved_c, -1, 127, u)
    centre = np.einsum("hgd,hpd->hgp", np.abs(queries), change_mu, optimize=True)
    across = np.einsum("hgd,hpdr->hgpr", np.abs(queries), change_v, optimize=True)
    rounding_v = np.zeros(sigma.shape) if level is None else np.max(np.abs(basis), axis=-2) / level / 2  # [H, P, r]
    projected = np.abs(np.einsum("hgd,hpdr->hgpr", queries, basis, optimize=True))
    norm1 = np.sum(np.abs(queries), axis=-1)[:, :, None, None]
    deployed = projected + norm1 * rounding_v[:, None]  # |q.v~_k| of the reference's codes
    half_c = np.max(np.abs(coefficients), axis=-1, keepdims=True) / 254
    flip = np.einsum("hgpr,hpbr->hgpb", across, np.abs(coefficients) + half_c + change_c, optimize=True)
    flip += np.einsum("hgpr,hpbr->hgpb", deployed, change_c, optimize=True)
    free = subspace_error(s, queries, rank) + 2 * half_steps(s, queries, rank, level)
    dropped = rank * s.band[:, None, :, None] * np.linalg.norm(queries, axis=-1)[:, :, None, None]
    return centre[..., None] + np.where(separated, np.minimum(flip, free), free) + dropped


def _mode_turn(s: Spectrum) -> FloatArray:
    """4 E / gap of every mode to its neighbours and to zero, [H, P, m]; infinite where not separated."""
    energy = s.sigma**2
    edge = np.zeros((*s.gram.shape, 1))
    padded = np.concatenate([edge + np.inf, energy, edge], axis=-1)
    gap = np.minimum(padded[..., :-2] - padded[..., 1:-1], padded[..., 1:-1] - padded[..., 2:])
    return _turned(gap, s.gram[..., None])


def half_steps(s: Spectrum, queries: FloatArray, rank: int, level: int | None) -> FloatArray:
    """Largest |logit change| / scale of rounding any basis of the kept subspace and its coefficients, [H, G, P, B].

    sum_k |c_ik| |q|_1 s_k / 2 with sum_k |c_ik| <= sqrt(r) ||delta_i|| and s_k <= largest row norm of V / level, and
    sum_k |v~_k.q| s_c / 2 with s_c <= ||delta_i|| / 127.
    """
    size = np.linalg.norm(s.deviations, axis=-1)[:, None]  # [H, 1, P, B]
    norm1 = np.sum(np.abs(queries), axis=-1)[:, :, None]  # [H, G, 1]
    norm2 = np.linalg.norm(queries, axis=-1)[:, :, None]
    rows = np.max(np.linalg.norm(s.right, axis=-2), axis=-1)[:, None]  # [H, 1, P]
    step = np.zeros_like(rows) if level is None else rows / level
    r = min(rank, s.sigma.shape[-1])
    per_basis = norm1 * step / 2 * np.sqrt(r)
    per_coefficient = (np.sqrt(r) * norm2 + r * norm1 * step / 2) / 254
    total: FloatArray = (per_basis * (1 + 1 / 127) + per_coefficient)[..., None] * size
    return total
