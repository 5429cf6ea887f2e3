"""A Llama decoder in float32 NumPy that shows every query, key and value as attention consumed them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

QUERY_BLOCK = 256
"""Queries of a prefill that attend together; bounds the score matrix."""
TINY = np.float32(1e-30)
"""Attention weights below this are 0: they vanish beside the largest weight, which is 1 before normalising."""


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes and constants of a Llama-family model."""

    layers: int
    query_heads: int
    kv_heads: int
    head_size: int
    rope_theta: float
    norm_epsilon: float
    rope_factors: tuple[float, ...] | None = None
    """Divisors of the rotary frequencies [d/2] of models with extended context; None for plain rotary embedding."""

    @property
    def group(self) -> int:
        """Query heads per KV head."""
        return self.query_heads // self.kv_heads


@dataclass(frozen=True)
class LlamaWeights:
    """Weight matrices as [out, in]; keys of a layer: attention_norm, q, k, v, o, mlp_norm, gate, up, down."""

    embedding: Array
    layers: tuple[dict[str, Array], ...]
    norm: Array
    output: Array


class KVCache:
    """Keys and values [T, kv_heads, d] of every layer, rotated and growing."""

    def __init__(self, config: LlamaConfig) -> None:
        empty = np.zeros((0, config.kv_heads, config.head_size), dtype=np.float32)
        self.keys = [empty] * config.layers
        self.values = [empty] * config.layers

    @property
    def tokens(self) -> int:
        """How many tokens are cached."""
        return len(self.keys[0])

    def append(self, layer: int, keys: Array, values: Array) -> None:
        """Add keys and values [n, kv_heads, d] of one layer."""
        self.keys[layer] = np.concatenate([self.keys[layer], keys])
        self.values[layer] = np.concatenate([self.values[layer], values])


def rms_norm(x: Array, weight: Array, epsilon: float) -> Array:
    """x / sqrt(mean x^2 + epsilon) times the weight, over the last axis.

    >>> rms_norm(np.array([[3.0, 3.0]], np.float32), np.array([1.0, 2.0], np.float32), 0.0).tolist()
    [[1.0, 2.0]]
    """
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + np.float32(epsilon)) * weight


def rotary(x: Array, positions: Any, config: LlamaConfig) -> Array:
    """Rotary embedding of x [n, heads, d] at positions [n], half-split pairing."""
    d = config.head_size
    frequency = config.rope_theta ** (-2 * np.arange(d // 2) / d)
    if config.rope_factors is not None:
        frequency = frequency / np.asarray(config.rope_factors)
    angle = np.asarray(positions)[:, None, None] * frequency  # [n, 1, d/2], float64 until here
    cos, sin = np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
    first, second = x[..., : d // 2], x[..., d // 2 :]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def causal_attention(queries: Array, keys: Array, values: Array) -> Array:
    """Attention of the last n tokens of a cache: queries [n, heads, d], keys and values [T, kv_heads, d] -> as queries.

    Query i sees the first T - n + i + 1 tokens; query head h reads KV head h // G (AMB-15).
    """
    n, heads, d = queries.shape
    T, kv_heads = keys.shape[:2]
    group = heads // kv_heads
    result = np.empty((n, heads, d), dtype=np.float32)
    for head in range(kv_heads):
        own = slice(head * group, (head + 1) * group)
        shared_keys = np.ascontiguousarray(keys[:, head].T) / np.float32(np.sqrt(d))  # [d, T]
        shared_values = np.ascontiguousarray(values[:, head])  # [T, d]
        for start in range(0, n, QUERY_BLOCK):
            stop = min(start + QUERY_BLOCK, n)
            seen = T - n + stop
            logits = (queries[start:stop, own].reshape(-1, d) @ shared_keys[:, :seen]).reshape(
                stop - start, group, seen
            )
            future = np.arange(seen) > (T - n + np.arange(start, stop))[:, None]
            logits = np.where(future[:, None], np.float32(-np.inf), logits)
            weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
            weights[weights < TINY] = 0  # subnormal weights slow every product down and change no bit of the output
            weights /= weights.sum(axis=-1, keepdims=True)
            mixed = weights.reshape(-1, seen) @ shared_values[:seen]
            result[start:stop, own] = mixed.reshape(stop - start, group, d)
    return result


class Llama:
    """The model: feed tokens, get the next token's logits, and read the queries of the layers that are watched."""

    def __init__(self, config: LlamaConfig, weights: LlamaWeights, watched: Iterable[int] = ()) -> None:
        self.config, self.weights, self.watched = config, weights, tuple(watched)
        self.cache = KVCache(config)
        self.seen: dict[int, Array] = {}
        """Per watched layer the rotated queries [n, query_heads, d] of the last `feed`."""

    def reset(self) -> None:
        """Forget the sequence."""
        self.cache, self.seen = KVCache(self.config), {}

    def feed(self, tokens: Any) -> Array:
        """Run tokens [n] after those already fed and return the logits [vocabulary] behind the last of them."""
        config, eps = self.config, self.config.norm_epsilon
        positions = self.cache.tokens + np.arange(len(tokens))
        x = self.weights.embedding[np.asarray(tokens)]
        for index, layer in enumerate(self.weights.layers):
            h = rms_norm(x, layer["attention_norm"], eps)
            queries = rotary((h @ layer["q"].T).reshape(len(h), config.query_heads, -1), positions, config)
            keys = rotary((h @ layer["k"].T).reshape(len(h), config.kv_heads, -1), positions, config)
            self.cache.append(index, keys, (h @ layer["v"].T).reshape(len(h), config.kv_heads, -1))
            if index in self.watched:
                self.seen[index] = queries
            attended = causal_attention(queries, self.cache.keys[index], self.cache.values[index])
            x = x + attended.reshape(len(h), -1) @ layer["o"].T
            h = rms_norm(x, layer["mlp_norm"], eps)
            gate = h @ layer["gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (h @ layer["up"].T)) @ layer["down"].T
        return rms_norm(x[-1], self.weights.norm, eps) @ self.weights.output.T
