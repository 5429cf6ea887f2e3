"""Inputs of ReadKV's readers that isolate one step of a read.

A query s * signs / sqrt(d) rotates to s on channel 0 and exactly 0 elsewhere; a query (I + H / sqrt(d)) e_0 rotates to
itself under signs of 1. With these, probes tell a wrong rotation from wrong codes, and both from a wrong allocation.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.judge.case import Inputs, generator
from proofs_checks.judge.cases.readkv_inputs import captured_read, random_cache, random_queries


def fixed_query(d: int, size: float = 1.0) -> Any:
    """A vector [d] that the Hadamard transform without signs maps to itself: size * (e_0 + ones / sqrt(d))."""
    vector = np.full(d, size / np.sqrt(d))
    vector[0] += size
    return vector


def budgets(inputs: Inputs, key_rate: int, value_rate: int) -> Inputs:
    """Pooled budgets of the given mean depths."""
    H, T, d = inputs["key_codes"].shape
    return {**inputs, "key_budget": key_rate * H * d, "value_budget": value_rate * H * T}


def rated(inputs: Inputs, key_rate: int, value_rate: int) -> Inputs:
    """One rate for keys and values, at least 1."""
    return {**inputs, "rate": float(max(key_rate, value_rate, 1))}


def drawn(name: str, H: int, G: int, T: int, d: int) -> Inputs:
    """A random cache and queries."""
    return {"queries": random_queries(name, H, G, d), **random_cache(name, H, T, d)}


def rate(name: str, H: int, G: int, T: int, d: int, key_rate: int, value_rate: int) -> Inputs:
    """A random cache read at two mean depths."""
    return budgets(drawn(name, H, G, T, d), key_rate, value_rate)


def captured(layer: int, step: int, key_rate: int, value_rate: int) -> Inputs:
    """A step of the real capture read at two mean depths."""
    return budgets(captured_read(layer, step), key_rate, value_rate)


def fixed_mean() -> Inputs:
    """Values of depth 0 or 1: both halves of a depth-1 prefix are the mean plus a fixed point of the rotation."""
    inputs = drawn("mean", 1, 1, 1, 16)
    mean = fixed_query(16, 8.0)[None]
    scale = np.full((1, 16), 2.0**-20)  # little beside the mean, where depth 1 is the least
    return {
        **inputs,
        "value_mean": mean,
        "value_scale": scale,
        "value_signs": np.ones(16),
        "queries": np.ones((1, 1, 16)),
    }


def means(H: int, G: int) -> Inputs:
    """One token whose value is its head's mean, as good as alone."""
    inputs = drawn("means", H, G, 1, 16)
    mean = generator("reader", "means").integers(-8, 9, size=(H, 16)).astype(float)
    mean[:, 5] += 16.0 * np.arange(1, H + 1)
    return {**inputs, "value_mean": mean, "value_scale": np.full((H, 16), 2.0**-20)}


def fixed_queries() -> Inputs:
    """Nine tokens; the query rotates to itself."""
    inputs = drawn("prefix", 1, 1, 9, 16)
    return {**inputs, "queries": fixed_query(16, 2.0)[None, None], "key_signs": np.ones(16)}


def drawn_heads() -> Inputs:
    """Two KV heads of three queries."""
    return drawn("heads", 2, 3, 9, 16)


def drawn_group() -> Inputs:
    """Four queries whose key importances add up."""
    return drawn("group", 2, 4, 5, 64)


def scaled() -> Inputs:
    """A softmax scale of its own."""
    return {**drawn("scaled", 1, 2, 9, 16), "softmax_scale": 0.5}


def zero_query() -> Inputs:
    """Eight tokens of one weight."""
    return {**drawn("zero", 1, 2, 8, 16), "queries": np.zeros((1, 2, 16))}


def channel_0(size: float, H: int, T: int, name: str) -> Inputs:
    """Only channel 0 has weight: rotated queries are size * e_0, keys on it +-scale."""
    inputs = drawn(name, H, 1, T, 16)
    return {
        **inputs,
        "queries": np.broadcast_to(size * inputs["key_signs"] / 4.0, (H, 1, 16)).copy(),
        "key_scale": np.ones((H, 16)),
        "key_mean": np.zeros((H, 16)),
    }


def large() -> Inputs:
    """Logits of hundreds."""
    return channel_0(2048.0, 1, 9, "large")


def last_token(T: int, size: float) -> Inputs:
    """The last token's logit is far above the others', which are equal: it takes all weight."""
    inputs = channel_0(size, 1, T, "last")
    codes = inputs["key_codes"].copy()
    codes[0, :-1, 0], codes[0, -1, 0] = 0, 255
    return {**inputs, "key_codes": codes}


def one_channel() -> Inputs:
    """Two heads with one live channel each."""
    return channel_0(4.0, 2, 9, "one")


def value_tokens() -> Inputs:
    """Forty tokens of unequal weight."""
    return drawn("values", 2, 3, 40, 16)


def light_tokens() -> Inputs:
    """Weights fall from 1 to e^-14: keys of channel 0 climb through the leaves."""
    inputs = channel_0(14.0, 1, 12, "light")
    inputs["key_codes"][0, :, 0] = np.linspace(30, 225, 12).astype(int)
    return inputs


def stored_4() -> Inputs:
    """Four stored planes."""
    return {**drawn("stored", 2, 3, 17, 16), "stored_depth": 4}


def low_bits(inputs: Inputs) -> Inputs:
    """Garbage in the planes that are not stored."""
    return {**inputs, **{n: inputs[n] ^ np.uint8(15) for n in ("key_codes", "value_codes")}}


def unequal(factor: float) -> Inputs:
    """Head 1's queries are ``factor`` times head 0's; all scales 1."""
    inputs = drawn("unequal", 2, 2, 9, 16)
    queries = random_queries("unequal", 2, 2, 16) * np.array([1.0, factor / 2])[:, None, None]
    return {**inputs, "queries": queries, "key_scale": np.ones((2, 16))}


def pooled_keys() -> Inputs:
    """Unequal heads at rate 2."""
    return budgets(unequal(4.0), 2, 2)


def pooled_values() -> Inputs:
    """A sharp head and a flat one."""
    inputs = channel_0(1.0, 2, 16, "pooled")
    inputs["queries"][0] *= 20.0
    return budgets(inputs, 8, 2)


def least() -> Inputs:
    """Odd tokens, for the lowest rate."""
    return drawn("least", 2, 3, 9, 16)


def flat() -> Inputs:
    """Weights that differ little: a pair's sum is not its heavier token's."""
    inputs = drawn("pairs", 2, 2, 40, 16)
    return {**inputs, "queries": inputs["queries"] / 16.0}


def odd() -> Inputs:
    """The last of 9 tokens is the only one that counts."""
    inputs = channel_0(40.0, 1, 9, "odd")
    inputs["key_codes"][0, :, 0], inputs["key_codes"][0, 8, 0] = 20, 250
    return inputs


def flat_odd() -> Inputs:
    """Weights alike but for the last of 9 tokens, about 1.3 times the others: its square is less than a pair's sum."""
    inputs = channel_0(1.0, 1, 9, "flat-odd")
    inputs["key_codes"][0, :, 0], inputs["key_codes"][0, 8, 0] = 128, 200
    return inputs


def theorem_2() -> Inputs:
    """Token 0 at +c, token 1 at -c on the live channel; one key refinement, eight value refinements."""
    inputs = channel_0(100.0, 1, 2, "theorem-2")
    inputs["key_codes"][0, :, 0] = 255, 0
    return {**inputs, "key_budget": 1, "value_budget": 8}


def even_channels() -> Inputs:
    """The query rotates to +-1 everywhere and scales are 1: 2 bits per scalar are 2 of every channel, in any order."""
    inputs = drawn("even", 1, 1, 12, 16)
    queries = np.zeros((1, 1, 16))
    queries[..., 3] = 4.0
    return {**inputs, "queries": queries, "key_scale": np.ones((1, 16))}


def unread_keys(inputs: Inputs) -> Inputs:
    """Garbage below depth 2 of every key."""
    return {**inputs, "key_codes": inputs["key_codes"] ^ np.uint8(0x3F)}


def unread_values(inputs: Inputs) -> Inputs:
    """A zero query weighs all tokens alike: 2 bits per scalar are 2 of every token, and no key bit is read."""
    return {**inputs, "value_codes": inputs["value_codes"] ^ np.uint8(0x3F), "key_codes": ~inputs["key_codes"]}
