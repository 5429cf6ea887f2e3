"""Honest ways to build and quantise a page summary in float32, none of them the reference's."""

from __future__ import annotations

import numpy as np

F = np.float32
LEVELS = {2: 1, 4: 7, 8: 127}


def _band(pages, norm_of=np.linalg.norm):
    size = max(pages.shape[-2:])
    return np.sqrt(F(size) * np.finfo(F).eps) * norm_of(pages, axis=(-2, -1))[..., None]


def _from_left(pages, centroid, deviations, left, sigma, drop, projected):
    if drop:
        sigma = np.where(sigma > _band(pages), sigma, F(0))
    inverse = np.divide(F(1), sigma, out=np.zeros_like(sigma), where=sigma > 0)
    basis = np.swapaxes(deviations, -1, -2) @ (left * inverse[..., None, :])
    coefficients = deviations @ basis if projected else left * sigma[..., None, :]
    return {"centroid": centroid, "basis": basis, "coefficients": coefficients}


def _eigh(gram, rank):
    values, vectors = np.linalg.eigh(gram)
    return np.maximum(values[..., ::-1][..., :rank], 0), vectors[..., ::-1][..., :rank]


def gram(pages, rank, drop=True, projected=False):
    centroid = pages.mean(axis=2)
    deviations = pages - centroid[:, :, None]
    values, left = _eigh(deviations @ np.swapaxes(deviations, -1, -2), rank)
    return _from_left(pages, centroid, deviations, left, np.sqrt(values), drop, projected)


def gram_undropped(pages, rank):
    return gram(pages, rank, drop=False)


def gram_projected(pages, rank):
    return gram(pages, rank, projected=True)


def sequential(pages, rank):
    """Every sum one term after the other, the mean by a product with 1 / B."""
    total = np.zeros_like(pages[:, :, 0])
    for b in range(pages.shape[2]):
        total = total + pages[:, :, b]
    centroid = total * F(1 / pages.shape[2])
    deviations = pages - centroid[:, :, None]
    product = np.zeros((*pages.shape[:3], pages.shape[2]), F)
    for j in range(pages.shape[3]):
        product = product + deviations[..., None, j] * deviations[..., j][..., None, :]
    values, left = _eigh(product, rank)
    return _from_left(pages, centroid, deviations, left, np.sqrt(values), True, False)


def svd(pages, rank):
    centroid = pages.mean(axis=2)
    left, sigma, right = np.linalg.svd(pages - centroid[:, :, None], full_matrices=False)
    basis = np.swapaxes(right[..., :rank, :], -1, -2)
    return {"centroid": centroid, "basis": basis, "coefficients": left[..., :rank] * sigma[..., None, :rank]}


def covariance(pages, rank):
    centroid = pages.mean(axis=2)
    deviations = pages - centroid[:, :, None]
    _, basis = _eigh(np.swapaxes(deviations, -1, -2) @ deviations, rank)
    return {"centroid": centroid, "basis": basis, "coefficients": deviations @ basis}


BUILDS = (gram, gram_undropped, gram_projected, sequential, svd, covariance)


def perturbed(pages, rank, change):
    """Gram route in float64 with ``change`` [H, P, B, B] added to the Gram matrix: nothing but X errs."""
    centroid = pages.mean(axis=2)
    deviations = pages - centroid[:, :, None]
    values, left = _eigh(deviations @ np.swapaxes(deviations, -1, -2) + change, rank)
    sigma = np.sqrt(values)
    inverse = np.divide(1.0, sigma, out=np.zeros_like(sigma), where=sigma > 0)
    basis = np.swapaxes(deviations, -1, -2) @ (left * inverse[..., None, :])
    return {"centroid": centroid, "basis": basis, "coefficients": left * sigma[..., None, :]}


def quantised(x, axis, level, reciprocal):
    scale = np.abs(x).max(axis=axis, keepdims=True) / x.dtype.type(level)
    safe = np.where(scale > 0, scale, 1).astype(x.dtype)
    ratio = x * (1 / safe) if reciprocal else x / safe
    return np.clip(np.rint(ratio), -level, level) * scale


def deployed(summary, basis_bits, reciprocal=False):
    if basis_bits is None:
        return summary
    basis = summary["basis"]
    if isinstance(basis_bits, int):
        basis = quantised(basis, -2, LEVELS[basis_bits], reciprocal)
    return {
        "centroid": quantised(summary["centroid"], -1, 127, reciprocal),
        "basis": basis,
        "coefficients": quantised(summary["coefficients"], -1, 127, reciprocal),
    }


def scores(queries, summary, scale):
    """log-sum-exp of reconstructed logits in the summary's dtype."""
    keys = summary["centroid"][:, :, None] + summary["coefficients"] @ np.swapaxes(summary["basis"], -1, -2)
    logits = np.einsum("hgd,hpbd->hgpb", queries, keys) * keys.dtype.type(scale)
    top = logits.max(axis=-1, keepdims=True)
    return (np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)) + top)[..., 0].astype(np.float64)
