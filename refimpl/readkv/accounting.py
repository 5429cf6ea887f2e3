"""Storage and logical reads as percentages of a dense 16-bit cache (App. A.1). Exact fractions; bits unless named."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from refimpl.checks import ArgumentError, whole
from refimpl.readkv.budgets import Rate, exact_rate, payload_bits

DENSE_BITS = 16
"""Bits of a dense key or value scalar."""

CALIBRATION_BITS = 16
"""Bits of one calibrated number; keys and values each have a mean and a scale per layer, KV head and channel."""

TABLE_BITS = 2 * (2**9 - 1) * 32
"""Bits of the decoder tables: for keys and for values the 511 float32 centroids of depths 0..8.

The papers do not print this and CALIBRATION_BITS; they are what the printed overheads of Tables 2 and 6 come from.
"""


@dataclass(frozen=True)
class Geometry:
    """A model's cache: layers, KV heads per layer, channels per head."""

    layers: int
    heads: int
    channels: int

    def dense_layer_bits(self, tokens: int) -> int:
        """Bits of one layer's dense keys and values of ``tokens`` tokens: 16 * 2 H d T.

        >>> Geometry(1, 4, 128).dense_layer_bits(8192) // 8 // 2**20                   # MiB, App. G.2
        16
        """
        return DENSE_BITS * 2 * self.heads * self.channels * tokens

    def calibration_layer_bits(self) -> int:
        """Bits of one layer's means and scales of keys and values: 16 * 4 H d.

        >>> Geometry(1, 4, 128).calibration_layer_bits()
        32768
        """
        return CALIBRATION_BITS * 4 * self.heads * self.channels


GEOMETRIES = {
    "Qwen2.5-3B": Geometry(36, 2, 128),
    "Qwen2.5-7B": Geometry(28, 4, 128),
    "Qwen2.5-14B": Geometry(48, 8, 128),
    "Yi-1.5-6B": Geometry(32, 4, 128),
    "DeepSeek-LLM-7B": Geometry(30, 32, 128),
    "Mistral-7B": Geometry(32, 8, 128),
}
"""The papers' models, from their public configurations."""


@dataclass(frozen=True)
class Method:
    """A compressed cache: what it keeps and fetches per scalar, per token and head, and as shared state.

    stored_bits W and read_bits R are per key or value scalar; token_bits is side information per token and KV head
    (a norm, say), kept and always fetched; table_bits is shared by all layers, kept once and fetched at every layer
    call; protected_layers stay dense.
    """

    stored_bits: Rate
    read_bits: Rate
    token_bits: int = 0
    table_bits: int = TABLE_BITS
    protected_layers: int = 0


def readkv_method(*, stored: int, read: Rate, protected_layers: int = 0) -> Method:
    """ReadKV (W, R); the Full Reader and uniform depth are R = W. Raises ArgumentError for R > W.

    >>> readkv_method(stored=8, read=2).read_bits
    2
    """
    stored = whole("stored", stored, low=1)
    protected_layers = whole("protected_layers", protected_layers, low=0)
    if exact_rate("read", read) > stored:
        raise ArgumentError(f"read: expected at most the stored depth {stored}, got {read!r}")
    return Method(stored, read, protected_layers=protected_layers)


def cache_bits(geometry: Geometry, method: Method, tokens: int) -> Fraction:
    """C_t: retained bits of all layers at ``tokens`` cached tokens, shared tables once.

    >>> cache_bits(Geometry(1, 1, 8), Method(8, 2, table_bits=0), 4) == 8 * 2 * 8 * 4 + 16 * 4 * 8
    True
    """
    compressed = _compressed_layers(geometry, method)
    scalars = 2 * geometry.heads * geometry.channels * whole("tokens", tokens, low=0)
    layer = exact_rate("stored_bits", method.stored_bits) * scalars + method.token_bits * geometry.heads * tokens
    layer += geometry.calibration_layer_bits()
    tables = method.table_bits if compressed else 0
    return compressed * layer + tables + method.protected_layers * geometry.dense_layer_bits(tokens)


def cache_percent(geometry: Geometry, method: Method, tokens: int) -> Fraction:
    """Cache%(t) = 100 C_t / C_t^0, the retained capacity relative to dense, in percent.

    Source: ReadKV App. A.1.

    >>> float(round(cache_percent(GEOMETRIES["Qwen2.5-7B"], readkv_method(stored=8, read=2), 2048), 1))
    50.1
    """
    whole("tokens", tokens, low=1)
    return 100 * cache_bits(geometry, method, tokens) / (geometry.layers * geometry.dense_layer_bits(tokens))


def read_bits(geometry: Geometry, method: Method, tokens: int) -> Fraction:
    """I_t: bits that one decode step of the whole model requests at ``tokens`` cached tokens.

    Payload and side information, and per compressed layer one load of its calibration arrays and of the tables.

    >>> read_bits(Geometry(1, 1, 8), Method(8, 2, table_bits=0), 4) == 2 * 2 * 8 * 4 + 16 * 4 * 8
    True
    """
    compressed = _compressed_layers(geometry, method)
    scalars = 2 * geometry.heads * geometry.channels * whole("tokens", tokens, low=0)
    layer = exact_rate("read_bits", method.read_bits) * scalars + method.token_bits * geometry.heads * tokens
    layer += geometry.calibration_layer_bits() + method.table_bits
    return compressed * layer + method.protected_layers * geometry.dense_layer_bits(tokens)


def read_percent(geometry: Geometry, method: Method, lengths: Iterable[int]) -> Fraction:
    """KV reads% = 100 sum_t I_t / sum_t I_t^0 over calls at the given cache lengths, in percent.

    Source: ReadKV App. A.1. Budgets are taken as whole; what rounding them down leaves unread is not subtracted.

    >>> calls = prediction_lengths(2048)
    >>> float(round(read_percent(GEOMETRIES["Qwen2.5-7B"], readkv_method(stored=8, read=2), calls), 1))
    12.9
    """
    lengths = call_lengths(lengths)
    asked = sum((read_bits(geometry, method, length) for length in lengths), Fraction(0))
    return 100 * asked / sum(geometry.layers * geometry.dense_layer_bits(length) for length in lengths)


def call_lengths(lengths: Iterable[int]) -> list[int]:
    """Cache lengths of calls, each at least 1; ArgumentError for none.

    >>> call_lengths(range(1, 4))
    [1, 2, 3]
    """
    checked = [whole("lengths", length, low=1) for length in lengths]
    if not checked:
        raise ArgumentError("lengths: expected at least one call, got none")
    return checked


def prediction_lengths(tokens: int) -> range:
    """Cache lengths of causal prediction over a document: 1..tokens.

    >>> prediction_lengths(3)
    range(1, 4)
    """
    return range(1, whole("tokens", tokens, low=1) + 1)


def generation_lengths(prompt: int, answer: int) -> range:
    """Cache lengths of the compressed calls of a g-token answer after dense prefill: n_0 + 1 .. n_0 + g - 1.

    The prefill chose the first answer token and the last one is not forwarded, so there are g - 1 calls.

    Source: ReadKV App. A.1.

    >>> list(generation_lengths(10, 4))
    [11, 12, 13]
    """
    return range(whole("prompt", prompt, low=0) + 1, prompt + whole("answer", answer, low=1))


def schedule_payload_bits(
    *, key_depths: Sequence[Sequence[int]], value_depths: Sequence[Sequence[int]], channels: int
) -> int:
    """Payload bits of a realised schedule: T per refinement of key_depths [H, d], d per one of value_depths [H, T].

    Source: ReadKV Sec. 3.3.

    >>> schedule_payload_bits(key_depths=[[2, 1]], value_depths=[[0, 0, 4]], channels=2)
    17
    """
    tokens = len(value_depths[0]) if len(value_depths) else 0
    return payload_bits(
        key_refinements=sum(int(t) for row in key_depths for t in row),
        value_refinements=sum(int(t) for row in value_depths for t in row),
        tokens=tokens,
        channels=channels,
    )


def _compressed_layers(geometry: Geometry, method: Method) -> int:
    whole("protected_layers", method.protected_layers, low=0, high=geometry.layers)
    return geometry.layers - method.protected_layers
