"""One basis shared by many pages: per sequence (ShadowKV form), global (Loki form), per bucket of pages (Locks App. D).

A shared basis W can be read in two forms (AMB-28): "reconstruction" stands for k by m + W W^T (k - m), m the mean the
basis was fitted about; "projected" keeps every page's own centroid, mu_j + W W^T (k - mu_j), the class of Prop. 1.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of
from refimpl.checks import ArgumentError, FloatArray, Sizes, choice, number, real, whole

FORMS = ("reconstruction", "projected")


def sequence_basis(*, keys: Any, rank: int) -> dict[str, FloatArray]:
    """The sequence's own rank-r basis: leading right singular vectors of its keys about their mean (ShadowKV form).

    Args:
        keys: [H, T, d], T >= 1. rank: r, 1 <= r <= d.

    Returns:
        ``mean`` [H, d] and ``basis`` [H, d, r], columns orthonormal, by falling variance.

    Raises:
        ArgumentError: a shape, a non-finite key, no tokens, or a rank out of range.

    Source: Locks App. D ("Sequence-basis").

    >>> fit = sequence_basis(keys=[[[0.0, 1.0], [4.0, 1.0]]], rank=1)
    >>> fit["mean"].tolist(), np.abs(fit["basis"]).round(12).tolist()
    ([[2.0, 1.0]], [[[1.0], [0.0]]])
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    if sizes["T"] == 0:
        raise ArgumentError("keys: expected at least one token, got T=0")
    mean = keys.mean(axis=1)  # [H, d]
    centred = keys - mean[:, None]
    return covariance_basis(mean=mean, covariance=np.swapaxes(centred, 1, 2) @ centred / sizes["T"], rank=rank)


def covariance_basis(*, mean: Any, covariance: Any, rank: int) -> dict[str, FloatArray]:
    """A basis from given moments: the ``rank`` leading eigenvectors of a covariance (Loki's offline calibration).

    Args:
        mean: [H, d]. covariance: [H, d, d], symmetric. rank: r, 1 <= r <= d.

    Returns:
        ``mean`` [H, d] and ``basis`` [H, d, r]; the entry of largest magnitude of a column is positive.

    Raises:
        ArgumentError: a shape, a non-finite value, or a rank out of range.

    Source: Locks App. D ("Global-basis").

    >>> covariance_basis(mean=[[0.0, 0.0]], covariance=[[[1.0, 0.0], [0.0, 9.0]]], rank=1)["basis"].tolist()
    [[[0.0], [1.0]]]
    """
    sizes = Sizes()
    mean = real("mean", mean, "H d", sizes)
    covariance = real("covariance", covariance, "H d d", sizes)
    rank = whole("rank", rank, low=1, high=sizes["d"])
    _, vectors = np.linalg.eigh((covariance + np.swapaxes(covariance, 1, 2)) / 2)  # ascending
    basis = vectors[..., ::-1][..., :rank]
    largest = np.argmax(np.abs(basis), axis=1)[:, None]
    return {"mean": mean, "basis": basis * np.where(np.take_along_axis(basis, largest, axis=1) < 0, -1.0, 1.0)}


def shared_basis_pages(*, key_pages: Any, mean: Any, basis: Any, form: str) -> FloatArray:
    """The keys that pages stand for under a shared basis, [H, P, B, d].

    Args:
        key_pages: [H, P, B, d]. mean: [H, d]. basis: [H, d, r], orthonormal columns.
        form: "reconstruction" or "projected" (see the module's text); ``mean`` is not used by "projected".

    Raises:
        ArgumentError: a shape, a non-finite value, or another form.

    Source: Locks App. D, Prop. 1; AMB-28.

    Page keys (1, 0) and (1, 2), basis along the first channel, mean 0: the second channel is lost, or kept as centroid.

    >>> page, fit = [[[[1.0, 0.0], [1.0, 2.0]]]], {"mean": [[0.0, 0.0]], "basis": [[[1.0], [0.0]]]}
    >>> shared_basis_pages(key_pages=page, form="reconstruction", **fit).tolist()
    [[[[1.0, 0.0], [1.0, 0.0]]]]
    >>> shared_basis_pages(key_pages=page, form="projected", **fit).tolist()
    [[[[1.0, 1.0], [1.0, 1.0]]]]
    """
    sizes = Sizes()
    pages = real("key_pages", key_pages, "H P B d", sizes)
    mean, basis = real("mean", mean, "H d", sizes), real("basis", basis, "H d r", sizes)
    centred_on = (
        mean[:, None, None] if choice("form", form, FORMS) == "reconstruction" else pages.mean(2, keepdims=True)
    )
    coordinates = np.einsum("hpbd,hdr->hpbr", pages - centred_on, basis, optimize=True)
    return centred_on + np.einsum("hpbr,hdr->hpbd", coordinates, basis, optimize=True)


def shared_basis_scores(
    *, queries: Any, mean: Any, basis: Any, coordinates: Any, softmax_scale: float | None = None
) -> FloatArray:
    """Log-mass of pages whose keys are m + W c in one basis for all pages, in nats, [H, G, P].

    Args:
        queries: [H, G, d]. mean: [H, d]. basis: [H, d, r]. coordinates: [H, P, B, r], one row per token.
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Raises:
        ArgumentError: a shape, a non-finite value, or pages without tokens.

    Source: Locks App. D (Sequence-basis and Global-basis rows), reconstruction form of AMB-28.

    Two tokens of logits 2 + 0 and 2 + ln 3: log(4 e^2).

    >>> scores = shared_basis_scores(queries=[[[1.0]]], mean=[[2.0]], basis=[[[1.0]]],
    ...                              coordinates=[[[[0.0], [np.log(3)]]]])
    >>> round(float(scores[0, 0, 0] - np.log(4)), 12)
    2.0
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    mean, basis = real("mean", mean, "H d", sizes), real("basis", basis, "H d r", sizes)
    coordinates = real("coordinates", coordinates, "H P B r", sizes)
    if sizes["B"] == 0:
        raise ArgumentError("coordinates: expected at least one token per page, got B=0")
    centre = np.einsum("hgd,hd->hg", queries, mean)[..., None, None]
    projected = np.einsum("hgd,hdr->hgr", queries, basis, optimize=True)
    logits = centre + np.einsum("hgr,hpbr->hgpb", projected, coordinates, optimize=True)
    return log_sum_exp(scale_of(softmax_scale, sizes["d"]) * logits)


def bucket_basis_pages(*, key_pages: Any, rank: int, bucket: int, form: str) -> FloatArray:
    """`shared_basis_pages` with one basis per ``bucket`` consecutive pages, fitted to those pages' keys, [H, P, B, d].

    bucket = 1 is page scope, bucket >= P sequence scope; the last bucket may be short. Raises ArgumentError as its
    parts do. Source: Locks Table D.16 ("bucket-n"), AMB-31.

    >>> pages = np.arange(6.0).reshape(1, 3, 2, 1)
    >>> np.array_equal(bucket_basis_pages(key_pages=pages, rank=1, bucket=2, form="reconstruction"), pages)
    True
    """
    sizes = Sizes()
    pages = real("key_pages", key_pages, "H P B d", sizes)
    if sizes["B"] == 0:
        raise ArgumentError("key_pages: expected at least one token per page, got B=0")
    size = whole("bucket", bucket, low=1)
    result = np.empty_like(pages)
    for start in range(0, sizes["P"], size):
        part = pages[:, start : start + size]
        keys = part.reshape(sizes["H"], part.shape[1] * sizes["B"], sizes["d"])
        fit = sequence_basis(keys=keys, rank=rank)
        result[:, start : start + size] = shared_basis_pages(key_pages=part, form=form, **fit)
    return result


def captured_energy(*, key_pages: Any, reconstruction: Any) -> FloatArray:
    """Fraction of each page's key variance that a reconstruction keeps, 1 - |k - k_hat|^2 / |k - mu|^2, [H, P].

    It is negative where the reconstruction is worse than the page's own centroid; a page without variance has 1 if it
    is reproduced exactly and -inf otherwise. For a projected form it equals the projected variance.

    Args:
        key_pages, reconstruction: [H, P, B, d].

    Raises:
        ArgumentError: a shape, a non-finite value, or pages without tokens.

    Source: Locks App. D (Tables D.12, D.16); AMB-28.

    >>> page = [[[[0.0, 0.0], [2.0, 2.0]]]]
    >>> captured_energy(key_pages=page, reconstruction=[[[[0.0, 1.0], [2.0, 1.0]]]]).tolist()
    [[0.5]]
    """
    sizes = Sizes()
    pages = real("key_pages", key_pages, "H P B d", sizes)
    rebuilt = real("reconstruction", reconstruction, "H P B d", sizes)
    if sizes["B"] == 0:
        raise ArgumentError("key_pages: expected at least one token per page, got B=0")
    lost = ((pages - rebuilt) ** 2).sum(axis=(2, 3))
    total = ((pages - pages.mean(axis=2, keepdims=True)) ** 2).sum(axis=(2, 3))
    flat = np.where(lost == 0, 1.0, -np.inf)
    energy: FloatArray = np.where(total > 0, 1 - np.divide(lost, total, where=total > 0, out=np.ones_like(lost)), flat)
    return energy


def shared_state_bytes(rank: int, page_size: int, head_size: int, pages_per_basis: float) -> float:
    """Bytes per page of the reconstruction form: B r int8 coordinates, and the bf16 basis and mean over their pages.

    Source: Locks App. D, r P + (r d + d) 2 / npg; the printed 130, 260, 520, 780 and 1040 B come out for npg near 1010.

    >>> [round(shared_state_bytes(r, 16, 128, 1013), 1) for r in (8, 16, 48)]
    [130.3, 260.3, 780.4]
    """
    rank, d = whole("rank", rank, low=1), whole("head_size", head_size, low=1)
    shared = 2 * (rank * d + d) / number("pages_per_basis", pages_per_basis, above=0)
    return rank * whole("page_size", page_size, low=1) + shared
