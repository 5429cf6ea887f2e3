"""Cases of sparse attention steps: SparQ, SparQ on the nested code, Loki."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import random_qkv
from proofs_checks.judge.cases.readkv_inputs import random_cache, random_queries
from refimpl.baselines.shared_basis import covariance_basis

OUTPUT, MASS, TOKENS, CHANNELS = ("output",), ("mass",), ("tokens",), ("channels",)
MEAN = "the mean of all values stands for the tokens left out, the chosen ones included in it"


def sparq_cases() -> list[Case]:
    """Cases of `sparq_attention`."""
    stage = Family("sparq_attention", "C")
    rankings = "a loud head outvotes two others by scores, not by softmax weights"
    cases = [
        stage.probe("channels-of-group", "C", "channels by the sum of |q| over the group", _group, judged=CHANNELS),
        stage.probe("negative-channels", "C", "a large negative channel counts", _negative, judged=CHANNELS),
        stage.probe("norm-factor", "B", "the probe's logits are scaled by the norm that it holds", _flat, judged=MASS),
        stage.probe(
            "current-token", "C", "the last token is attended, however low it scores", _low_last, judged=TOKENS
        ),
        stage.probe("ranking-scores", "C", rankings, partial(_loud, "scores"), judged=TOKENS),
        stage.probe("ranking-weights", "C", rankings, partial(_loud, "weights"), judged=TOKENS),
        stage.probe("local-tokens", "C", "recent tokens before the current one stay", _local, judged=TOKENS),
        stage.probe("mean-of-all", "B", MEAN, _mean, judged=OUTPUT),
        stage.probe(
            "everything", "B", "all channels, all tokens: attention itself", partial(_random, 2, 2, 9, 64, 64, 9)
        ),
        stage.probe("zero-query", "B", "a zero query: every weight 1/T, no 0/0", _zero, judged=("output", "mass")),
        stage.probe("softmax-scale", "B", "an explicit scale", partial(_random, 1, 2, 19, 64, 8, 5, softmax_scale=0.5)),
        stage.probe("one-token", "B", "only the current token", partial(_random, 2, 2, 1, 64, 8, 4), judged=OUTPUT),
        stage.probe("heads", "G", "query heads probe their own KV head", partial(_random, 3, 2, 24, 64, 12, 4)),
        stage.general("H2-G4-T50-d128", "random heads", partial(_random, 2, 4, 50, 128, 32, 12)),
        stage.general("H1-G7-T33-d80", "seven query heads, d = 80", partial(_random, 1, 7, 33, 80, 16, 6)),
        stage.general("capture-needle", "the real needle prompt at r = 16, k = 128", _needle),
    ]
    for ranking in ("scores", "weights"):
        inputs = partial(_random, 2, 3, 40, 64, 8, 6, ranking=ranking)
        cases.append(stage.general(f"G3-{ranking}", f"tokens ranked by {ranking}", inputs))
    return cases


def _random(H: int, G: int, T: int, d: int, rank: int, kept: int, **more: Any) -> Inputs:
    rng = generator("sparq", f"{H},{G},{T},{d},{rank},{kept}")
    return {**random_qkv(rng, H, G, T, d, 1.5), "rank": rank, "kept_tokens": kept, **more}


def _group() -> Inputs:
    """Channel 0 is the largest of one head; channels 1 and 2 are larger over the group, 2 with signs that cancel."""
    inputs = _random(1, 3, 12, 64, 2, 4)
    queries = np.full((1, 3, 64), 0.25)
    queries[0, 0, 0], queries[0, :, 1], queries[0, :, 2] = 4.0, 2.0, (-3.0, 3.0, -3.0)
    return {**inputs, "queries": queries}


def _negative() -> Inputs:
    inputs = _random(1, 1, 12, 64, 2, 4)
    queries = np.full((1, 1, 64), 0.5)
    queries[0, 0, 7], queries[0, 0, 9] = -4.0, -2.0
    return {**inputs, "queries": queries}


def _flat() -> Inputs:
    """All channels of the query alike: the probe holds a quarter of the norm, so its logits are doubled."""
    inputs = _random(1, 2, 16, 64, 16, 5)
    keys = np.zeros((1, 16, 64))
    keys[0, :, :] = np.arange(16.0)[:, None] / 8
    queries = np.full((1, 2, 64), 0.25)
    queries[..., :16] += 1 / 64
    return {**inputs, "queries": queries, "keys": keys}


def _low_last() -> Inputs:
    inputs = _random(1, 2, 20, 64, 16, 5)
    keys = inputs["keys"].copy()
    keys[:, -1] = -4 * inputs["queries"][0].sum(axis=0)
    return {**inputs, "keys": keys}


def _loud(ranking: str) -> Inputs:
    """Head 0's logits of tokens 0..3 are 60, 59, 0, 0; heads 1 and 2 give tokens 2 and 3 the logits 8 and 7."""
    inputs = _random(1, 3, 8, 64, 3, 2)
    queries, keys = np.zeros((1, 3, 64)), np.zeros((1, 8, 64))
    queries[0, 0, 0], queries[0, 1, 1], queries[0, 2, 2] = 8.0, 8.0, 8.0
    keys[0, 0, 0], keys[0, 1, 0] = 60.0, 59.0
    keys[0, 2, 1:3], keys[0, 3, 1:3] = 8.0, 7.0
    return {**inputs, "queries": queries, "keys": keys, "ranking": ranking}


def _local() -> Inputs:
    inputs = _random(1, 2, 20, 64, 16, 6)
    keys = inputs["keys"].copy()
    keys[:, -4:] = -3 * inputs["queries"][0].sum(axis=0)
    return {**inputs, "keys": keys, "local_tokens": 3}


def _mean() -> Inputs:
    """A zero query: 3 of 16 tokens are chosen and hold 3/16, the rest is the mean of all."""
    inputs = _random(1, 1, 16, 64, 8, 2)
    return {**inputs, "queries": np.zeros((1, 1, 64))}


def _zero() -> Inputs:
    inputs = _random(1, 2, 16, 64, 8, 3)
    return {**inputs, "queries": np.zeros((1, 2, 64))}


def _needle() -> Inputs:
    return {**needle_slice(2, 0), "rank": 16, "kept_tokens": 128}


def nested_cases() -> list[Case]:
    """Cases of `sparq_nested_attention`."""
    stage = Family("sparq_nested_attention", "D")
    whole = "all channels and tokens: attention on the depth-8 code"
    return [
        stage.probe("inverse-rotation", "E", "the output is rotated back, signs last", _one_coded),
        stage.probe("whole-tokens", "D", whole, partial(_coded, 1, 2, 7, 64, 64, 7), judged=OUTPUT),
        stage.probe("probe-of-two-bits", "D", "the probe decodes two bits", partial(_coded, 1, 1, 20, 64, 16, 5)),
        stage.probe("heads", "G", "query heads read their own KV head", partial(_coded, 3, 2, 18, 64, 16, 4)),
        stage.general("H2-G3-T40-d64", "random codes", partial(_coded, 2, 3, 40, 64, 16, 8)),
        stage.general("H1-G8-T33-d128", "the papers' rank", partial(_coded, 1, 8, 33, 128, 32, 10)),
        stage.general("weights", "ranked by weights", partial(_coded, 2, 3, 30, 64, 16, 6, ranking="weights")),
    ]


def _coded(H: int, G: int, T: int, d: int, rank: int, kept: int, **more: Any) -> Inputs:
    name = f"nested-{rank}-{kept}"
    queries = random_queries(name, H, G, d, 0.5)
    return {"queries": queries, **random_cache(name, H, T, d), "rank": rank, "kept_tokens": kept, **more}


def _one_coded() -> Inputs:
    """One token, whose value has no mean and needs no more than two bits."""
    inputs = _coded(1, 1, 1, 16, 4, 0)
    return {**inputs, "value_codes": inputs["value_codes"] & 0xC0, "value_mean": 0 * inputs["value_mean"]}


def loki_cases() -> list[Case]:
    """Cases of `loki_attention`."""
    stage = Family("loki_attention", "C")
    own = "query heads of a group choose their own tokens"
    return [
        stage.probe("exact-on-kept", "B", "all tokens kept: attention is exact", partial(_loki, 1, 1, 6, 64, 4, 6)),
        stage.probe("full-rank", "C", "all directions: the exact logits rank", partial(_loki, 2, 1, 20, 64, 64, 5)),
        stage.probe("leading-columns", "H", "directions are columns, the first r", partial(_loki, 1, 1, 30, 64, 8, 6)),
        stage.probe("per-query-head", "G", own, partial(_loki, 1, 4, 24, 64, 16, 3), judged=TOKENS),
        stage.probe("no-mean", "C", "no mean is subtracted: it moves every score alike per query only", _shifted),
        stage.probe("softmax-scale", "B", "an explicit scale", partial(_loki, 1, 2, 14, 64, 16, 5, softmax_scale=0.5)),
        stage.general("H2-G3-T40-d64", "random heads", partial(_loki, 2, 3, 40, 64, 16, 10)),
        stage.general("H1-G8-T33-d80", "d = 80", partial(_loki, 1, 8, 33, 80, 20, 8)),
        stage.size("H2-G7-T33-d128", "A", "d = 128", partial(_loki, 2, 7, 33, 128, 32, 8)),
    ]


def _loki(H: int, G: int, T: int, d: int, rank: int, kept: int, **more: Any) -> Inputs:
    rng = generator("loki", f"{H},{G},{T},{d},{rank},{kept}")
    inputs = random_qkv(rng, H, G, T, d, 1.5)
    centred = inputs["keys"] - inputs["keys"].mean(axis=1, keepdims=True)
    covariance = np.swapaxes(centred, 1, 2) @ centred + np.eye(d)
    components = covariance_basis(mean=np.zeros((H, d)), covariance=covariance, rank=d)["basis"]
    return {**inputs, "components": components, "rank": rank, "kept_tokens": kept, **more}


def _shifted() -> Inputs:
    inputs = _loki(1, 2, 20, 64, 16, 5)
    return {**inputs, "keys": inputs["keys"] + 2.0}
