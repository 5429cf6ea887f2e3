"""No honest float32 build, quantisation or score leaves the decode enclosure, on pages that try to make it."""

from __future__ import annotations

import numpy as np
import pytest

from proofs_checks.bounds.locks_decode import score_enclosure
from proofs_checks.bounds.locks_perturbation import spectrum
from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import generator
from proofs_checks.judge.cases.inputs import planted_pages
from proofs_checks.numbers import Precision, round_to

F = np.float32
LEVELS = {2: 1, 4: 7, 8: 127}


def _band(pages):
    size = max(pages.shape[-2:])
    return np.sqrt(F(size) * np.finfo(F).eps) * np.linalg.norm(pages, axis=(-2, -1))[..., None]


def _from_left(pages, centroid, deviations, left, sigma, drop, projected):
    if drop:
        sigma = np.where(sigma > _band(pages), sigma, F(0))
    inverse = np.divide(1, sigma, out=np.zeros_like(sigma), where=sigma > 0)
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


def perturbed(pages, rank, change):
    """Gram route in float64 with ``change`` [H, P, B, B] added to the Gram matrix: nothing else errs."""
    centroid = pages.mean(axis=2)
    deviations = pages - centroid[:, :, None]
    values, left = _eigh(deviations @ np.swapaxes(deviations, -1, -2) + change, rank)
    return _from_left(pages, centroid, deviations, left, np.sqrt(values), False, False)


BUILDS = (gram, gram_undropped, gram_projected, sequential, svd, covariance)


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


SPECTRA = {
    "planted": [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7],
    "equal": [4.0, 4.0, 4.0, 2.0, 2.0, 2.0, 1.0, 1.0, 1.0],
    "nearly-equal": [4.0, 4.0002, 3.9999, 2.0, 2.00001, 1.0, 1.0001, 1e-3],
    "equal-at-the-rank": [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0001, 1.0, 1.0, 0.9999],
    "in-the-band": [8.0, 1e-2, 5e-3, 3e-3, 1e-3, 1e-4],
    "one-mode": [5.0],
}
SIZES = [
    (16, 64, 8, "float32"),
    (8, 80, 6, "bfloat16"),
    (32, 64, 8, "float16"),
    (8, 4, 3, "float32"),
    (1, 8, 1, "float32"),
]
BITS = (None, "fp", 8, 4, 2)


def pages_of(kind, rng, B, d):
    if kind in SPECTRA:
        return planted_pages(rng, 2, 4, B, d, SPECTRA[kind][: min(B - 1, d)])
    gaussian = rng.normal(size=(2, 4, B, d))
    offset = rng.normal(size=(2, 4, 1, d))
    return {"gaussian": gaussian, "constant": 0 * gaussian + offset, "far": gaussian + 50 * offset}[kind]


def largest_ratio(pages, queries, rank, bits, dtype):
    """Largest |score - reference| / eta over all honest ways, on pages [H, P, B, d] rounded to ``dtype``."""
    H, P, B, d = pages.shape
    pages, queries = (np.asarray(round_to(a, dtype), dtype=np.float64) for a in (pages, queries))
    call = (queries, pages.reshape(H, P * B, d), rank, bits, B, 1 / np.sqrt(d))
    reference, eta = score_enclosure(*call, Precision(dtype, "float32", dtype))
    assert np.isfinite(eta).all()
    largest = 0.0
    for build in BUILDS:
        summary = build(pages.astype(F), rank)
        for reciprocal in (False, True) if bits is not None else (False,):
            got = scores(queries.astype(F), deployed(summary, bits, reciprocal), 1 / np.sqrt(d))
            largest = max(largest, float(np.max(np.abs(got - reference) / eta)))
    return largest


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", [*SPECTRA, "gaussian", "constant", "far"])
def test_no_honest_step_leaves_the_enclosure(kind, bits):
    for B, d, rank, dtype in SIZES:
        rng = generator("honest", kind, f"{bits},{B}")
        queries = 2 * rng.normal(size=(2, 3, d))
        ratio = largest_ratio(pages_of(kind, rng, B, d), queries, rank, bits, dtype)
        assert ratio <= 1, (B, d)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("kind", [*SPECTRA, "gaussian", "far"])
def test_a_gram_matrix_off_by_nearly_e_stays_inside(kind, bits):
    """X of 0.9 E, at random and between single modes, where it turns most; quantised and scored in float64."""
    rng = generator("perturbed", kind, str(bits))
    pages, queries = pages_of(kind, rng, 16, 64), 2 * rng.normal(size=(2, 3, 64))
    call = (queries, pages.reshape(2, 64, 64), 8, bits, 16, 1 / 8)
    reference, eta = score_enclosure(*call, Precision())
    s = spectrum(pages, Precision().roundoff)
    largest = 0.0
    for trial in range(4):
        x = rng.normal(size=(2, 4, 16, 16))
        if trial % 2:
            one, other = rng.integers(0, 8), rng.integers(8, 10)
            x = s.left[..., :, one, None] * s.left[..., None, :, other - trial % 3]
        x = x + np.swapaxes(x, -1, -2)
        x *= 0.9 * s.gram[..., None, None] / np.linalg.norm(x, axis=(-2, -1), keepdims=True)
        got = scores(queries, deployed(perturbed(pages, 8, x), bits), 1 / 8)
        largest = max(largest, float(np.max(np.abs(got - reference) / eta)))
    assert largest <= 1


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize(("layer", "step"), [(0, 1), (1, 8), (2, 2), (3, 0)])
def test_no_honest_step_leaves_it_on_real_keys(layer, step, bits):
    real = needle_slice(layer, step)
    pages = real["keys"][:, 16 * 60 : 16 * 76].reshape(3, 16, 16, 64)
    ratio = largest_ratio(pages, real["queries"], 8, bits, "bfloat16")
    assert ratio <= 1
