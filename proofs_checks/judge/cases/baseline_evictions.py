"""Cases of evictions: KVzip, and caches cut to a budget."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator


def zip_cases() -> list[Case]:
    """Cases of `kvzip_keep`. Ratios are multiples of 1/8, so that floor(N ratio) is the same in any arithmetic."""
    stage = Family("kvzip_keep", "C")
    pair, uniform = "one threshold over all layers and heads", "the same number in every head"

    def case(name: str, why: str, scores: Any, ratio: float, level: str) -> Case:
        return stage.exact(name, "C", why, lambda: {"scores": scores, "ratio": ratio, "level": level})

    scores = generator("kvzip").permutation(2 * 3 * 16).reshape(2, 3, 16) / 128.0
    tied = np.floor(scores * 8) / 8
    return [
        case("pair", pair, scores, 0.5, "pair"),
        case("pair-strict", "the score at the threshold goes", scores, 0.25, "pair"),
        case("pair-ties", "scores equal to the threshold go too", tied, 0.5, "pair"),
        case("pair-nearly-nothing", "fewer than one token: nothing stays", scores[:1, :1], 0.03125, "pair"),
        case("uniform", uniform, scores, 0.25, "uniform"),
        case("everything", "a ratio of 1 keeps all", scores, 1.0, "pair"),
        case("uniform-ratio-above-1", "a ratio above 1 keeps all", scores, 1.5, "uniform"),
        stage.general("L4-H2-T100", "random scores", partial(_zip, 4, 2, 100, 0.25), kind="set"),
        stage.general("uniform-T77", "an odd length", partial(_zip, 2, 2, 77, 0.5, "uniform"), kind="set"),
    ]


def _zip(L: int, H: int, T: int, ratio: float, level: str = "pair") -> Inputs:
    return {"scores": generator("kvzip", f"{L},{H},{T}").random((L, H, T)), "ratio": ratio, "level": level}


def evict_cases() -> list[Case]:
    """Cases of `evict_tokens`."""
    stage = Family("evict_tokens", "C")
    rising = np.arange(20.0)[None] + np.zeros((2, 1))

    def case(name: str, why: str, scores: Any, budget: int, **ends: int) -> Case:
        inputs = {"scores": np.asarray(scores, dtype=np.float64), "budget_tokens": budget, **ends}
        return stage.probe(name, "C", why, lambda: inputs, kind="set")

    return [
        case("recent-inside-budget", "the window counts against the budget", -rising, 8, recent_tokens=4),
        case("first-inside-budget", "so does the prompt", rising, 8, first_tokens=5),
        case("both-ends", "both ends stay", np.sin(rising), 9, first_tokens=2, recent_tokens=3),
        case("nothing-protected", "the best by score alone", np.cos(rising), 6),
        case("short-cache", "nothing goes while the cache is short", rising[:, :5], 9, recent_tokens=2),
        case("ends-meet", "ends that overlap count once", rising[:, :6], 5, first_tokens=2, recent_tokens=3),
        case("negative-scores", "the least negative stay", -1 - np.cos(rising), 6, recent_tokens=1),
        stage.general("H3-T200", "random scores", partial(_evict, 3, 200, 64, recent_tokens=8), kind="set"),
        stage.general("W-of-64", "LazyEviction's window", partial(_evict, 2, 90, 64, recent_tokens=16), kind="set"),
    ]


def _evict(H: int, T: int, budget: int, **ends: int) -> Inputs:
    return {"scores": generator("evict", f"{H},{T}").normal(size=(H, T)), "budget_tokens": budget, **ends}
