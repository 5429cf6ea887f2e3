"""Cases of the dialect locks-kv-0.1.4 for building, coding and scoring, on the paper's inputs where they serve.

The package's scorer reads codes, so summaries to be scored lie on the dialect's own code grid: coding them again gives
the same codes and scales, in any arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_codec, locks_select
from proofs_checks.judge.cases.inputs import planted_pages
from proofs_checks.judge.locks_kv.decode_cases import decode_cases, decode_paged_cases
from proofs_checks.judge.locks_kv.select_cases import select_cases, share_cases
from refimpl.locks.dialect import LOCKS_KV_0_1_4, quantize_summary
from refimpl.locks.quantize import locks_dequantize_summary
from refimpl.locks.summary import locks_build_summary

WORDS = {
    "identical-keys": "identical keys: every mode is raised to the floor, nothing is divided by 0",
    "zero-page": "a page of zeros: centroid 0, modes of the floor's size, nothing divided by 0",
    "rank-deficient": "rank 8 of a page with 2 modes: the other six are raised to the floor and add nothing",
}
"""Why cases of the paper are there, where the dialect has another reason."""

SPECTRUM = [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7]


def build_cases() -> list[Case]:
    """Cases of `locks_build_summary`."""
    stage = Family("locks_build_summary", "H")
    own = [
        stage.probe("below-the-floor", "D", "deviations of size 1e-6: all modes lie below the floor", _below),
        stage.probe("around-the-floor", "D", "singular values from 1e-3 down to 1e-6", _around),
    ]
    papers = [replace(case, why=WORDS.get(case.name, case.why)) for case in locks_codec.build_cases()]
    return [*papers[:-4], *own, *papers[-4:]]


def _below() -> Inputs:
    deviations = generator("locks-kv", "below").normal(size=(1, 2, 16, 64)) * 2.0**-20
    return {"key_pages": deviations, "rank": 8}


def _around() -> Inputs:
    pages = planted_pages(generator("locks-kv", "around"), 2, 2, 16, 64, [10.0**-k for k in (3, 4, 5, 6)])
    return {"key_pages": pages - pages.mean(axis=2, keepdims=True), "rank": 8}


def quantize_cases() -> list[Case]:
    """Cases of `locks_quantize_summary`: the paper's, and what the scales' format and floor change."""
    stage = Family("locks_quantize_summary", "D")
    own = [
        stage.probe("bf16-scales", "D", "scales far from any bf16 number are rounded to it, to nearest", _scales),
        stage.probe("codes-before-rounding", "D", "codes are those of the scale before it is rounded", _before),
        stage.probe("scale-floor", "D", "lines of largest entry 3e-8: the scale is 1e-8, not 3e-8 / 127", _floor),
    ]
    return [*own, *locks_codec.quantize_cases()]


def _filled(d: int = 64, B: int = 16, r: int = 8) -> dict[str, Any]:
    rng = generator("locks-kv", "filled")
    shapes = {"centroid": (1, 2, d), "basis": (1, 2, d, r), "coefficients": (1, 2, B, r)}
    return {name: np.round(rng.normal(size=shape) * 64) / 64 for name, shape in shapes.items()} | {"basis_bits": 4}


def _scales() -> Inputs:
    """Largest entries of 7 (1 + 2^-9) and 127 (1 + 3 2^-9): a quarter, and three quarters, of a bf16 step past 1."""
    inputs = _filled()
    inputs["basis"][..., 0, :] = 7 * (1 + 2.0**-9)
    inputs["coefficients"][..., 0] = 127 * (1 + 3 * 2.0**-9)
    inputs["centroid"][..., 0] = -127 * (1 + 3 * 2.0**-9)
    return inputs


def _before() -> Inputs:
    """Entries at 0.501 and 100.502 steps of the exact scale: 0.5 and 100.5 lie between them and those of bf16's."""
    inputs = _filled()
    scale = 1 + 0.45 * 2.0**-7  # bf16 stores 1
    row = np.array([127.0, 100.49, -100.49, 80.49, 60.49, 50.49, -40.49, 90.49]) * scale
    inputs["coefficients"][...] = row
    inputs["centroid"] = np.broadcast_to(np.tile(row, 8), (1, 2, 64)).copy()
    return inputs


def _floor() -> Inputs:
    inputs = _filled()
    for name in ("centroid", "basis", "coefficients"):
        inputs[name] = inputs[name] / np.abs(inputs[name]).max() * 3e-8
    return inputs


def on_grid(make: Callable[[], Inputs]) -> Inputs:
    """The inputs with the summary as the dialect's codes stand for it, basis in int4."""
    inputs = make()
    summary = {name: inputs[name] for name in ("centroid", "basis", "coefficients")}
    return inputs | locks_dequantize_summary(**quantize_summary(LOCKS_KV_0_1_4, **summary, basis_bits=4))


def score_cases() -> list[Case]:
    """Cases of `locks_score_pages`."""
    stage = Family("locks_score_pages", "H")
    own = [
        stage.probe("int8-query", "D", "0.4 steps of a query are rounded to 0, 0.6 to 1", partial(on_grid, _query)),
        stage.probe("scale-per-query-head", "D", "a query head of size 1 beside one of 100", partial(on_grid, _sizes)),
        stage.probe("same-query-for-both", "D", "the rounded query meets the centroid too", partial(on_grid, _centre)),
    ]
    left_out = ("tf32-product",)  # a rounded query is a TF32 number
    papers = [
        replace(c, inputs=partial(on_grid, c.inputs)) for c in locks_select.score_cases() if c.name not in left_out
    ]
    return [*own, *papers]


def _summary(name: str, H: int = 1, P: int = 4) -> dict[str, Any]:
    built = locks_build_summary(key_pages=planted_pages(generator("locks-kv", name), H, P, 16, 64, SPECTRUM), rank=8)
    return dict(built)


def _query() -> Inputs:
    """One entry of 127 steps; half of the others are 0.4 steps long, half 0.6."""
    queries = np.where(np.arange(64) % 2, 0.4, 0.6) * np.ones((1, 2, 64)) / 8
    queries[..., 0] = 127 / 8
    return {"queries": queries, **_summary("query")}


def _centre() -> Inputs:
    """No deviations, and a centroid that only the small entries of the query meet."""
    inputs = _query()
    inputs["centroid"] = np.where(np.arange(64) % 2, 4.0, 0.0) * np.arange(1.0, 5.0)[None, :, None]
    return inputs | {"coefficients": np.zeros((1, 4, 16, 8))}


def _sizes() -> Inputs:
    queries = generator("locks-kv", "sizes").normal(size=(1, 2, 64)) * np.array([1.0, 100.0])[None, :, None]
    return {"queries": queries, **_summary("sizes")}


FAMILIES: dict[str, Callable[[], list[Case]]] = {
    "locks_build_summary": build_cases,
    "locks_quantize_summary": quantize_cases,
    "locks_score_pages": score_cases,
    "locks_page_shares": share_cases,
    "locks_select_pages": select_cases,
    "locks_decode": decode_cases,
    "locks_decode_paged": decode_paged_cases,
}
