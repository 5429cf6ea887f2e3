"""Cases of building, quantising and packing page summaries."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import long_text_slice, needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_sizes
from proofs_checks.judge.cases.inputs import planted_pages
from refimpl.locks.summary import locks_build_summary

SPECTRUM = [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7, 0.5, 0.3]


def build_cases() -> list[Case]:
    """Cases of `locks_build_summary`."""
    stage = Family("locks_build_summary", "H")
    return [
        stage.probe("one-strong-mode", "H", "rank 1 of a page with one strong direction: the largest mode", _strong),
        stage.probe("large-centroid", "H", "deviations, not keys, are decomposed", _large_centroid),
        stage.probe("equal-modes", "H", "two equal singular values: any basis of their plane is right", _equal_modes),
        stage.probe("identical-keys", "D", "identical keys have no modes: nothing is divided by 0", _identical),
        stage.probe("zero-page", "D", "a page of zeros: centroid 0, no modes, nothing divided by 0", _zero_page),
        stage.probe("rank-deficient", "D", "rank 8 of a page with 2 modes: the other columns are 0", _deficient),
        stage.probe("no-pages", "A", "P = 0 is legal", lambda: {"key_pages": np.zeros((2, 0, 16, 64)), "rank": 8}),
        *locks_sizes.build_sizes(),
        stage.general("B8-d80", "planted spectrum, B = 8, d = 80, full rank 8", partial(_planted, 8, 80, 8)),
        stage.general("B16-d128-r8", "planted spectrum at the papers' shape", partial(_planted, 16, 128, 8)),
        stage.general("B32-d64-r15", "planted spectrum, B = 32, rank 15", partial(_planted, 32, 64, 15)),
        stage.general("B16-d256-r4", "planted spectrum, d = 256", partial(_planted, 16, 256, 4)),
        stage.general("gaussian", "pages without structure, close singular values", _gaussian),
        stage.general("capture-needle", "layer 7 of the real needle prompt", _needle_pages),
        stage.general("capture-8k", "511 pages of 8K real tokens", _long_pages, profile="default"),
    ]


def _identical() -> Inputs:
    rng = generator("build", "identical")
    return {"key_pages": np.broadcast_to(rng.normal(size=(2, 3, 1, 64)), (2, 3, 16, 64)), "rank": 8}


def _zero_page() -> Inputs:
    pages = planted_pages(generator("build", "zero"), 1, 3, 16, 64, SPECTRUM)
    pages[:, 1] = 0.0
    return {"key_pages": pages, "rank": 8}


def _strong() -> Inputs:
    return {"key_pages": planted_pages(generator("build", "strong"), 1, 4, 16, 64, [20.0, 1.0, 0.5]), "rank": 1}


def _large_centroid() -> Inputs:
    rng = generator("build", "centroid")
    pages = planted_pages(rng, 1, 2, 16, 64, [2.0, 1.0, 0.5, 0.25])
    return {"key_pages": pages + 4 * rng.normal(size=(1, 2, 1, 64)), "rank": 2}


def _deficient() -> Inputs:
    """Keys on a lattice in two directions: exactly two modes in any precision."""
    a, b = np.divmod(np.arange(16.0), 4)
    pages = np.zeros((1, 1, 16, 64))
    pages[0, 0, :, 3], pages[0, 0, :, 40] = a, 2 * b
    return {"key_pages": pages, "rank": 8}


def _equal_modes() -> Inputs:
    """Tokens at +-e3 and +-e40: two equal singular values, exact in any precision."""
    pages = np.zeros((1, 1, 8, 64))
    pages[0, 0, 0:2, 3] = pages[0, 0, 4:6, 40] = 2.0
    pages[0, 0, 2:4, 3] = pages[0, 0, 6:8, 40] = -2.0
    return {"key_pages": pages, "rank": 2}


def _planted(B: int, d: int, rank: int) -> Inputs:
    spectrum = [*SPECTRUM, 0.25, 0.2, 0.15, 0.1, 0.08][: B - 1]
    return {"key_pages": planted_pages(generator("build", f"{B},{d}"), 2, 3, B, d, spectrum), "rank": rank}


def _gaussian() -> Inputs:
    return {"key_pages": generator("build", "gaussian").normal(size=(2, 4, 16, 64)), "rank": 8}


def _needle_pages() -> Inputs:
    return {"key_pages": needle_slice(1, 0)["keys"][:, :2032].reshape(3, 127, 16, 64), "rank": 8}


def _long_pages() -> Inputs:
    return {"key_pages": long_text_slice(0)["keys"].reshape(1, 511, 16, 64), "rank": 8}


def quantize_cases() -> list[Case]:
    """Cases of `locks_quantize_summary`."""
    stage = Family("locks_quantize_summary", "D")
    probes = [
        stage.probe("truncation", "D", "a column of maximum 7 holds 1.9: code 2, not 1", _truncation),
        stage.probe("zero-lines", "D", "columns and rows of zeros: codes 0 and a finite scale", _zero_lines),
        stage.probe("columns-1-and-100", "D", "basis columns of size 1 and 100 keep their own scales", _columns),
        stage.probe("rows-1-and-100", "D", "coefficient rows of size 1 and 100 keep their own scales", _rows),
        stage.probe("all-codes", "D", "values at -7..7 steps exactly", _all_steps),
        stage.probe("ternary", "D", "int2 codes are -1, 0, 1", partial(_summary, 2, "built")),
    ]
    general = [
        stage.general(f"int{bits}", f"a built summary, basis in int{bits}", partial(_summary, bits, "built"))
        for bits in (4, 8)
    ]
    probes += locks_sizes.quantize_sizes()
    return [*probes, *general, stage.general("capture", "a real page summary, int4", partial(_summary, 4, "capture"))]


NIBBLES = "every pair of codes -8..7: two's complement, the even channel in the low nibble"
PLAIN_ROWS = [[127.0, 1.0], [2.0, -127.0], [127.0, 0.0], [3.0, 127.0]]


def _small(basis: Any = None, coefficients: Any = None, centroid: Any = None, bits: int = 4) -> Inputs:
    """A summary of one page with d = 8, r = 2, B = 4, where one part is given and the others are plain."""
    ramp = np.arange(1.0, 9.0)
    return {
        "centroid": (ramp * 16 - 1 if centroid is None else np.asarray(centroid)).reshape(1, 1, 8),
        "basis": np.stack([ramp - 4, 4 - ramp], axis=-1)[None, None] if basis is None else basis,
        "coefficients": np.array([[PLAIN_ROWS]]) if coefficients is None else coefficients,
        "basis_bits": bits,
    }


def _truncation() -> Inputs:
    column = np.array([7.0, 1.9, -1.9, 2.75, -3.6, 0.6, -0.6, 4.9])
    return _small(basis=np.stack([column, -column], axis=-1)[None, None])


def _zero_lines() -> Inputs:
    inputs = _small()
    inputs["basis"][..., 1] = 0.0
    inputs["coefficients"][0, 0, 2] = 0.0
    return inputs | {"centroid": np.zeros((1, 1, 8))}


def _columns() -> Inputs:
    column = np.array([7.0, 1.0, -2.0, 3.0, -4.0, 5.0, -6.0, 0.0])
    return _small(basis=np.stack([column, 100 * column[::-1]], axis=-1)[None, None])


def _rows() -> Inputs:
    row = np.array([[127.0, 1.0], [100 * 127.0, -300.0], [0.127, 0.05], [127.0, -64.0]])
    return _small(coefficients=row[None, None])


def _all_steps() -> Inputs:
    steps = np.arange(-7.0, 8.0)
    basis = np.stack([np.append(steps, 0.0), np.append(steps[::-1], 7.0) * 0.5], axis=-1)[None, None]
    return {**_small(basis=basis), "centroid": np.linspace(-127, 127, 16).round().reshape(1, 1, 16)}


def _summary(bits: int, kind: str) -> Inputs:
    if kind == "capture":
        pages = needle_slice(1, 0)["keys"][:, :320].reshape(3, 20, 16, 64)
    else:
        pages = planted_pages(generator("quantize"), 2, 3, 16, 64, SPECTRUM)
    return {**locks_build_summary(key_pages=pages, rank=8), "basis_bits": bits}


def dequantize_cases() -> list[Case]:
    """Cases of `locks_dequantize_summary`."""
    stage = Family("locks_dequantize_summary", "D")
    return [
        stage.exact("every-code", "D", "all int4 codes and int8 extremes with power-of-two scales", _every_code),
        stage.exact("int8-basis", "D", "a basis in int8: codes beyond 4 bits", locks_sizes.int8_codes),
        stage.exact("square", "D", "as many tokens as modes", locks_sizes.square_codes),
        stage.exact("distinct-scales", "D", "every line has its own scale: a permutation shows", _distinct),
        stage.general("random", "random codes and scales", _random_codes),
    ]


def _codes(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "centroid_codes": rng.integers(-127, 128, size=(2, 3, 16)),
        "basis_codes": rng.integers(-7, 8, size=(2, 3, 16, 4)),
        "coefficient_codes": rng.integers(-127, 128, size=(2, 3, 8, 4)),
    }


def _every_code() -> Inputs:
    codes = _codes(generator("dequantize", "every"))
    codes["basis_codes"][...] = np.arange(-8, 8)[None, None, :, None]
    codes["centroid_codes"][0, 0, :2] = -127, 127
    scales = {"centroid_scale": np.full((2, 3), 0.5), "basis_scale": np.full((2, 3, 4), 0.25)}
    return {**codes, **scales, "coefficient_scale": np.full((2, 3, 8), 2.0)}


def _distinct() -> Inputs:
    return {
        **_codes(generator("dequantize", "distinct")),
        "centroid_scale": 2.0 ** np.arange(6).reshape(2, 3),
        "basis_scale": 2.0 ** (np.arange(24).reshape(2, 3, 4) % 13),
        "coefficient_scale": 2.0 ** -(np.arange(48).reshape(2, 3, 8) % 17),
    }


def _random_codes() -> Inputs:
    rng = generator("dequantize", "random")
    scales = {"centroid_scale": (2, 3), "basis_scale": (2, 3, 4), "coefficient_scale": (2, 3, 8)}
    return {**_codes(rng), **{name: rng.uniform(0.001, 0.1, size=shape) for name, shape in scales.items()}}


def pack_cases() -> list[Case]:
    """Cases of `locks_pack_basis`: judged exactly."""
    stage = Family("locks_pack_basis", "D")
    return [
        stage.probe(
            "all-nibbles",
            "D",
            NIBBLES,
            _nibble_pairs,
            kind="exact",
        ),
        stage.probe("random", "D", "columns one after another, not rows", _random_nibbles, kind="exact"),
        stage.size("d128-r8", "D", "the served size, two KV heads of three pages", _served_nibbles, kind="exact"),
    ]


def unpack_cases() -> list[Case]:
    """Cases of `locks_unpack_basis`: judged exactly."""
    stage = Family("locks_unpack_basis", "D")

    def all_bytes() -> Inputs:
        return {"basis_bytes": np.arange(256).reshape(1, 2, 4, 32)}

    def few_bytes() -> Inputs:
        return {"basis_bytes": generator("unpack").integers(0, 256, size=(2, 3, 4, 40))}

    def served_bytes() -> Inputs:
        return {"basis_bytes": generator("unpack", "served").integers(0, 256, size=(2, 3, 8, 64))}

    return [
        stage.probe("all-bytes", "D", "all 256 bytes: nibble 8 is -8, 15 is -1, 0 is 0", all_bytes, kind="exact"),
        stage.probe("random", "D", "d = 80, columns one after another", few_bytes, kind="exact"),
        stage.size("d128-r8", "D", "the served size, two KV heads of three pages", served_bytes, kind="exact"),
    ]


def _served_nibbles() -> Inputs:
    return {"basis_codes": generator("pack", "served").integers(-8, 8, size=(2, 3, 128, 8))}


def _nibble_pairs() -> Inputs:
    low, high = np.meshgrid(np.arange(-8, 8), np.arange(-8, 8))
    return {"basis_codes": np.stack([low.ravel(), high.ravel()], axis=-1).reshape(1, 1, 512, 1)}


def _random_nibbles() -> Inputs:
    return {"basis_codes": generator("pack").integers(-7, 8, size=(2, 3, 80, 4))}
