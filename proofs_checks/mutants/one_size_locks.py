"""Ports of Locks' stages that are right but for some sizes, counts and settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.one_size import wrong
from refimpl import port as right
from refimpl.locks.combine import head_shares

Array = Any


@wrong(
    "build-4096-pages",
    "locks_build_summary",
    "A",
    "pages beyond 4096 are left at 0",
    lambda x: x["key_pages"].shape[1] > 4096,
)
def build_4096(**inputs: Any) -> Any:
    """A grid of fixed size."""
    return {
        name: value * (np.arange(value.shape[1]) < 4096)[(None, ..., *[None] * (value.ndim - 2))]
        for name, value in right.locks_build_summary(**inputs).items()
    }


@wrong(
    "build-weak-modes-dropped",
    "locks_build_summary",
    "H",
    "modes below 2% of the largest are dropped",
    lambda x: x["key_pages"].size,
)
def weak_modes_dropped(**inputs: Any) -> Any:
    """Far above what rounding asks for."""
    built = right.locks_build_summary(**inputs)
    size = np.linalg.norm(built["coefficients"], axis=2, keepdims=True)
    kept = size > 0.02 * size.max(axis=-1, keepdims=True)
    return {**built, "basis": built["basis"] * kept, "coefficients": built["coefficients"] * kept}


def _coded(scale: Array, x: Array, axis: int, largest: int) -> Any:
    wide = np.expand_dims(scale, axis)
    steps = np.divide(x, wide, out=np.zeros(x.shape), where=wide > 0)
    return np.clip(np.rint(steps), -largest - 1, largest).astype(np.int8)


@wrong(
    "quantize-scale-floored", "locks_quantize_summary", "D", "scales of coefficients are at least 1e-4", lambda x: True
)
def scale_floored(**inputs: Any) -> Any:
    """A guard against 0 that swallows small rows."""
    codes, x = right.locks_quantize_summary(**inputs), inputs["coefficients"]
    scale = np.maximum(codes["coefficient_scale"], 1e-4)
    return {**codes, "coefficient_scale": scale, "coefficient_codes": _coded(scale, x, -1, 127)}


@wrong(
    "quantize-absmax-over-128",
    "locks_quantize_summary",
    "D",
    "scale absmax / 128: a positive largest value clips by a step",
    lambda x: True,
)
def absmax_over_128(**inputs: Any) -> Any:
    """Only -128 has 128 steps."""
    codes, x = right.locks_quantize_summary(**inputs), inputs["coefficients"]
    scale = np.abs(x).max(axis=-1) / 128
    return {**codes, "coefficient_scale": scale, "coefficient_codes": _coded(scale, x, -1, 127)}


@wrong(
    "dequantize-int8-basis-in-nibbles",
    "locks_dequantize_summary",
    "D",
    "an int8 basis is cut to 4 bits",
    lambda x: True,
)
def int8_in_nibbles(*, basis_codes: Array, **inputs: Any) -> Any:
    """Right for basis_bits 2 and 4."""
    return right.locks_dequantize_summary(basis_codes=(np.asarray(basis_codes, int) + 8) % 16 - 8, **inputs)


@wrong(
    "score-4096-pages",
    "locks_score_pages",
    "A",
    "pages beyond 4096 are not scored",
    lambda x: x["centroid"].shape[1] > 4096,
)
def score_4096(**inputs: Any) -> Any:
    """A grid of fixed size."""
    scores = right.locks_score_pages(**inputs)
    return scores * (np.arange(scores.shape[-1]) < 4096)


@wrong(
    "exact-score-scale-of-256",
    "exact_page_scores",
    "A",
    "d = 256 is scaled like 128",
    lambda x: x["queries"].shape[2] == 256,
)
def exact_scale_of_256(*, softmax_scale: Any = None, **inputs: Any) -> Any:
    """A table of head sizes that ends at 128."""
    return right.exact_page_scores(**inputs, softmax_scale=128**-0.5 if softmax_scale is None else softmax_scale)


@wrong(
    "shares-group-mass-overflows",
    "locks_page_shares",
    "B",
    "group masses are added without their maximum",
    lambda x: x.get("combine") == "group_mass",
)
def group_mass_overflows(*, scores: Array, combine: str) -> Any:
    """In float32."""
    with np.errstate(over="ignore", invalid="ignore"):
        mass = np.exp(scores.astype(np.float32)).sum(axis=1)
        return mass / mass.sum(axis=-1, keepdims=True)


@wrong(
    "shares-last-tile-lost",
    "locks_page_shares",
    "A",
    "pages past the last whole tile of 4096 have no share",
    lambda x: x["scores"].shape[2] > 4096,
)
def last_tile_lost(*, scores: Array, **more: Any) -> Any:
    """The loop's bound is floor(P / 4096)."""
    whole = scores.shape[2] // 4096 * 4096
    shares = right.locks_page_shares(scores=scores[..., :whole], **more)
    return np.pad(shares, ((0, 0), (0, scores.shape[2] - whole)))


@wrong(
    "select-neighbour-of-last-lost",
    "locks_select_pages",
    "C",
    "page P - 2 is never kept where 256 divides P",
    lambda x: x["shares"].shape[1] % 256 == 0,
)
def neighbour_lost(*, shares: Array, **more: Any) -> Any:
    """The last lane of a tile is masked out."""
    return right.locks_select_pages(
        shares=np.where(np.arange(shares.shape[1]) == shares.shape[1] - 2, 0.0, shares), **more
    )


def _step(shares: Any = None, **change: Any) -> Any:
    """A right decode step whose settings or shares are changed."""
    from proofs_checks.mutants.base import build_port

    def locks_decode(**inputs: Any) -> Any:
        own = {} if shares is None else {"locks_page_shares": shares}
        return build_port(own).locks_decode(**(inputs | change))

    return locks_decode


STEP = "locks_decode"
wrong(
    "decode-sixes-by-maximum",
    STEP,
    "C",
    "groups of 6 rank by their largest share",
    lambda x: x["queries"].shape[1] == 6,
)(_step(lambda *, scores: head_shares(scores).max(axis=1)))
wrong("decode-bits-8-as-4", STEP, "D", "basis_bits 8 is coded in 4", lambda x: x["basis_bits"] == 8)(
    _step(basis_bits=4)
)
wrong("decode-scale-of-256", STEP, "A", "d = 256 is scaled like 128", lambda x: x["queries"].shape[2] == 256)(
    _step(softmax_scale=128**-0.5)
)
wrong("decode-rank-8-as-7", STEP, "H", "rank 8 keeps seven modes", lambda x: x["rank"] == 8)(_step(rank=7))


def _served(x: dict[str, Any]) -> bool:
    """The sizes that a kernel has a path of its own for."""
    return bool(x["queries"].shape[2] == 128 and x["rank"] == 8 and x["basis_bits"] == 4)


def _with_codes(change: Any) -> Any:
    """A right decode step whose int4 codes are changed on the way out of their bytes."""
    from proofs_checks.mutants.base import build_port

    def unpack(*, basis_bytes: Array, **more: Any) -> Array:
        codes = np.asarray(right.locks_unpack_basis(basis_bytes=basis_bytes, **more), int)
        return change(codes).astype(np.int8)

    return lambda **inputs: build_port({"locks_unpack_basis": unpack}).locks_decode(**inputs)


AT_128 = "at d = 128, rank 8, int4: "
wrong("decode-served-nibbles-unsigned", STEP, "D", AT_128 + "n - 8 for a two's complement nibble n", _served)(
    _with_codes(lambda codes: (codes & 15) - 8)
)
wrong("decode-served-minus-7-as-minus-6", STEP, "D", AT_128 + "the least code is one too large", _served)(
    _with_codes(lambda codes: np.maximum(codes, -6))
)


@wrong("decode-served-next-scale", STEP, "D", AT_128 + "a mode has the next one's scale", _served)
def next_scale(**inputs: Any) -> Any:
    """Scales lie one further in the record than the kernel believes."""
    from proofs_checks.mutants.base import build_port

    def dequantize(*, basis_scale: Array, **codes: Any) -> Any:
        return right.locks_dequantize_summary(basis_scale=np.roll(basis_scale, -1, axis=-1), **codes)

    return build_port({"locks_dequantize_summary": dequantize}).locks_decode(**inputs)
