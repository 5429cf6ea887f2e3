"""Golden cases of the other systems: what their cases of usual size show, small enough for files."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator

WIDE = "an index above 127 is no negative number"
SINKS = "sinks stand one above the largest score of all KV heads, not of their own"
HEADS = "2 KV heads of {} queries: query head h reads KV head h // G"


def cases() -> list[Case]:
    """Cases of the stages of other systems."""
    return [
        Family("codebook_scores", "D").probe("golden-index-above-127", "D", WIDE, _many_codewords),
        Family("expected_attention_scores", "C").probe("golden-sinks-on-top", "C", SINKS, _sinks),
        *[
            Family("quest_scores", "G").probe(f"head-map-G{G}", "G", HEADS.format(G), partial(_envelopes, G))
            for G in (3, 6, 7)
        ],
    ]


def _many_codewords() -> Inputs:
    words = generator("golden", "codewords").integers(-8, 9, size=(1, 200, 4)) / 4.0
    codes = np.array([[[0, 127], [128, 199], [72, 150]]])
    return {"queries": np.array([[[1.0, -0.5, 2.0, 0.25]]]), "codes": codes, "codewords": words}


def _sinks() -> Inputs:
    rng = generator("golden", "sinks")
    keys = rng.integers(-8, 9, size=(2, 7, 4)) / 4.0
    values = rng.integers(-8, 9, size=(2, 7, 4)) * np.array([0.25, 4.0])[:, None, None]
    root = rng.integers(-4, 5, size=(2, 2, 4, 4)) / 4.0
    mean = rng.integers(-8, 9, size=(2, 2, 4)) / 4.0
    shared = {"keys": keys, "values": values, "query_mean": mean}
    return {**shared, "query_covariance": root @ np.swapaxes(root, -1, -2), "sinks": 2}


def _envelopes(G: int) -> Inputs:
    rng = generator("golden", "envelopes", f"{G}")
    low = rng.integers(-8, 9, size=(2, 3, 8)) / 4.0 + np.array([0.0, 4.0])[:, None, None]
    queries = rng.integers(-8, 9, size=(2, G, 8)) / 4.0
    return {"queries": queries, "minimum": low, "maximum": low + rng.integers(0, 9, size=low.shape) / 4.0}
