"""Cases of what is kept or attended: ShadowKV and RocketKV."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import random_qkv

LANDMARKS, OUTLIERS, TOKENS, CHANNELS = ("landmarks",), ("outliers",), ("tokens",), ("channels",)


def landmark_cases() -> list[Case]:
    """Cases of `shadowkv_landmarks`."""
    stage = Family("shadowkv_landmarks", "H")
    local = "32 to 39 last tokens have no landmark"
    return [
        stage.exact("mean-of-chunk", "H", "the mean of 8 whole keys", _whole_keys, judged=LANDMARKS),
        stage.probe("local-region", "A", local, partial(_chunks, 1, 103, 64, 3), judged=LANDMARKS),
        stage.probe(
            "lowest-cosine", "C", "outliers are the chunks of the lowest worst cosine", _two_sorts, judged=OUTLIERS
        ),
        stage.probe("worst-not-mean", "C", "one odd key makes an outlier", _one_odd, judged=OUTLIERS),
        stage.probe("cosine-not-product", "C", "long keys are no outliers", _long_keys, judged=OUTLIERS),
        stage.probe(
            "chunks-of-4", "A", "another chunk size", partial(_chunks, 2, 50, 64, 2, chunk_size=4), judged=LANDMARKS
        ),
        stage.probe("no-local-chunk", "A", "no local region", partial(_chunks, 1, 40, 64, 2, local_chunks=0)),
        stage.general("H2-T200-d128", "random keys", partial(_chunks, 2, 200, 128, 6)),
        stage.general("capture-needle", "the real needle prompt, 48 outlier chunks", _needle_keys),
    ]


def _chunks(H: int, T: int, d: int, outliers: int, **more: Any) -> Inputs:
    rng = generator("landmarks", f"{H},{T},{d}")
    keys = rng.normal(size=(H, T, d)) + 2 * rng.normal(size=(H, 1, d))
    return {"keys": keys, "outlier_chunks": outliers, **more}


def _whole_keys() -> Inputs:
    keys = generator("landmarks", "whole").integers(1, 9, size=(2, 56, 16)).astype(np.float64)
    return {"keys": 8 * keys, "outlier_chunks": 2}


def _two_sorts() -> Inputs:
    inputs = _chunks(1, 96, 64, 2)
    keys = inputs["keys"] + 5
    keys[:, 24:32] += 6 * generator("landmarks", "sorts").normal(size=(1, 8, 64))
    keys[:, 40:48] += 6 * generator("landmarks", "others").normal(size=(1, 8, 64))
    return {**inputs, "keys": keys}


def _one_odd() -> Inputs:
    """Chunk 2 has one key turned round, chunk 4 eight keys a little apart."""
    inputs = _chunks(1, 96, 64, 1)
    keys = np.full((1, 96, 64), 4.0) + 0.25 * generator("landmarks", "odd").normal(size=(1, 96, 64))
    keys[:, 16] *= -1
    keys[:, 32:40] += 8 * generator("landmarks", "apart").normal(size=(1, 8, 64))
    return {**inputs, "keys": keys}


def _long_keys() -> Inputs:
    inputs = _two_sorts()
    keys = inputs["keys"].copy()
    keys[:, 8:16] *= 16
    keys[:, 48:56] /= 16
    return {**inputs, "keys": keys}


def _needle_keys() -> Inputs:
    return {"keys": needle_slice(2, 0)["keys"]}


def chunk_cases() -> list[Case]:
    """Cases of `shadowkv_chunks`, at d = 128, where both readings of the scale agree (AMB-61)."""
    stage = Family("shadowkv_chunks", "C")
    by_maximum = "one head's strong wish beats the mild wishes of three"

    def case(name: str, suspect: str, why: str, inputs: Any) -> Case:
        return stage.probe(name, suspect, why, inputs, kind="set")

    return [
        case("group-maximum", "C", by_maximum, _wishes),
        case("shares-not-logits", "C", "a head's logits count by their softmax", _logits_or_shares),
        case("heads", "G", "query heads rank their own KV head's chunks", partial(_landmarks, 3, 2, 12, 3)),
        case("all-chunks", "C", "more slots than chunks", partial(_landmarks, 1, 2, 5, 9)),
        stage.general("H2-G4", "random landmarks", partial(_landmarks, 2, 4, 30, 7), kind="set"),
        stage.general("H1-G8", "eight query heads", partial(_landmarks, 1, 8, 60, 12), kind="set"),
    ]


def _landmarks(H: int, G: int, C: int, kept: int) -> Inputs:
    rng = generator("chunks", f"{H},{G},{C}")
    landmarks = rng.normal(size=(H, C, 128)) + np.arange(H)[:, None, None]
    return {"queries": 1.5 * rng.normal(size=(H, G, 128)), "landmarks": landmarks, "kept_chunks": kept}


def _wishes() -> Inputs:
    """Scale 1/sqrt(128): head 0 gives chunk 0 nearly all; heads 1 to 3 give chunk 1 five eighths."""
    inputs = _landmarks(1, 4, 6, 1)
    queries, landmarks = np.zeros((1, 4, 128)), np.zeros((1, 6, 128))
    queries[0, 0, 0], queries[0, 1:, 1] = 64.0, 16.0
    landmarks[0, 0, 0], landmarks[0, 1, 1] = 1.0, 1.5
    return {**inputs, "queries": queries, "landmarks": landmarks}


def _logits_or_shares() -> Inputs:
    """Head 0's logits are all large and alike; head 1's are small and single out chunk 3."""
    inputs = _landmarks(1, 2, 6, 1)
    queries, landmarks = np.zeros((1, 2, 128)), np.zeros((1, 6, 128))
    queries[0, 0, 0], queries[0, 1, 1] = 64.0, 32.0
    landmarks[0, :, 0] = 10.0
    landmarks[0, 5, 0] = 10.0625
    landmarks[0, 3, 1] = 2.0
    return {**inputs, "queries": queries, "landmarks": landmarks}


def low_rank_cases() -> list[Case]:
    """Cases of `shadowkv_low_rank`."""
    stage = Family("shadowkv_low_rank", "H")
    return [
        stage.probe("not-centred", "H", "no mean is subtracted", partial(_decaying, 1, 40, 16, 4, mean=3.0)),
        stage.probe("full-rank", "H", "nothing is lost", partial(_decaying, 1, 12, 16, 12)),
        stage.probe("heads-side-by-side", "G", "one factor over all KV heads together", _across),
        stage.general("H2-T60-d32-r8", "a falling spectrum", partial(_decaying, 2, 60, 32, 8)),
        stage.general("H3-T50-d64-r16", "fewer tokens than channels", partial(_decaying, 3, 50, 64, 16)),
        stage.size("H2-T60-d128-r8", "A", "d = 128", partial(_decaying, 2, 60, 128, 8)),
    ]


def _decaying(H: int, T: int, d: int, rank: int, mean: float = 0.0) -> Inputs:
    rng = generator("low-rank", f"{H},{T},{d}")
    keys = rng.normal(size=(T, H * d)) * np.exp(-np.arange(H * d) / 8)
    mixed = keys @ np.linalg.qr(rng.normal(size=(H * d, H * d)))[0] + mean
    return {"keys": np.moveaxis(mixed.reshape(T, H, d), 1, 0), "rank": rank}


def _across() -> Inputs:
    """Both heads hold the same 4 directions: rank 4 over both is exact, 2 for each is not."""
    inputs = _decaying(1, 30, 16, 4)
    rng = generator("low-rank", "across")
    part = rng.integers(-3, 4, size=(30, 4)) @ rng.integers(-2, 3, size=(4, 16))
    return {**inputs, "keys": np.stack([part, part[:, ::-1]]).astype(np.float64)}


def snap_cases() -> list[Case]:
    """Cases of `rocketkv_snap`."""
    stage = Family("rocketkv_snap", "C")

    def case(name: str, suspect: str, why: str, inputs: Any) -> Case:
        return stage.probe(name, suspect, why, inputs, kind="set")

    return [
        case(
            "window-stays",
            "C",
            "the last queries' own tokens stay, inside the budget",
            partial(_window, 1, 1, 4, 40, 9),
        ),
        case("causal", "C", "a query sees no later token of the window", _later),
        case("pooling", "C", "neighbours of a token that is looked at stay", _peak),
        case("summed-over-group", "C", "votes are summed over queries and heads", _votes),
        case("heads", "G", "votes of a KV head's own queries", partial(_window, 3, 2, 4, 50, 12)),
        case("whole-prompt", "C", "a budget beyond the prompt keeps all", partial(_window, 1, 2, 4, 12, 30)),
        stage.general("H2-G2-T60", "random heads", partial(_window, 2, 2, 8, 60, 20), kind="set"),
        stage.general("kernel-63", "the published pooling", partial(_window, 1, 4, 32, 200, 90, None), kind="set"),
    ]


def _window(H: int, G: int, w: int, T: int, budget: int, kernel: int | None = 5) -> Inputs:
    rng = generator("snap", f"{H},{G},{w},{T}")
    keys = random_qkv(rng, H, G, T, 64)["keys"]
    extra = {} if kernel is None else {"kernel": kernel}
    return {"queries": 2 * rng.normal(size=(H, G, w, 64)), "keys": keys, "budget_tokens": budget, **extra}


def _later() -> Inputs:
    """Query 0 would look at the last token, which it must not see: then nothing of its weight is left for 5 and 6."""
    inputs = _window(1, 1, 2, 12, 4, 1)
    queries, keys = np.zeros((1, 1, 2, 64)), np.zeros((1, 12, 64))
    queries[0, 0, 0, 0], queries[0, 0, 1, 1] = 8.0, 8.0
    keys[0, 11, 0], keys[0, 5, 0], keys[0, 6, 0] = 40.0, 9.0, 8.0
    keys[0, 2, 1], keys[0, 3, 1] = 2.0, 1.5
    return {**inputs, "queries": queries, "keys": keys}


def _peak() -> Inputs:
    """Token 10 is looked at most, token 20 less: with its four neighbours token 10 takes all five places."""
    inputs = _window(1, 1, 1, 30, 6, 5)
    queries, keys = np.zeros((1, 1, 1, 64)), np.zeros((1, 30, 64))
    queries[..., 0] = 8.0
    keys[0, 10, 0], keys[0, 20, 0] = 4.0, 3.0
    return {**inputs, "queries": queries, "keys": keys}


def _votes() -> Inputs:
    """Token 3 has 0.4 of each of four heads; token 7 has 0.9 of one."""
    inputs = _window(1, 4, 1, 10, 2, 1)
    queries, keys = np.zeros((1, 4, 1, 64)), np.zeros((1, 10, 64))
    queries[0, :, 0, 0], queries[0, 3, 0, 1] = 8.0, 8.0
    keys[0, 3, 0], keys[0, 7, 1] = 1.75, 5.0
    return {**inputs, "queries": queries, "keys": keys}


def rocket_cases() -> list[Case]:
    """Cases of `rocketkv_tokens`."""
    stage = Family("rocketkv_tokens", "C")

    def case(name: str, suspect: str, why: str, inputs: Any, **more: Any) -> Case:
        return stage.probe(name, suspect, why, inputs, kind="set", **more)

    return [
        case("channels-of-group", "C", "channels by the mean of |q| over the group", _cancelling, judged=CHANNELS),
        case("minimum-where-negative", "C", "a negative channel takes the chunk's minimum", _downward, judged=TOKENS),
        case("short-last-chunk", "A", "a last chunk of 2: no zero joins its extremes", _short_chunk, judged=TOKENS),
        case("sign-of-group-sum", "C", "one sign per channel for the whole group", _one_sign, judged=TOKENS),
        case("norm-factor", "B", "heads are weighed after the norm that their channels hold", _norms, judged=TOKENS),
        case("heads", "G", "query heads rank their own KV head", partial(_rocket, 3, 2, 40, 64, 4, 16, 9)),
        case("chunks-of-one", "C", "chunks of one token", partial(_rocket, 1, 2, 30, 64, 1, 8, 6)),
        stage.general("H2-G4-T70", "random heads", partial(_rocket, 2, 4, 70, 64, 4, 24, 16), kind="set"),
        stage.general("H1-G7-d80", "d = 80", partial(_rocket, 1, 7, 50, 80, 3, 20, 11), kind="set"),
        stage.size("H2-G8-d128", "A", "d = 128", partial(_rocket, 2, 8, 50, 128, 4, 24, 11), kind="set"),
    ]


def _rocket(H: int, G: int, T: int, d: int, size: int, rank: int, kept: int) -> Inputs:
    rng = generator("rocket", f"{H},{G},{T},{d},{size}")
    inputs = random_qkv(rng, H, G, T, d)
    common = 1.5 * rng.normal(size=(H, 1, d))  # sums over the group far from 0
    queries = inputs["queries"] + common
    return {"queries": queries, "keys": inputs["keys"], "chunk_size": size, "rank": rank, "kept_tokens": kept}


def _downward() -> Inputs:
    """Channel 0 of the query is negative: chunk 2 has the lowest key, chunk 4 the highest."""
    inputs = _rocket(1, 1, 24, 64, 4, 2, 4)
    queries, keys = np.zeros((1, 1, 64)), np.ones((1, 24, 64))
    queries[0, 0, 0], queries[0, 0, 1] = -8.0, 0.5
    keys[0, 9, 0], keys[0, 17, 0] = -4.0, 6.0
    return {**inputs, "queries": queries, "keys": keys}


def _short_chunk() -> Inputs:
    """Keys lie below 0 and the query is positive: a zero that pads the last chunk would make it the best."""
    inputs = _rocket(1, 1, 22, 64, 4, 2, 4)
    queries, keys = np.zeros((1, 1, 64)), np.full((1, 22, 64), -3.0)
    queries[0, 0, 0], queries[0, 0, 1] = 8.0, 4.0
    keys[0, 4:8], keys[0, 20:] = -1.0, -6.0
    return {**inputs, "queries": queries, "keys": keys}


def _cancelling() -> Inputs:
    """sum |q| is 14 and 9 on channels 3 and 5, 4.5 on channel 4; |sum q| is 4, 3 and 4.5."""
    inputs = _rocket(1, 3, 32, 64, 4, 2, 6)
    queries = np.full((1, 3, 64), 0.125)
    queries[0, :, 3], queries[0, :, 4], queries[0, :, 5] = (5.0, -5.0, 4.0), (1.5, 1.5, 1.5), (3.0, 3.0, -3.0)
    return {**inputs, "queries": queries}


def _one_sign() -> Inputs:
    """Channel 0 is +8 and -6: both heads see the maxima. Head 1 likes chunk 5 (maximum -1), not 6 (minimum -5)."""
    inputs = _rocket(1, 2, 32, 64, 4, 2, 8)
    queries, keys = np.zeros((1, 2, 64)), np.ones((1, 32, 64))
    queries[0, :, 0], queries[0, :, 1] = (8.0, -6.0), 0.25
    keys[0, 9, 0], keys[0, 20:24, 0], keys[0, 26, 0] = 6.0, -1.0, -5.0
    return {**inputs, "queries": queries, "keys": keys}


def _norms() -> Inputs:
    """Head 1's norm lies outside the two channels: its logits there are scaled up by 3."""
    inputs = _rocket(1, 2, 24, 64, 4, 2, 4)
    queries, keys = np.zeros((1, 2, 64)), np.zeros((1, 24, 64))
    queries[0, 0, 0], queries[0, 1, 1] = 8.0, 4.0
    queries[0, 1, 2:34] = 1.0
    keys[0, 5, 0], keys[0, 14, 1] = 2.0, 3.5
    return {**inputs, "queries": queries, "keys": keys}
