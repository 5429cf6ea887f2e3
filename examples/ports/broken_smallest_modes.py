"""Wrong on purpose: an ascending eigendecomposition whose first columns are taken for the largest modes."""

import numpy as np
from numpy_port import *  # noqa: F403


def locks_build_summary(*, key_pages, rank):
    centroid = key_pages.mean(axis=2)
    deviations = key_pages - centroid[:, :, None]
    values, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    sigma, vectors = np.sqrt(np.maximum(values, 0))[..., :rank], vectors[..., :rank]
    inverse = np.divide(1, sigma, out=np.zeros_like(sigma), where=sigma > 1e-3)
    basis = np.swapaxes(deviations, -1, -2) @ (vectors * inverse[..., None, :])
    return {"centroid": centroid, "basis": basis, "coefficients": vectors * sigma[..., None, :]}
