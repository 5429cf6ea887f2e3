"""Golden cases from the real capture: slices of the needle prompt, small enough for 50 digits."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.golden.job import common_grid
from proofs_checks.judge.case import Case, Family, Inputs
from proofs_checks.judge.cases.readkv_inputs import captured_cache, signs_of
from refimpl.locks.decode import locks_scores
from refimpl.locks.summary import locks_build_summary
from refimpl.readkv.calibration import standardize
from refimpl.readkv.rotation import readkv_rotate

WHY = "real queries, keys and values: layer {} of the needle prompt"


def cases() -> list[Case]:
    """One slice per stage that reads real tensors."""

    def one(stage: str, suspect: str, make: partial[Inputs], layer: int, kind: str = "bounded") -> Case:
        dtypes = ("float32",) if kind == "set" else ("float32", "bfloat16", "float16")
        return Family(stage, suspect).general("capture-slice", WHY.format(layer), make, kind=kind, dtypes=dtypes)

    return [
        one("attention", "B", partial(_tokens, 18, 64), 18),
        one("sparse_attention", "A", partial(_sparse, 18), 18),
        one("exact_page_scores", "B", partial(_pages, 18), 18),
        one("locks_build_summary", "H", partial(_page, 7), 7),
        one("locks_quantize_summary", "D", partial(_summary, 7), 7),
        one("locks_page_shares", "C", partial(_scores, 18), 18),
        one("locks_decode", "C", partial(_decode, 18), 18, "set"),
        one("readkv_rotate", "E", partial(_rotate, 7), 7),
        one("readkv_encode", "F", partial(_standardised, 7), 7, "set"),
        one("affine_quantize", "D", partial(_values, 7), 7),
        one("readkv_attention", "C", partial(_read, 7), 7),
    ]


LAYERS = {7: 1, 18: 2}
"""Index of a captured layer by its number."""


def _tokens(layer: int, tokens: int) -> Inputs:
    part = needle_slice(LAYERS[layer], 0)
    return {"queries": part["queries"][:1], **{n: part[n][:1, :tokens] for n in ("keys", "values")}}


def _sparse(layer: int) -> Inputs:
    return {**_tokens(layer, 57), "pages": np.array([[3, 0, 1]]), "page_size": 16}


def _pages(layer: int) -> Inputs:
    part = _tokens(layer, 64)
    return {"queries": part["queries"], "key_pages": part["keys"].reshape(1, 4, 16, 64)}


def _page(layer: int) -> Inputs:
    return {"key_pages": _tokens(layer, 64)["keys"][:, 32:].reshape(1, 2, 16, 64), "rank": 4}


def _summary(layer: int) -> Inputs:
    return {**locks_build_summary(**_page(layer)), "basis_bits": 4}


def _scores(layer: int) -> Inputs:
    part = {n: v.astype(np.float64) for n, v in _tokens(layer, 409).items()}
    return {"scores": locks_scores(part["queries"], part["keys"], 8, 4, 16, None)}


def _decode(layer: int) -> Inputs:
    settings = {"rank": 4, "basis_bits": 8, "budget_tokens": 48, "page_size": 16}
    return {**_tokens(layer, 81), **settings}


def _rotate(layer: int) -> Inputs:
    return {"x": _tokens(layer, 8)["keys"], "signs": signs_of(64)}


def _standardised(layer: int) -> Inputs:
    cache = captured_cache(LAYERS[layer])
    rotated = readkv_rotate(x=common_grid(_tokens(layer, 16)["keys"]), signs=cache["key_signs"])
    return {"z": standardize(rotated, cache["key_mean"][:1], cache["key_scale"][:1])}


def _values(layer: int) -> Inputs:
    return {"x": _tokens(layer, 16)["values"], "bits": 4}


def _read(layer: int) -> Inputs:
    cache = captured_cache(LAYERS[layer])
    short = {n: v[:1, :12] if n.endswith("codes") else v[:1] if v.ndim == 2 else v for n, v in cache.items()}
    return {"queries": _tokens(layer, 1)["queries"], **short, "key_budget": 128, "value_budget": 24}
