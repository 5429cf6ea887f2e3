"""Cases of ReadKV's importances, Eqs. (2) and (3)."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.readkv_inputs import captured_cache, rotated_queries

FINGERPRINT = "every query a different power of two: the sum says which queries were summed (h // G)"
OUTLIERS = "random queries, outlier channels"
GROUPS = (1, 4, 5, 6, 8, 16)
LIGHT = "weights from 1 down to 2^-60: their squares need float32's range"


def key_cases() -> list[Case]:
    """Cases of `readkv_key_importance`."""
    stage = Family("readkv_key_importance", "C")
    return [
        stage.exact("one-query", "C", "q' = (3, 1), sigma = (1, 2): squares (9, 4)", _one_query),
        stage.exact("which-heads", "G", FINGERPRINT, _fingerprint),
        stage.exact("sum-over-group", "C", "q' = 3 and 4: 25, not the largest, the mean or the sum squared", _group),
        stage.exact("own-scales", "G", "scales 1 and 2 of two heads: 4 times", _own_scales),
        stage.exact("dead-queries", "C", "zero queries have importance 0", _dead),
        stage.exact("close-queries", "I", "2049^2: half precision or TF32 loses the last bit", _close),
        stage.exact("wide-range", "I", "squares from 2^-60 to 2^60: none is flushed, none overflows", _wide_range),
        *[stage.size(f"group-of-{G}", "G", f"{G} queries each", partial(_random, 2, G, 16)) for G in GROUPS],
        stage.size("d256", "A", "256 channels", partial(_random, 1, 2, 256)),
        stage.general("H2-G3-d64", OUTLIERS, partial(_random, 2, 3, 64)),
        stage.general("H1-G8-d128", OUTLIERS, partial(_random, 1, 8, 128)),
        stage.general("H3-G7-d64", OUTLIERS, partial(_random, 3, 7, 64)),
        stage.general("capture", "real rotated queries", _captured),
    ]


def _one_query() -> Inputs:
    return {"rotated_queries": np.array([[[3.0, 1.0]]]), "key_scale": np.array([[1.0, 2.0]])}


def _fingerprint() -> Inputs:
    queries = 2.0 ** np.arange(6).reshape(2, 3, 1) * np.ones((2, 3, 4))
    return {"rotated_queries": queries, "key_scale": np.ones((2, 4))}


def _group() -> Inputs:
    return {"rotated_queries": np.array([[[3.0, -1.0], [4.0, 1.0]]]), "key_scale": np.ones((1, 2))}


def _own_scales() -> Inputs:
    return {"rotated_queries": np.ones((2, 3, 4)), "key_scale": np.array([[1.0] * 4, [2.0] * 4])}


def _dead() -> Inputs:
    queries = np.zeros((2, 2, 4))
    queries[1, 1, 2] = 5.0
    return {"rotated_queries": queries, "key_scale": np.full((2, 4), 3.0)}


def _close() -> Inputs:
    return {"rotated_queries": np.array([[[2049.0, 2048.0]]]), "key_scale": np.array([[1.0, 1.0]])}


def _wide_range() -> Inputs:
    return {"rotated_queries": 2.0 ** np.arange(-30.0, 31.0)[None, None], "key_scale": np.ones((1, 61))}


def _random(H: int, G: int, d: int) -> Inputs:
    rng = generator("key-importance", f"{H},{G},{d}")
    scale = np.exp(rng.normal(size=(H, d))) * np.where(rng.random((H, d)) < 0.1, 16.0, 1.0)
    return {"rotated_queries": rng.normal(size=(H, G, d)), "key_scale": scale}


def _captured() -> Inputs:
    return {"rotated_queries": rotated_queries(2, 3), "key_scale": captured_cache(2)["key_scale"]}


def value_cases() -> list[Case]:
    """Cases of `readkv_value_importance`."""
    stage = Family("readkv_value_importance", "C")
    factor = "the head's factor s_g multiplies its importances once (AMB-24)"
    return [
        stage.exact("squares", "C", "weights (3/4, 1/4): squares 9/16 and 1/16", _one_head),
        stage.exact("which-heads", "G", FINGERPRINT, _heads),
        stage.exact("sum-over-group", "C", "(1/2, 1/2) and (1, 0): 5/4 and 1/4", _two),
        stage.exact("dead-tokens", "C", "weight 0 has importance 0", _dead_tokens),
        stage.exact("head-weight", "C", factor, _head_weight),
        stage.probe("light-tokens", "I", LIGHT, _light),
        stage.exact("no-tokens", "A", "T = 0 is legal", lambda: {"weights": np.zeros((2, 3, 0))}),
        *[stage.size(f"group-of-{G}", "G", f"{G} queries each", partial(_softmax, 2, G, 16)) for G in (5, 6, 7, 8, 16)],
        stage.size("1100-tokens", "A", "every token has its importance", partial(_softmax, 1, 2, 1100)),
        *[
            stage.size(f"{T}-tokens", "A", f"whole tiles: T = {T}", partial(_softmax, 1, 2, T))
            for T in (32, 128, 256, 1024)
        ],
        stage.general("H2-G3-T50", "softmax weights", partial(_softmax, 2, 3, 50)),
        stage.general("H3-G4-T9", "an odd number of tokens", partial(_softmax, 3, 4, 9)),
        stage.general("head-weights", "softmax weights with factors", _softmax_factors),
    ]


def _one_head() -> Inputs:
    return {"weights": np.array([[[0.75, 0.25]]])}


def _heads() -> Inputs:
    return {"weights": 0.5 ** np.arange(6).reshape(2, 3, 1) * np.ones((2, 3, 4))}


def _two() -> Inputs:
    return {"weights": np.array([[[0.5, 0.5], [1.0, 0.0]]])}


def _dead_tokens() -> Inputs:
    weights = np.zeros((2, 2, 9))
    weights[..., 8] = 1.0
    return {"weights": weights}


def _head_weight() -> Inputs:
    return {"weights": np.full((2, 2, 4), 0.25), "value_head_weight": np.array([4.0, 0.0])}


def _light() -> Inputs:
    return {"weights": np.array([[2.0 ** -np.arange(0.0, 61.0)]])}


def _softmax(H: int, G: int, T: int) -> Inputs:
    logits = 4 * generator("value-importance", f"{H},{G},{T}").normal(size=(H, G, T))
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return {"weights": weights / weights.sum(axis=-1, keepdims=True)}


def _softmax_factors() -> Inputs:
    return {**_softmax(4, 2, 21), "value_head_weight": np.array([1.0, 30.0, 0.25, 7.0])}
