"""Cases of the dense and merged attention stages."""

from __future__ import annotations

from functools import partial

import numpy as np

from proofs_checks.capture import long_text_slice, needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import sizes, varied
from proofs_checks.judge.cases.inputs import random_qkv

WIDE = ("float32", "float64")
HEAD_MAP = "6 query heads on 3 KV heads whose values are constants: repeated, not tiled"
SENTINEL = "logits -60000 and -60001 weigh .731 and .269; a finite mask sentinel or a half-precision logit loses them"
OUTPUT = ("output",)
MANY_HEADS = "12 KV heads of 17 queries: every head and every query of a group is computed"
WIDTH = "the last channel decides, and every channel comes out: none beyond a fixed width is lost"
LENGTH = "only the last token's value is not 0: no fixed tile or grid ends before it"
SHAPES = ((1, 1, 17, 64), (2, 3, 50, 64), (1, 8, 33, 128), (3, 2, 40, 96), (2, 4, 16, 80), (1, 7, 21, 256))


def attention_cases() -> list[Case]:
    """Cases of `attention`."""
    stage = Family("attention", "B")
    equals, huge = _mean_of_equals, _huge_negative
    cases = [
        stage.probe("head-map", "G", HEAD_MAP, _head_map, judged=("output",)),
        stage.size("head-map-of-3", "G", "2 KV heads of 3 queries", partial(sizes.constant_heads, 2, 3), judged=OUTPUT),
        stage.size("head-map-12-of-17", "G", MANY_HEADS, partial(sizes.constant_heads, 12, 17), judged=OUTPUT),
        *[
            stage.size(f"last-channel-{d}", "A", WIDTH, partial(sizes.last_channel, d), judged=OUTPUT)
            for d in (8, 96, 192, 256, 512)
        ],
        stage.probe("token-count-17", "A", "17 tokens: none lost, no zero lane added", _seventeen, judged=("output",)),
        *[
            stage.size(f"token-count-{T}", "A", LENGTH, partial(sizes.last_token, T), judged=OUTPUT)
            for T in (1, 1025, 70001)
        ],
        stage.exact("no-tokens", "B", "no tokens: output 0, lse -inf, no NaN", _no_tokens),
        stage.probe("mean-of-equals", "B", "a zero query weighs 8 tokens equally", equals, judged=("output",)),
        stage.probe("natural-lse", "B", "8 logits of 0: lse is ln 8 in nats, not 3 in bits", equals, judged=("lse",)),
        stage.probe("logits-of-minus-60000", "B", SENTINEL, huge),
        stage.probe("logits-of-minus-70000", "B", "the same below the range of half precision", _below_half),
        stage.probe("logits-of-plus-60000", "B", "exp without the maximum subtracted overflows", _huge_positive),
        stage.probe("equal-logits-of-200", "B", "all logits 200: exp(200) overflows float32", _equal_logits_200),
        stage.probe("tf32-product", "I", "2049 and 2048 differ in float32, not in TF32", _tf32, dtypes=WIDE),
        stage.probe("tf32-values", "I", "a value of 2049 is no TF32 number", sizes.one_value_2049, dtypes=WIDE),
        stage.probe("float32-weights", "I", "weights are not rounded to half", sizes.uneven_weights, judged=OUTPUT),
        stage.probe("softmax-scale", "B", "an explicit scale replaces 1/sqrt(d)", _explicit_scale),
        *varied.attention_sizes(),
        stage.relation("token-order", "the order of tokens does not matter", partial(_random, 2, 3, 37, 64), _reverse),
        stage.general("capture-needle", "layer 18 of the real 2K needle prompt", partial(needle_slice, 2, 0)),
        stage.general("capture-8k", "a real head on 8K tokens", partial(long_text_slice, 3), profile="default"),
    ]
    for H, G, T, d in SHAPES:
        name, inputs = f"H{H}-G{G}-T{T}-d{d}", partial(_random, H, G, T, d)
        if d & (d - 1):
            cases.append(stage.probe(name, "A", f"d={d} is no power of two: no padded width in the scale", inputs))
        else:
            cases.append(stage.general(name, f"random heads, {G} queries each", inputs))
    return cases


def _explicit_scale() -> Inputs:
    return {**_random(1, 2, 19, 64), "softmax_scale": 0.5}


def _huge_positive() -> Inputs:
    return {**_huge_negative(), "queries": -_huge_negative()["queries"]}


def _random(H: int, G: int, T: int, d: int) -> Inputs:
    return dict(random_qkv(generator("attention", f"{H},{G},{T},{d}"), H, G, T, d, 2.0))


def _no_tokens() -> Inputs:
    empty = np.zeros((2, 0, 64))
    return {"queries": np.ones((2, 3, 64)), "keys": empty, "values": empty}


def _head_map() -> Inputs:
    """Constant values: whatever the weights, the output of KV head h is its constant."""
    values = np.broadcast_to(np.array([1.0, 4.0, -16.0])[:, None, None], (3, 16, 64))
    return {"queries": np.ones((3, 2, 64)), "keys": np.ones((3, 16, 64)), "values": values}


def _seventeen() -> Inputs:
    """Logits of -200 and a last one of 0, value 9: a lost last token gives 1, an added zero lane gives less than 9."""
    queries, keys, values = np.full((1, 2, 64), 5.0), np.full((1, 17, 64), -5.0), np.ones((1, 17, 64))
    keys[:, 16], values[:, 16] = 0.0, 9.0
    return {"queries": queries, "keys": keys, "values": values}


def _mean_of_equals() -> Inputs:
    rng = generator("attention", "mean")
    values = rng.integers(-8, 9, size=(1, 8, 64)).astype(np.float64)
    return {"queries": np.zeros((1, 3, 64)), "keys": rng.integers(-4, 5, size=(1, 8, 64)) / 2.0, "values": values}


def _huge_negative() -> Inputs:
    """z = (480 * 1000 + 8 s) / 8 with the sign of -1: -60000 and -60001 at d = 64."""
    queries, keys, values = np.zeros((1, 1, 64)), np.zeros((1, 2, 64)), np.zeros((1, 2, 64))
    queries[0, 0, :2] = -480.0, -8.0
    keys[0, :, 0] = 1000.0
    keys[0, 1, 1] = 1.0
    values[0, 0], values[0, 1] = 1.0, -2.0
    return {"queries": queries, "keys": keys, "values": values}


def _below_half() -> Inputs:
    inputs = _huge_negative()
    inputs["queries"][..., 0] = -560.0
    return inputs


def _equal_logits_200() -> Inputs:
    rng = generator("attention", "200")
    queries, keys = np.zeros((1, 2, 64)), np.zeros((1, 16, 64))
    queries[..., 0], keys[..., 0] = 16.0, 100.0
    return {"queries": queries, "keys": keys, "values": rng.normal(size=(1, 16, 64))}


def _tf32() -> Inputs:
    """Keys e1 and e2, query (2049, 2048): logits differ by 1/8; TF32 rounds 2049 to an even number."""
    queries, keys, values = np.zeros((1, 1, 64)), np.zeros((1, 2, 64)), np.zeros((1, 2, 64))
    queries[0, 0, :2] = 2049.0, 2048.0
    keys[0, 0, 0] = keys[0, 1, 1] = 1.0
    values[0, 0], values[0, 1] = 1.0, -1.0
    return {"queries": queries, "keys": keys, "values": values}


def _reverse(inputs: Inputs) -> Inputs:
    return {**inputs, "keys": inputs["keys"][:, ::-1], "values": inputs["values"][:, ::-1]}


def merge_cases() -> list[Case]:
    """Cases of `merge_attention`."""
    stage = Family("merge_attention", "B")
    cases = [
        stage.exact("all-empty", "B", "only empty splits: output 0 and lse -inf, no NaN", _all_empty),
        stage.exact("one-empty", "B", "an empty split weighs nothing, whatever its output holds", _one_empty),
        stage.exact("single-split", "B", "one split is its own merge", _single_split, judged=("output",)),
        stage.probe("single-split-lse", "B", "one split keeps its log-mass", _single_split, judged=("lse",)),
        stage.exact("empty-beside-minus-60000", "B", "an empty split is no mass of -50000", sizes.empty_beside_deep),
        stage.probe("which-are-empty", "B", "every set of three splits empty in another head", sizes.empty_in_turn),
        stage.probe("equal-splits", "B", "four equal masses average exactly", _equal_splits, judged=("output",)),
        stage.probe("masses-8-and-2", "B", "weights .99753 : .00247; in base 2 .98462 : .01538", _unequal_masses),
        stage.probe("large-log-masses", "B", "masses near 60000: exp of the mass itself overflows", _large_masses),
        stage.probe("heads-60000-apart", "B", "each head has its own maximum", sizes.far_heads),
        stage.size("last-of-300-splits", "B", "no fixed number of splits", partial(sizes.last_split, 300)),
        stage.relation(
            "mass-shift",
            "adding 16 to every log-mass leaves the output and adds 16 to the lse",
            partial(_random_splits, 4, 2, 2, 64),
            lambda i: {**i, "lses": i["lses"] + 16.0},
            lambda a: {"output": a["output"], "lse": a["lse"] + 16.0},
        ),
    ]
    for S, H, G, d in ((2, 1, 1, 64), (5, 2, 3, 80), (17, 1, 8, 128)):
        inputs = partial(_random_splits, S, H, G, d)
        cases.append(stage.general(f"S{S}-G{G}-d{d}", f"{S} splits of random mass, one of them empty", inputs))
    return cases


def _all_empty() -> Inputs:
    return {"outputs": np.zeros((3, 1, 2, 8)), "lses": np.full((3, 1, 2), -np.inf)}


def _large_masses() -> Inputs:
    return {**_unequal_masses(), "lses": _unequal_masses()["lses"] + 60000.0}


def _one_empty() -> Inputs:
    rng = generator("merge", "one-empty")
    outputs = rng.integers(-9, 10, size=(2, 2, 3, 8)).astype(np.float64)
    outputs[1] = 2.0**100
    lses = np.stack([np.full((2, 3), 4.0), np.full((2, 3), -np.inf)])
    return {"outputs": outputs, "lses": lses}


def _single_split() -> Inputs:
    rng = generator("merge", "single")
    return {"outputs": rng.integers(-9, 10, size=(1, 2, 3, 8)) / 4.0, "lses": np.full((1, 2, 3), 7.0)}


def _unequal_masses() -> Inputs:
    outputs = np.stack([np.full((1, 2, 8), 1.0), np.full((1, 2, 8), -100.0)])
    return {"outputs": outputs, "lses": np.stack([np.full((1, 2), 8.0), np.full((1, 2), 2.0)])}


def _equal_splits() -> Inputs:
    rng = generator("merge", "equal")
    return {"outputs": rng.integers(-9, 10, size=(4, 2, 3, 8)).astype(float), "lses": np.full((4, 2, 3), 2.5)}


def _random_splits(S: int, H: int, G: int, d: int) -> Inputs:
    rng = generator("merge", "random", f"{S}")
    lses = np.round(rng.normal(size=(S, H, G)) * 3 * 64) / 64  # so that adding 16 rounds nothing
    lses[S // 2] = -np.inf
    return {"outputs": 10 + rng.normal(size=(S, H, G, d)), "lses": lses}
