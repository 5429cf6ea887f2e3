"""Wrong summaries and codes: modes, centring, zero guards, rounding, scale axes."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.locks.quantize import (
    LEVELS,
    locks_quantize_summary,
    quantize_symmetric,
)
from refimpl.locks.summary import locks_build_summary

B = "locks_build_summary"


def _modes(pages: Any, centre: Any, order: slice, rank: int, floor: float = 1e-12) -> Any:
    """A summary from the Gram eigenvectors in ``order`` (ascending eigenvalues as the solver gives them)."""
    deviations = pages - centre[:, :, None]
    values, vectors = np.linalg.eigh(deviations @ np.swapaxes(deviations, -1, -2))
    values, vectors = values[..., order][..., :rank], vectors[..., order][..., :rank]
    sigma = np.sqrt(np.maximum(values, 0))
    inverse = np.divide(1, sigma, out=np.zeros_like(sigma), where=sigma > floor)
    basis = np.swapaxes(deviations, -1, -2) @ (vectors * inverse[..., None, :])
    return {"centroid": centre, "basis": basis, "coefficients": vectors * sigma[..., None, :]}


FALLING, RISING = slice(None, None, -1), slice(None)


@mutant("build-smallest-modes", B, "H", "the r smallest modes are kept")
def smallest(*, key_pages: Any, rank: int) -> Any:
    """The head of an ascending eigendecomposition."""
    return _modes(key_pages, key_pages.mean(axis=2), RISING, rank)


@mutant("build-not-centred", B, "H", "keys are decomposed, not their deviations")
def uncentred(*, key_pages: Any, rank: int) -> Any:
    """The first mode is the mean."""
    built = _modes(key_pages, np.zeros_like(key_pages.mean(axis=2)), FALLING, rank)
    return {**built, "centroid": key_pages.mean(axis=2)}


@mutant("build-no-guard-on-zero-modes", B, "D", "V = D^T U / sigma without a guard: NaN where a page is constant")
def unguarded(*, key_pages: Any, rank: int) -> Any:
    """U9."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    sigma = np.linalg.norm(built["coefficients"], axis=2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {**built, "basis": built["basis"] * sigma / sigma}


@mutant("build-order-mixed", B, "H", "coefficients descend while columns ascend")
def mixed(*, key_pages: Any, rank: int) -> Any:
    """Two sort orders."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    return {**built, "basis": built["basis"][..., ::-1].copy()}


@mutant("build-one-sided-sign-flip", B, "H", "column signs are canonicalised, coefficients are not")
def one_sided(*, key_pages: Any, rank: int) -> Any:
    """The product changes sign."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    sign = np.where(built["basis"].sum(axis=2, keepdims=True) < 0, -1.0, 1.0)
    return {**built, "basis": built["basis"] * sign}


@mutant("build-sigma-squared", B, "H", "coefficients carry the eigenvalue, not the singular value")
def squared(*, key_pages: Any, rank: int) -> Any:
    """sqrt forgotten."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    sigma = np.linalg.norm(built["coefficients"], axis=2, keepdims=True)
    return {**built, "coefficients": built["coefficients"] * sigma}


@mutant("build-unscaled-basis", B, "H", "V = D^T U without the division by sigma")
def unscaled(*, key_pages: Any, rank: int) -> Any:
    """Columns of norm sigma."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    return {**built, "basis": built["basis"] * np.linalg.norm(built["coefficients"], axis=2)[:, :, None]}


@mutant("build-one-rank-short", B, "H", "the last requested mode is left zero")
def short(*, key_pages: Any, rank: int) -> Any:
    """Off by one."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    built["coefficients"][..., -1] = 0
    built["basis"][..., -1] = 0
    return built


@mutant("build-first-page-basis", B, "H", "one basis per head, from its first page")
def shared_basis(*, key_pages: Any, rank: int) -> Any:
    """Shared scope."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    basis = np.broadcast_to(built["basis"][:, :1], built["basis"].shape).copy()
    deviations = key_pages - built["centroid"][:, :, None]
    return {**built, "basis": basis, "coefficients": deviations @ basis}


@mutant("build-median-centroid", B, "H", "the first key stands for the centroid")
def first_key(*, key_pages: Any, rank: int) -> Any:
    """Not the mean."""
    return _modes(key_pages, key_pages[:, :, 0].copy(), FALLING, rank)


@mutant("build-mean-over-b-minus-1", B, "H", "the mean divides by B - 1")
def wrong_mean(*, key_pages: Any, rank: int) -> Any:
    """Unbiased habits."""
    built = locks_build_summary(key_pages=key_pages, rank=rank)
    size = key_pages.shape[2]
    return {**built, "centroid": built["centroid"] * size / max(size - 1, 1)}


@mutant("build-unconverged-jacobi", B, "H", "the eigensolver stops after one rotation: the sorted diagonal")
def diagonal(*, key_pages: Any, rank: int) -> Any:
    """H1."""
    centre = key_pages.mean(axis=2)
    deviations = key_pages - centre[:, :, None]
    energy = np.einsum("hpbd,hpbd->hpb", deviations, deviations)
    order = np.argsort(-energy, axis=-1)[..., :rank]
    sigma = np.sqrt(np.take_along_axis(energy, order, axis=-1))
    chosen = np.take_along_axis(deviations, order[..., None], axis=2)
    basis = np.swapaxes(chosen / np.where(sigma > 0, sigma, 1)[..., None], -1, -2)
    coefficients = np.zeros((*key_pages.shape[:3], rank))
    np.put_along_axis(coefficients, order[:, :, None, :], sigma[:, :, None, :], axis=2)
    return {"centroid": centre, "basis": basis, "coefficients": coefficients}


Q = "locks_quantize_summary"


def _quantized(changes: Any, **inputs: Any) -> Any:
    codes = locks_quantize_summary(**inputs)
    return {**codes, **changes(codes, inputs)}


@mutant("quantize-truncates", Q, "D", "codes are truncated towards zero")
def truncates(**inputs: Any) -> Any:
    """D5."""

    def changes(codes: Any, x: Any) -> Any:
        scale = codes["basis_scale"][:, :, None]
        ratio = np.divide(x["basis"], scale, out=np.zeros_like(x["basis"]), where=scale > 0)
        return {"basis_codes": np.trunc(ratio).astype(np.int8)}

    return _quantized(changes, **inputs)


@mutant("quantize-floors", Q, "D", "codes are floored")
def floors(**inputs: Any) -> Any:
    """Negative values go one down."""

    def changes(codes: Any, x: Any) -> Any:
        scale = codes["coefficient_scale"][..., None]
        values = x["coefficients"]
        ratio = np.divide(values, scale, out=np.zeros_like(values), where=scale > 0)
        return {"coefficient_codes": np.clip(np.floor(ratio), -127, 127).astype(np.int8)}

    return _quantized(changes, **inputs)


@mutant("quantize-no-zero-guard", Q, "D", "a line of zeros has scale 0 and codes 0/0")
def no_guard(**inputs: Any) -> Any:
    """D8."""

    def changes(codes: Any, x: Any) -> Any:
        with np.errstate(invalid="ignore", divide="ignore"):
            scale = codes["basis_scale"] / codes["basis_scale"] * codes["basis_scale"]
        return {"basis_scale": scale}

    return _quantized(changes, **inputs)


@mutant("quantize-basis-per-row", Q, "D", "the basis is scaled per channel, its scales kept per column")
def per_row(**inputs: Any) -> Any:
    """U6."""

    def changes(codes: Any, x: Any) -> Any:
        rows, _ = quantize_symmetric(x["basis"], -1, int(x["basis_bits"]))
        return {"basis_codes": rows}

    return _quantized(changes, **inputs)


@mutant("quantize-coefficients-per-mode", Q, "D", "coefficients are scaled per mode, not per token")
def per_mode(**inputs: Any) -> Any:
    """The other axis."""

    def changes(codes: Any, x: Any) -> Any:
        modes, _ = quantize_symmetric(x["coefficients"], -2, 8)
        return {"coefficient_codes": modes}

    return _quantized(changes, **inputs)


@mutant("quantize-level-8", Q, "D", "the scale is absmax / 8, so the largest value clips to 7")
def level_8(**inputs: Any) -> Any:
    """An asymmetric range with a symmetric clip."""

    def changes(codes: Any, x: Any) -> Any:
        top = LEVELS[int(x["basis_bits"])]
        scale = codes["basis_scale"] * top / (top + 1)
        wide = scale[:, :, None]
        ratio = np.divide(x["basis"], wide, out=np.zeros_like(x["basis"]), where=wide > 0)
        return {"basis_scale": scale, "basis_codes": np.clip(np.rint(ratio), -top, top).astype(np.int8)}

    return _quantized(changes, **inputs)


@mutant("quantize-unsigned-range", Q, "D", "scale from max instead of absmax: negative columns clip")
def max_not_absmax(**inputs: Any) -> Any:
    """Right for columns whose largest entry is positive."""

    def changes(codes: Any, x: Any) -> Any:
        top = LEVELS[int(x["basis_bits"])]
        scale = np.maximum(x["basis"].max(axis=-2), 0) / top
        wide = scale[:, :, None]
        ratio = np.divide(x["basis"], wide, out=np.zeros_like(x["basis"]), where=wide > 0)
        return {"basis_scale": scale, "basis_codes": np.clip(np.rint(ratio), -top, top).astype(np.int8)}

    return _quantized(changes, **inputs)


@mutant("quantize-centroid-per-head", Q, "D", "the centroid's scale of page 0 is used for every page")
def first_scale(**inputs: Any) -> Any:
    """A broadcast too far."""

    def changes(codes: Any, x: Any) -> Any:
        scale = np.broadcast_to(codes["centroid_scale"][:, :1], codes["centroid_scale"].shape).copy()
        ratio = np.divide(x["centroid"], scale[..., None], out=np.zeros_like(x["centroid"]), where=scale[..., None] > 0)
        return {"centroid_scale": scale, "centroid_codes": np.clip(np.rint(ratio), -127, 127).astype(np.int8)}

    return _quantized(changes, **inputs)


@mutant("quantize-int4-codes-for-int2", Q, "D", "basis_bits is ignored: int4 always")
def always_int4(**inputs: Any) -> Any:
    """Right for 4 bits."""
    return locks_quantize_summary(**{**inputs, "basis_bits": 4})


@mutant("quantize-wraps", Q, "D", "int8 conversion of 128 steps wraps to -128")
def wraps(**inputs: Any) -> Any:
    """Scale absmax / 128."""

    def changes(codes: Any, x: Any) -> Any:
        scale = codes["centroid_scale"] * 127 / 128
        wide = scale[..., None]
        ratio = np.divide(x["centroid"], wide, out=np.zeros_like(x["centroid"]), where=wide > 0)
        return {"centroid_scale": scale, "centroid_codes": np.rint(ratio).astype(np.int64).astype(np.int8)}

    return _quantized(changes, **inputs)
