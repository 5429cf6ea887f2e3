"""Lloyd-2, norm-corrected: two-bit codes of standardised rotated channels, and the key's norm (ReadKV App. F.2)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import FloatArray, Sizes, integers, real
from refimpl.readkv.calibration import check_scales
from refimpl.readkv.codebooks import lloyd_max_codebook
from refimpl.readkv.rotation import check_signs, readkv_rotate, unrotate


def lloyd2_encode(*, x: Any, mean: Any, scale: Any, signs: Any) -> dict[str, Any]:
    """Codes of the four Gaussian levels and the vectors' norms.

    Args:
        x: [H, T, d], d a power of two. mean, scale: [H, d] of the rotated channels, scale positive. signs: [d] of +-1.

    Returns:
        ``codes`` [H, T, d] uint8, 0..3 in ascending order of the levels, the lower on a threshold; ``norm`` [H, T],
        of x itself, mean included (AMB-52).

    Raises:
        ArgumentError: a shape, a non-finite value, a scale that is not positive, or signs that are none.

    Source: ReadKV App. F.2 (Lloyd-2, norm-corrected).

    >>> q = lloyd2_encode(x=[[[2.0, 0.0]]], mean=[[0.0, 0.0]], scale=[[1.0, 3.0]], signs=[1, 1])
    >>> q["codes"].tolist(), q["norm"].tolist()
    ([[[3, 2]]], [[2.0]])
    """
    sizes = Sizes()
    x = real("x", x, "H T d", sizes)
    mean, scale = real("mean", mean, "H d", sizes), check_scales("scale", scale, "H d", sizes)
    z = (readkv_rotate(x=x, signs=signs) - mean[:, None]) / scale[:, None]
    codes = np.searchsorted(_book()["thresholds"], z).astype(np.uint8)
    return {"codes": codes, "norm": np.linalg.norm(x, axis=-1)}


def lloyd2_decode(
    *, codes: Any, norm: Any, mean: Any, scale: Any, signs: Any, norm_correction: bool = True
) -> FloatArray:
    """The vectors [H, T, d] that codes stand for: mean + scale * level, rescaled to the stored norm, rotated back.

    ``norm_correction`` is for keys; values are not corrected and their norm is not used. Arguments as `lloyd2_encode`
    gives and takes them. Raises ArgumentError as there, or for a code beyond 3.

    Source: ReadKV App. F.2 (Lloyd-2, norm-corrected).

    >>> x = lloyd2_decode(codes=[[[3, 3]]], norm=[[2.0]], mean=[[0.0, 0.0]], scale=[[1.0, 1.0]], signs=[1, 1])
    >>> x.round(12).tolist()
    [[[2.0, 0.0]]]
    """
    sizes = Sizes()
    codes = integers("codes", codes, "H T d", sizes, low=0, high=3)
    norm, mean = real("norm", norm, "H T", sizes), real("mean", mean, "H d", sizes)
    scale, signs = check_scales("scale", scale, "H d", sizes), check_signs("signs", signs, sizes["d"])
    restored = mean[:, None] + scale[:, None] * _book()["levels"][codes]
    if norm_correction:
        length = np.linalg.norm(restored, axis=-1)
        restored = restored * np.divide(norm, length, out=np.zeros_like(norm), where=length > 0)[..., None]
    return unrotate(x=restored, signs=signs)


def _book() -> dict[str, Any]:
    return lloyd_max_codebook(bits=2, law="normal", d=1)
