"""Build: every page's own rank-r spectral summary (Locks Sec. 4, Build)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import FloatArray, Sizes, real, whole


def locks_build_summary(*, key_pages: Any, rank: int) -> dict[str, FloatArray]:
    """Centre every complete page and keep its ``rank`` leading spectral modes.

    With D the page's deviations from its centroid (rows delta_i) and D = U Sigma V^T, the summary keeps mu, the first
    r right singular vectors V_r and the coefficients C = U_r Sigma_r, so that k_i ~ mu + V_r c_i. Modes with
    sigma_k <= max(B, d) eps ||page||_F are dropped: their columns and coefficients are 0 (AMB-10). The entry of
    largest magnitude of every kept column is positive, only to be reproducible (AMB-12).

    Args:
        key_pages: [H, P, B, d], complete pages only (AMB-02); P may be 0.
        rank: r, 1 <= r <= min(B, d). A centred page has at most B-1 modes (AMB-11).

    Returns:
        ``centroid`` [H, P, d], ``basis`` [H, P, d, r] (columns orthonormal or zero, by falling singular value),
        ``coefficients`` [H, P, B, r].

    Raises:
        ArgumentError: a shape, a non-finite key, or a rank out of range.

    Source: Locks Sec. 4, Build.

    Keys (0, 3) and (4, 3): centroid (2, 3), one mode along the first channel, coefficients -2 and +2.

    >>> summary = locks_build_summary(key_pages=[[[[0.0, 3.0], [4.0, 3.0]]]], rank=2)
    >>> summary["centroid"].tolist(), summary["basis"].round(12).tolist()
    ([[[2.0, 3.0]]], [[[[1.0, 0.0], [0.0, 0.0]]]])
    >>> summary["coefficients"].round(12).tolist()
    [[[[-2.0, 0.0], [2.0, 0.0]]]]
    """
    sizes = Sizes()
    pages = real("key_pages", key_pages, "H P B d", sizes)
    rank = whole("rank", rank, low=1, high=min(sizes["B"], sizes["d"]))
    centroid = pages.mean(axis=2)  # [H, P, d]
    deviations = pages - centroid[:, :, None]  # [H, P, B, d]
    left, sigma, right = np.linalg.svd(deviations, full_matrices=False)  # [.., B, m], [.., m], [.., m, d]
    left, sigma, right = left[..., :rank], sigma[..., :rank], right[..., :rank, :]
    kept = sigma > zero_mode_level(pages)[..., None]  # [H, P, r]
    basis = np.where(kept[..., None, :], np.swapaxes(right, -1, -2), 0.0)  # [H, P, d, r]
    coefficients = np.where(kept[..., None, :], left * sigma[..., None, :], 0.0)  # [H, P, B, r]
    sign = column_signs(basis)  # [H, P, r]
    return {
        "centroid": centroid,
        "basis": basis * sign[..., None, :],
        "coefficients": coefficients * sign[..., None, :],
    }


def zero_mode_level(pages: FloatArray, eps: float = float(np.finfo(np.float64).eps)) -> FloatArray:
    """The singular value up to which a mode of a page counts as zero: pages [..., B, d] -> [...] (AMB-10).

    It is relative to the page before centring: relative to sigma_1 a page of identical keys would keep its noise.

    >>> float(zero_mode_level(np.zeros((4, 2))))
    0.0
    """
    largest = np.abs(pages).max(axis=(-2, -1), initial=0.0)  # [...]; squares of huge keys would overflow
    unit = np.where(largest > 0, largest, 1.0)
    level: FloatArray = (
        max(pages.shape[-2:]) * eps * unit * np.linalg.norm(pages / unit[..., None, None], axis=(-2, -1))
    )
    return level


def column_signs(basis: FloatArray) -> FloatArray:
    """+1 or -1 per column of [..., d, r]: the sign of its first entry of largest magnitude -> [..., r].

    >>> column_signs(np.array([[0.6, -0.8], [-0.8, 0.6]])).tolist()
    [-1.0, -1.0]
    """
    largest = np.argmax(np.abs(basis), axis=-2)[..., None, :]  # [..., 1, r]
    signs: FloatArray = np.where(np.take_along_axis(basis, largest, axis=-2)[..., 0, :] < 0, -1.0, 1.0)
    return signs


def reconstruct(centroid: FloatArray, basis: FloatArray, coefficients: FloatArray) -> FloatArray:
    """The keys that a summary stands for, mu + C V^T: [.., d], [.., d, r], [.., B, r] -> [.., B, d].

    >>> reconstruct(np.array([2.0, 3.0]), np.array([[1.0], [0.0]]), np.array([[-2.0], [2.0]])).tolist()
    [[0.0, 3.0], [4.0, 3.0]]
    """
    return centroid[..., None, :] + coefficients @ np.swapaxes(basis, -1, -2)
