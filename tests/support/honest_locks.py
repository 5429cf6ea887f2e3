"""Right ways of building, quantising and scoring page summaries that round differently, in float32."""

import numpy as np
from honest_variants import LN2, LOG2E, F, pairwise, scale_of, sequential


def means(key_pages, add):
    return add(np.moveaxis(key_pages, 2, -1)) * F(1 / key_pages.shape[2])


def by_svd(*, key_pages, rank):
    """Singular value decomposition of the deviations; noise modes are kept as they come."""
    centroid = key_pages.mean(axis=2)
    left, sigma, right = np.linalg.svd(key_pages - centroid[:, :, None], full_matrices=False)
    basis = np.swapaxes(right[..., :rank, :], -1, -2)
    return {"centroid": centroid, "basis": basis, "coefficients": left[..., :rank] * sigma[..., None, :rank]}


def by_covariance(*, key_pages, rank):
    """Eigenvectors of the d x d matrix D^T D; coefficients are projections."""
    centroid = means(key_pages, sequential)
    deviations = key_pages - centroid[:, :, None]
    _, vectors = np.linalg.eigh(np.swapaxes(deviations, -1, -2) @ deviations)
    basis = vectors[..., ::-1][..., :rank]
    return {"centroid": centroid, "basis": basis, "coefficients": deviations @ basis}


def noise_floor(key_pages):
    """Energy up to which an eigenvalue of the Gram matrix is noise, max(B, d) eps ||page||^2 [H, P] (AMB-10).

    A column of such a mode scaled to length 1 would point anywhere, the kept modes included, and count them twice.
    """
    return F(max(key_pages.shape[-2:]) * np.finfo(F).eps) * (key_pages**2).sum(axis=(-2, -1))


def by_gram(*, key_pages, rank):
    """Eigenvectors of D D^T; columns normalised instead of divided by sigma; coefficients are projections."""
    centroid = means(key_pages, pairwise)
    deviations = key_pages - centroid[:, :, None]
    energies, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    images = np.swapaxes(deviations, -1, -2) @ vectors[..., ::-1][..., :rank]
    length = np.sqrt((images**2).sum(axis=-2, keepdims=True))
    real = energies[..., None, ::-1][..., :rank] > noise_floor(key_pages)[..., None, None]
    basis = np.divide(images, length, out=np.zeros_like(images), where=real)
    return {"centroid": centroid, "basis": basis, "coefficients": deviations @ basis}


def jacobi(gram, sweeps=8):
    """Cyclic Jacobi eigensolver in float32, as a small GPU kernel has it: energies and vectors, falling."""
    a, size = gram.copy(), gram.shape[-1]
    v = np.broadcast_to(np.eye(size, dtype=F), a.shape).copy()
    for _ in range(sweeps):
        for p in range(size - 1):
            for q in range(p + 1, size):
                off = a[..., p, q]
                tau = np.divide(a[..., q, q] - a[..., p, p], 2 * off, out=np.zeros_like(off), where=off != 0)
                t = np.where(tau >= 0, F(1), F(-1)) / (np.abs(tau) + np.sqrt(1 + tau * tau))
                t = np.where(off != 0, t, F(0))
                c = 1 / np.sqrt(1 + t * t)
                s = (t * c)[..., None]
                c = c[..., None]
                rows = a[..., p, :].copy(), a[..., q, :].copy()
                a[..., p, :], a[..., q, :] = c * rows[0] - s * rows[1], s * rows[0] + c * rows[1]
                columns = a[..., :, p].copy(), a[..., :, q].copy()
                a[..., :, p], a[..., :, q] = c * columns[0] - s * columns[1], s * columns[0] + c * columns[1]
                columns = v[..., :, p].copy(), v[..., :, q].copy()
                v[..., :, p], v[..., :, q] = c * columns[0] - s * columns[1], s * columns[0] + c * columns[1]
    energies = np.diagonal(a, axis1=-2, axis2=-1)
    order = np.argsort(-energies, axis=-1, kind="stable")
    return np.take_along_axis(energies, order, -1), np.take_along_axis(v, order[..., None, :], -1)


def by_jacobi(*, key_pages, rank):
    """Jacobi on D D^T; sigma from the energies, coefficients from sigma."""
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    energies, vectors = jacobi(deviations @ np.swapaxes(deviations, -1, -2))
    sigma = np.sqrt(np.where(energies > noise_floor(key_pages)[..., None], energies, F(0)))[..., :rank]
    vectors = vectors[..., :rank]
    inverse = np.divide(F(1), sigma, out=np.zeros_like(sigma), where=sigma > 0)
    basis = np.swapaxes(deviations, -1, -2) @ (vectors * inverse[..., None, :])
    return {"centroid": centroid, "basis": basis, "coefficients": vectors * sigma[..., None, :]}


def flipped(build):
    """Every second column with the other sign."""

    def stage(*, key_pages, rank):
        summary = build(key_pages=key_pages, rank=rank)
        sign = np.where(np.arange(rank) % 2, F(-1), F(1))
        return summary | {n: summary[n] * sign for n in ("basis", "coefficients")}

    return stage


def turned_pairs(build):
    """Neighbouring modes of equal singular value turned by 0.6 rad within their plane."""

    def stage(*, key_pages, rank):
        summary = build(key_pages=key_pages, rank=rank)
        basis, rows = summary["basis"].copy(), summary["coefficients"].copy()
        sigma = np.linalg.norm(rows, axis=2)
        c, s = F(np.cos(0.6)), F(np.sin(0.6))
        for k in range(rank - 1):
            equal = (np.abs(sigma[..., k] - sigma[..., k + 1]) <= 4 * np.finfo(F).eps * sigma[..., k])[..., None]
            for a in (basis, rows):
                x, y = a[..., k].copy(), a[..., k + 1].copy()
                a[..., k] = np.where(equal, c * x - s * y, x)
                a[..., k + 1] = np.where(equal, s * x + c * y, y)
            sigma = np.linalg.norm(rows, axis=2)
        return summary | {"basis": basis, "coefficients": rows}

    return stage


BUILDS = {
    "svd": by_svd,
    "covariance": by_covariance,
    "gram-normalised": by_gram,
    "jacobi": by_jacobi,
    "svd-flipped": flipped(by_svd),
    "svd-turned": turned_pairs(by_svd),
}


def by_reciprocal(x, axis, level):
    """x * (1 / scale)."""
    scale = np.abs(x).max(axis=axis, keepdims=True) * F(1 / level)
    inverse = np.divide(F(1), scale, out=np.zeros_like(scale), where=scale > 0)
    return np.clip(np.rint(x * inverse), -level, level).astype(np.int8), np.squeeze(scale, axis=axis)


def by_level(x, axis, level):
    """x * (level / absmax), the stored scale absmax / level."""
    largest = np.abs(x).max(axis=axis, keepdims=True)
    factor = np.divide(F(level), largest, out=np.zeros_like(largest), where=largest > 0)
    return np.rint(x * factor).astype(np.int8), np.squeeze(largest / F(level), axis=axis)


QUANTIZERS = {"reciprocal": by_reciprocal, "level": by_level}


def log_sum_exp2(logits):
    z = logits * LOG2E
    top = z.max(axis=-1, keepdims=True)
    return ((np.log2(np.exp2(z - top).sum(axis=-1, keepdims=True)) + top) * LN2)[..., 0]


def score_rebuilt(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Keys rebuilt, then multiplied by the prescaled query."""
    if centroid.shape[1] == 0:
        return np.zeros((*queries.shape[:2], 0), F)
    keys = centroid[:, :, None] + coefficients @ np.swapaxes(basis, -1, -2)
    scale = scale_of(softmax_scale, queries.shape[-1])
    return log_sum_exp2(np.einsum("hgd,hpbd->hgpb", queries * scale, keys))


def score_sequentially(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """One channel after another, then one mode after another."""
    if centroid.shape[1] == 0:
        return np.zeros((*queries.shape[:2], 0), F)
    centre = sequential(queries[:, :, None] * centroid[:, None])
    projected = sequential(queries[:, :, None, None] * np.swapaxes(basis, -1, -2)[:, None])
    total = centre[..., None]
    for k in range(basis.shape[-1]):
        total = total + projected[..., k, None] * coefficients[:, None, :, :, k]
    return log_sum_exp2(total * scale_of(softmax_scale, queries.shape[-1]))


SCORERS = {"rebuilt": score_rebuilt, "sequential": score_sequentially}


def shares_by_lse(*, scores, combine="share_average"):
    """exp(s - lse) in base 2."""
    if combine == "group_mass":
        with np.errstate(divide="ignore"):
            top = np.max(scores, axis=1, keepdims=True)
            top = np.where(np.isneginf(top), F(0), top)
            scores = np.log(np.exp(scores - top).sum(axis=1, keepdims=True)) + top
    top = np.max(scores, axis=-1, keepdims=True, initial=-np.inf)
    top = np.where(np.isneginf(top), F(0), top)
    with np.errstate(divide="ignore"):
        lse = np.log2(np.exp2((scores - top) * LOG2E).sum(axis=-1, keepdims=True)) * LN2 + top
    shares = np.exp(scores - np.where(np.isneginf(lse), F(0), lse))
    return shares.max(axis=1) if combine == "group_max" else shares.mean(axis=1)
