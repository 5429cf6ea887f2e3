"""Judging a page summary by what defines it, never vector by vector (singular vectors are not unique).

Asked of every page: the centroid is the mean; kept columns are orthonormal; coefficients are the deviations'
projections on them; the columns are singular directions (their images are orthogonal); and centroid + C V^T loses no
more energy than the best rank-r approximation (Locks Cor. 1). Bounds follow from the Gram route in the port's dtype.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from proofs_checks.bounds.common import gamma
from proofs_checks.bounds.locks_build import PageScale, page_scale
from proofs_checks.judge.checks.general import Check
from proofs_checks.judge.judgement import Call, Departure, Judgement, compare
from refimpl.checks import FloatArray

BoolArray = NDArray[np.bool_]


def builder(floor: float = 0.0, rising: bool = False) -> Check:
    """The check of `locks_build_summary` by the five properties above.

    Modes that are not longer than ``floor`` are free; ``rising`` says that the largest mode stands last.
    """

    def check(call: Call) -> Judgement:
        judgement = Judgement()
        pages, u = call.inputs["key_pages"], call.precision.roundoff
        if pages.size == 0:
            return judgement
        centroid, basis, coefficients = (
            np.asarray(call.answer[n], dtype=np.float64) for n in ("centroid", "basis", "coefficients")
        )
        bound = gamma(pages.shape[2] + 1, u) * np.abs(pages).mean(axis=2) + call.precision.tiny
        compare(judgement, "centroid", centroid, call.reference["centroid"], bound)
        deviations = pages - call.reference["centroid"][:, :, None]
        scale = page_scale(pages, deviations, u)
        sigma = np.linalg.norm(coefficients, axis=2)  # [H, P, r], the port's own singular values
        # an eigensolver's vectors are of length 1 to gamma of the matrix's order, two times over
        floored = floor * (1 + gamma(2 * pages.shape[2] + 8, u))
        alive = sigma > np.maximum(scale.band, floored)[..., None]
        _orthonormal(judgement, basis, sigma, alive, scale, u, pages.shape[2])
        _projections(judgement, basis, coefficients, deviations, sigma, alive, scale, u)
        _diagonal(judgement, basis, deviations, sigma, alive, scale, u)
        _residual(judgement, call, basis, coefficients, deviations, scale, u)
        _order(judgement, sigma, alive, scale, rising)
        return judgement

    return check


built = builder()


def _orthonormal(
    judgement: Judgement, basis: FloatArray, sigma: FloatArray, alive: BoolArray, scale: PageScale, u: float, B: int
) -> None:
    """|V^T V - I|_ij <= E / (s_i s_j) + gamma_{B+d} (||D||/s_i + ||D||/s_j), where that is below 1."""
    safe = np.where(alive, sigma, np.inf)
    norm = np.sqrt(scale.energy)[..., None] / safe  # [H, P, r]
    pair = scale.gram[..., None, None] / (safe[..., :, None] * safe[..., None, :])
    slack = gamma(B + basis.shape[-2], u) * (norm[..., :, None] + norm[..., None, :] + 1)
    bound = np.where(alive[..., :, None] & alive[..., None, :], pair + slack, np.inf)
    product = np.swapaxes(basis, -1, -2) @ basis
    identity = np.broadcast_to(np.eye(basis.shape[-1]), product.shape)
    compare(judgement, "basis^T basis", product, identity, np.where(bound < 1, bound, np.inf))


def _projections(
    judgement: Judgement,
    basis: FloatArray,
    coefficients: FloatArray,
    deviations: FloatArray,
    sigma: FloatArray,
    alive: BoolArray,
    scale: PageScale,
    u: float,
) -> None:
    """||c_k - D v_k|| <= 2 E / s_k + gamma_{B+d+4} ||D|| + centring, column by column."""
    safe = np.where(alive, sigma, np.inf)
    norm = np.sqrt(scale.energy)[..., None]
    operations = deviations.shape[-2] + deviations.shape[-1] + 4
    bound = 2 * scale.gram[..., None] / safe + gamma(operations, u) * norm + scale.centring[..., None]
    error = np.linalg.norm(coefficients - deviations @ basis, axis=2)  # [H, P, r]
    compare(judgement, "coefficients - D basis", error, np.zeros_like(error), np.where(alive, bound, np.inf))


def _diagonal(
    judgement: Judgement,
    basis: FloatArray,
    deviations: FloatArray,
    sigma: FloatArray,
    alive: BoolArray,
    scale: PageScale,
    u: float,
) -> None:
    """|v_i^T D^T D v_j| <= 2 E (s_i/s_j + s_j/s_i) + gamma_{B+d} ||D|| (s_i + s_j) for i != j."""
    image = deviations @ basis  # [H, P, B, r]
    product = np.swapaxes(image, -1, -2) @ image
    safe = np.where(alive, sigma, 1.0)
    quotient = safe[..., :, None] / safe[..., None, :]
    norm = np.sqrt(scale.energy)[..., None, None]
    operations = deviations.shape[-2] + deviations.shape[-1]
    slack = gamma(operations, u) * norm * (safe[..., :, None] + safe[..., None, :])
    bound = 2 * scale.gram[..., None, None] * (quotient + np.swapaxes(quotient, -1, -2)) + slack
    off = alive[..., :, None] & alive[..., None, :] & ~np.eye(basis.shape[-1], dtype=bool)
    compare(
        judgement,
        "basis^T D^T D basis",
        np.where(off, product, 0.0),
        np.zeros_like(product),
        np.where(off, bound, np.inf),
    )


def _residual(
    judgement: Judgement,
    call: Call,
    basis: FloatArray,
    coefficients: FloatArray,
    deviations: FloatArray,
    scale: PageScale,
    u: float,
) -> None:
    """||D - C V^T||_F <= sqrt(tau_r + 2 r E + r band^2) + gamma_{B+r+6} || |C||V|^T ||_F + centring."""
    r, B = basis.shape[-1], deviations.shape[-2]
    loss = np.linalg.norm(deviations - coefficients @ np.swapaxes(basis, -1, -2), axis=(-2, -1))
    tail = np.sum(np.linalg.svd(deviations, compute_uv=False)[..., r:] ** 2, axis=-1)
    size = np.linalg.norm(np.abs(coefficients) @ np.swapaxes(np.abs(basis), -1, -2), axis=(-2, -1))
    allowed = np.sqrt(tail + 2 * r * scale.gram + r * scale.band**2) + gamma(B + r + 6, u) * size + scale.centring
    allowed = allowed + call.precision.tiny
    excess = np.maximum(loss - np.sqrt(tail), 0.0)
    compare(judgement, "lost energy beyond the best rank r", excess, np.zeros_like(excess), allowed - np.sqrt(tail))


def _order(judgement: Judgement, sigma: FloatArray, alive: BoolArray, scale: PageScale, rising: bool) -> None:
    """Columns by falling (or rising) singular value; another order of the same modes is a departure."""
    energy = np.where(alive, sigma**2, 0.0)
    energy, order = (energy[..., ::-1], "rising") if rising else (energy, "falling")
    rises = energy[..., 1:] > energy[..., :-1] + 2 * scale.gram[..., None] + scale.band[..., None] ** 2
    if not judgement.faults and rises.any():
        judgement.departures.append(Departure("AMB-32", f"basis columns are not in order of {order} singular value"))
