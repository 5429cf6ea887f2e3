"""Cases of ReadKV's readers. A full read hides an allocator's faults, so most budgets are 1 to 3 bits per scalar.

A query s * signs / sqrt(d) rotates to s on channel 0 and exactly 0 elsewhere; a query (I + H / sqrt(d)) e_0 rotates to
itself under signs of 1. With these, probes tell a wrong rotation from wrong codes, and both from a wrong allocation.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.readkv_inputs import captured_read, random_cache, random_queries
from refimpl.readkv.reader import readkv_attention

OUTPUT, WEIGHTS, KEYS, VALUES = ("output",), ("weights",), ("key_depths",), ("weights", "value_depths")
DEPTHS = ("key_depths", "value_depths")
WIDE = ("float32", "float64")
MEAN = "one token at depth 0: the calibrated mean, not 0 (AMB-22); the mean is a fixed point of the rotation"
UNROTATED = "one token at depth 0: the output is rotated back, signs last"
HEADS = "query head h reads KV head h // G: one token, the output is its head's mean"
PREFIX = "weights follow from the key prefixes; the query is a fixed point of the rotation"
ROTATED = "the query is rotated like the keys: signs first, then Hadamard over sqrt(d)"
POOLED = "head 1's queries are 4 times head 0's: one budget over both heads (AMB-21)"
ONE_CHANNEL = "one live channel, budget for many: 8 refinements are bought, the rest is unspent (AMB-20)"
THEOREM_2 = "one key bit finds the token, then all value bits go to it: (1, 0, ...) and (8, 0)"
LIGHT = "weights down to e^-14: every token is worth a refinement, also in the square"
STORED = "stored_depth 4: gains and depths end there, the 4 low bits hold garbage (AMB-34)"
UNREAD = "bits beyond the depths that any right reader chooses hold garbage"
SHAPES = (
    (1, 1, 33, 64, 2, 2),
    (2, 3, 40, 128, 3, 1),
    (1, 8, 17, 64, 1, 3),
    (2, 7, 9, 128, 2, 2),
    (3, 4, 50, 64, 4, 4),
)


def fixed_query(d: int, size: float = 1.0) -> Any:
    """A vector [d] that the Hadamard transform without signs maps to itself: size * (e_0 + ones / sqrt(d))."""
    vector = np.full(d, size / np.sqrt(d))
    vector[0] += size
    return vector


def probes(stage: Family, spend: Any) -> list[Case]:
    """Probes of both readers; ``spend(inputs, key_rate, value_rate)`` adds the budgets."""

    def case(name: str, suspect: str, why: str, make: Any, keys: int, values: int, **more: Any) -> Case:
        return stage.probe(name, suspect, why, lambda: spend(make(), keys, values), **more)

    return [
        case("mean-of-values", "D", MEAN, _fixed_mean, 0, 0, judged=OUTPUT),
        case("inverse-rotation", "E", UNROTATED, partial(_means, 1, 1), 0, 0, judged=OUTPUT),
        case("output-heads", "G", HEADS, partial(_means, 2, 3), 0, 0, judged=OUTPUT),
        case("key-prefixes", "D", PREFIX, _fixed_queries, 2, 2, judged=WEIGHTS),
        case("query-rotation", "E", ROTATED, partial(_drawn, "rotation", 1, 1, 9, 16), 2, 2, judged=WEIGHTS),
        case("query-heads", "G", "query heads read their own KV head's keys", _drawn_heads, 2, 2, judged=WEIGHTS),
        case("softmax-scale", "B", "an explicit scale replaces 1/sqrt(d)", _scaled, 2, 2, judged=WEIGHTS),
        case("equal-weights", "B", "a zero query: 8 weights of 1/8", _zero_query, 2, 2, judged=WEIGHTS),
        case(
            "large-logits",
            "B",
            "logits of hundreds: exp needs its maximum subtracted",
            _large,
            8,
            2,
            judged=WEIGHTS,
            dtypes=WIDE,
        ),
        case("group-importance", "C", "squares summed over 4 queries", _drawn_group, 2, 2, judged=KEYS),
        case("one-live-channel", "C", ONE_CHANNEL, _one_channel, 4, 2, judged=KEYS),
        case("value-importance", "C", "squared first-stage weights", _value_tokens, 1, 2, judged=VALUES),
        case("light-tokens", "I", LIGHT, _light_tokens, 8, 8, judged=VALUES),
        case("value-prefixes", "D", "values at their own tokens' depths", _value_tokens, 2, 2, judged=OUTPUT),
    ]


def stored_depth(stage: Family, spend: Any) -> Case:
    """The probe of a store of 4 planes."""
    return stage.probe("stored-depth-4", "A", STORED, lambda: spend(_stored_4(), 2, 2), poison=_low_bits)


def attention_cases() -> list[Case]:
    """Cases of `readkv_attention`."""
    stage = Family("readkv_attention", "C")
    cases = probes(stage, _budgets)
    cases += [
        stage.probe("pooled-keys", "C", POOLED, _pooled_keys, judged=KEYS),
        stage.probe("pooled-values", "C", "head 0 is sharp, head 1 flat: one budget", _pooled_values, judged=VALUES),
        stored_depth(stage, _budgets),
        stage.exact("theorem-2", "C", THEOREM_2, _theorem_2),
        stage.probe("no-budget", "C", "budgets 0: all depths 0", partial(_rate, "none", 2, 3, 8, 16, 0, 0), kind="set"),
        stage.probe(
            "whole-budget", "C", "budgets N W: all depths W", partial(_rate, "all", 2, 3, 9, 16, 8, 8), kind="set"
        ),
        stage.probe("unread-bits", "A", UNREAD, _clear, poison=_beyond_reference, dtypes=WIDE),
        stage.probe("no-tokens", "A", "T = 0 is legal: output 0", partial(_rate, "empty", 2, 3, 0, 64, 2, 0)),
        stage.general(
            "capture-2-2", "real queries on 2,041 real tokens, rates 2 and 2", partial(_captured, 1, 3, 2, 2)
        ),
        stage.general("capture-3-1", "rates 3 and 1", partial(_captured, 2, 5, 3, 1), profile="default"),
        stage.general("capture-1-3", "rates 1 and 3", partial(_captured, 0, 7, 1, 3), profile="default"),
        stage.general("capture-8-8", "the Full Reader", partial(_captured, 3, 1, 8, 8), profile="default"),
    ]
    for H, G, T, d, key_rate, value_rate in SHAPES:
        name, inputs = f"H{H}-G{G}-T{T}-d{d}", partial(_rate, "shape", H, G, T, d, key_rate, value_rate)
        cases.append(stage.general(name, f"random cache at rates {key_rate} and {value_rate}", inputs))
    return cases


def restricted_cases() -> list[Case]:
    """Cases of `readkv_restricted_attention`."""
    stage = Family("readkv_restricted_attention", "C")
    first = "T = 3 at rate 3/2: 3 for the minimum, the pair's step costs 2 and ends buying, 1 is unspent"
    own = "head 1's queries are 100 times head 0's: each head spends its own budget"

    def at(rate: float, make: Any) -> Any:
        return lambda: {**make(), "rate": rate}

    return [
        stage.probe("minimum-depth", "C", "rate 1: every depth is 1", at(1.0, _least), kind="set", judged=DEPTHS),
        *probes(stage, _rated),
        stage.probe("odd-tail", "A", "9 tokens: the last one alone costs 1", at(2.0, _odd), judged=VALUES),
        stage.probe("first-that-does-not-fit", "C", first, at(1.5, partial(_drawn, "fit", 1, 1, 3, 16)), judged=VALUES),
        stage.probe("pairs", "C", "pairs by summed importance", at(2.5, _flat), judged=VALUES),
        stage.illegal("rate-below-1", "C", "rate 1/2 has no room for depth 1: refused", at(0.5, _least)),
        stage.probe("budget-of-its-own", "C", own, at(2.5, partial(_unequal, 100.0)), judged=KEYS),
        stored_depth(stage, _rated),
        stage.probe("no-tokens", "A", "T = 0 is legal: output 0", at(2.0, partial(_drawn, "empty", 2, 3, 0, 16))),
        stage.general("rate-2", "random cache", at(2.0, partial(_drawn, "r2", 2, 3, 41, 64))),
        stage.general("rate-1.25", "a rate that leaves a remainder", at(1.25, partial(_drawn, "r1", 1, 8, 33, 128))),
        stage.general("rate-4", "G = 7", at(4.0, partial(_drawn, "r4", 2, 7, 18, 64))),
        stage.general("capture-2", "real queries on 2,041 real tokens", at(2.0, partial(captured_read, 1, 3))),
        stage.general("capture-2.5", "rate 5/2", at(2.5, partial(captured_read, 2, 6)), profile="default"),
    ]


def _budgets(inputs: Inputs, key_rate: int, value_rate: int) -> Inputs:
    H, T, d = inputs["key_codes"].shape
    return {**inputs, "key_budget": key_rate * H * d, "value_budget": value_rate * H * T}


def _rated(inputs: Inputs, key_rate: int, value_rate: int) -> Inputs:
    return {**inputs, "rate": float(max(key_rate, value_rate, 1))}


def _drawn(name: str, H: int, G: int, T: int, d: int) -> Inputs:
    return {"queries": random_queries(name, H, G, d), **random_cache(name, H, T, d)}


def _rate(name: str, H: int, G: int, T: int, d: int, key_rate: int, value_rate: int) -> Inputs:
    return _budgets(_drawn(name, H, G, T, d), key_rate, value_rate)


def _captured(layer: int, step: int, key_rate: int, value_rate: int) -> Inputs:
    return _budgets(captured_read(layer, step), key_rate, value_rate)


def _fixed_mean() -> Inputs:
    """Values of depth 0 or 1: both halves of a depth-1 prefix are the mean plus a fixed point of the rotation."""
    inputs = _drawn("mean", 1, 1, 1, 16)
    mean = fixed_query(16, 8.0)[None]
    scale = np.full((1, 16), 2.0**-20)  # what a first bit adds where depth 1 is the least is lost beside the mean
    return {
        **inputs,
        "value_mean": mean,
        "value_scale": scale,
        "value_signs": np.ones(16),
        "queries": np.ones((1, 1, 16)),
    }


def _means(H: int, G: int) -> Inputs:
    inputs = _drawn("means", H, G, 1, 16)
    mean = generator("reader", "means").integers(-8, 9, size=(H, 16)).astype(float)
    mean[:, 5] += 16.0 * np.arange(1, H + 1)
    return {**inputs, "value_mean": mean, "value_scale": np.full((H, 16), 2.0**-20)}


def _fixed_queries() -> Inputs:
    inputs = _drawn("prefix", 1, 1, 9, 16)
    return {**inputs, "queries": fixed_query(16, 2.0)[None, None], "key_signs": np.ones(16)}


def _drawn_heads() -> Inputs:
    return _drawn("heads", 2, 3, 9, 16)


def _drawn_group() -> Inputs:
    return _drawn("group", 2, 4, 5, 64)


def _scaled() -> Inputs:
    return {**_drawn("scaled", 1, 2, 9, 16), "softmax_scale": 0.5}


def _zero_query() -> Inputs:
    return {**_drawn("zero", 1, 2, 8, 16), "queries": np.zeros((1, 2, 16))}


def _channel_0(size: float, H: int, T: int, name: str) -> Inputs:
    """Only channel 0 has weight: rotated queries are size * e_0, keys on it +-scale."""
    inputs = _drawn(name, H, 1, T, 16)
    return {
        **inputs,
        "queries": np.broadcast_to(size * inputs["key_signs"] / 4.0, (H, 1, 16)).copy(),
        "key_scale": np.ones((H, 16)),
        "key_mean": np.zeros((H, 16)),
    }


def _large() -> Inputs:
    return _channel_0(2048.0, 1, 9, "large")


def _one_channel() -> Inputs:
    return _channel_0(4.0, 2, 9, "one")


def _value_tokens() -> Inputs:
    return _drawn("values", 2, 3, 40, 16)


def _light_tokens() -> Inputs:
    """Weights fall from 1 to e^-14: keys of channel 0 climb through the leaves."""
    inputs = _channel_0(14.0, 1, 12, "light")
    inputs["key_codes"][0, :, 0] = np.linspace(30, 225, 12).astype(int)
    return inputs


def _stored_4() -> Inputs:
    return {**_drawn("stored", 2, 3, 17, 16), "stored_depth": 4}


def _low_bits(inputs: Inputs) -> Inputs:
    return {**inputs, **{n: inputs[n] ^ np.uint8(15) for n in ("key_codes", "value_codes")}}


def _unequal(factor: float) -> Inputs:
    inputs = _drawn("unequal", 2, 2, 9, 16)
    queries = random_queries("unequal", 2, 2, 16) * np.array([1.0, factor / 2])[:, None, None]
    return {**inputs, "queries": queries, "key_scale": np.ones((2, 16))}


def _pooled_keys() -> Inputs:
    return _budgets(_unequal(4.0), 2, 2)


def _pooled_values() -> Inputs:
    inputs = _channel_0(1.0, 2, 16, "pooled")
    inputs["queries"][0] *= 20.0
    return _budgets(inputs, 8, 2)


def _least() -> Inputs:
    return _drawn("least", 2, 3, 9, 16)


def _flat() -> Inputs:
    """Weights that differ little: a pair's sum is not its heavier token's."""
    inputs = _drawn("pairs", 2, 2, 40, 16)
    return {**inputs, "queries": inputs["queries"] / 16.0}


def _odd() -> Inputs:
    """The last of 9 tokens is the only one that counts."""
    inputs = _channel_0(40.0, 1, 9, "odd")
    inputs["key_codes"][0, :, 0], inputs["key_codes"][0, 8, 0] = 20, 250
    return inputs


def _theorem_2() -> Inputs:
    """Token 0 at +c, token 1 at -c on the live channel; one key refinement, eight value refinements."""
    inputs = _channel_0(100.0, 1, 2, "theorem-2")
    inputs["key_codes"][0, :, 0] = 255, 0
    return {**inputs, "key_budget": 1, "value_budget": 8}


def _clear() -> Inputs:
    return _rate("clear", 1, 2, 12, 16, 2, 2)


def _beyond_reference(inputs: Inputs) -> Inputs:
    """Complement every code bit that the reference does not read."""
    exact: Inputs = {
        n: v.astype(np.float64) if isinstance(v, np.ndarray) and v.dtype.kind == "f" else v for n, v in inputs.items()
    }
    read = readkv_attention(**exact)
    unread_keys = (255 >> read["key_depths"]).astype(np.uint8)[:, None, :]
    unread_values = (255 >> read["value_depths"]).astype(np.uint8)[:, :, None]
    return {
        **inputs,
        "key_codes": inputs["key_codes"] ^ unread_keys,
        "value_codes": inputs["value_codes"] ^ unread_values,
    }
