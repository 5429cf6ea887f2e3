"""Reading a Llama-family GGUF file: float32 weights and its tokenizer. Imports gguf and tokenizers when called."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from proofs_checks.microscope.llama import Array, LlamaConfig, LlamaWeights
from refimpl.checks import ArgumentError

NAMES = {
    "attention_norm": "attn_norm", "q": "attn_q", "k": "attn_k", "v": "attn_v", "o": "attn_output",
    "mlp_norm": "ffn_norm", "gate": "ffn_gate", "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
"""Our names of a layer's tensors and GGUF's."""


def unpermute(weight: Array, heads: int) -> Array:
    """Undo llama.cpp's row order of q and k, which interleaves the two halves of every head: back to half-split.

    >>> unpermute(np.array([[0], [2], [1], [3]], np.float32), 1).ravel().tolist()      # pairs (0, 2), (1, 3)
    [0.0, 1.0, 2.0, 3.0]
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, rows // heads // 2, 2, columns)
    return np.ascontiguousarray(np.swapaxes(halves, 1, 2).reshape(rows, columns))


def config_of(metadata: Mapping[str, Any], tensors: Mapping[str, Array]) -> LlamaConfig:
    """The model's sizes from GGUF metadata; raises ArgumentError for another architecture."""
    architecture = metadata.get("general.architecture")
    if architecture != "llama":
        raise ArgumentError(f"general.architecture: expected llama, got {architecture!r}")
    heads, width = int(metadata["llama.attention.head_count"]), int(metadata["llama.embedding_length"])
    factors = tensors.get("rope_freqs.weight")
    return LlamaConfig(
        layers=int(metadata["llama.block_count"]),
        query_heads=heads,
        kv_heads=int(metadata.get("llama.attention.head_count_kv", heads)),
        head_size=int(metadata.get("llama.attention.key_length", width // heads)),
        rope_theta=float(metadata.get("llama.rope.freq_base", 10000.0)),
        norm_epsilon=float(metadata["llama.attention.layer_norm_rms_epsilon"]),
        rope_factors=None if factors is None else tuple(float(f) for f in factors),
    )


def weights_of(config: LlamaConfig, tensors: Mapping[str, Array]) -> LlamaWeights:
    """The weights in half-split order; without an output matrix the embedding is used for it."""
    layers = []
    for index in range(config.layers):
        layer = {ours: tensors[f"blk.{index}.{theirs}.weight"] for ours, theirs in NAMES.items()}
        layer["q"], layer["k"] = unpermute(layer["q"], config.query_heads), unpermute(layer["k"], config.kv_heads)
        layers.append(layer)
    embedding = tensors["token_embd.weight"]
    return LlamaWeights(
        embedding, tuple(layers), tensors["output_norm.weight"], tensors.get("output.weight", embedding)
    )


def read_gguf(path: Path) -> tuple[LlamaConfig, LlamaWeights, dict[str, Any]]:
    """Config, weights (dequantised) and metadata of a GGUF file. Needs the package gguf (extra `microscope`)."""
    import gguf

    reader = gguf.GGUFReader(path)
    metadata = {name: entry.contents() for name, entry in reader.fields.items() if entry.types}
    tensors = {t.name: _dequantized(gguf, t) for t in reader.tensors}
    config = config_of(metadata, tensors)
    return config, weights_of(config, tensors), metadata


def _dequantized(gguf: Any, tensor: Any) -> Array:
    flat = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
    return flat.reshape([int(n) for n in reversed(tensor.shape)])


def tokenizer_of(metadata: Mapping[str, Any]) -> Any:
    """The byte-level BPE tokenizer that the metadata carries. Needs the package tokenizers (extra `microscope`).

    Raises ArgumentError for another kind of tokenizer: its pre-tokenisation rules are not in the file.
    """
    from tokenizers import (
        Tokenizer,
        decoders,
        models,
        pre_tokenizers,
    )

    kind, rules = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre", "default")
    if kind != "gpt2":
        raise ArgumentError(f"tokenizer.ggml.model: expected gpt2 (byte-level BPE), got {kind!r}")
    words = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE({word: i for i, word in enumerate(words)}, merges))
    before: list[Any] = (
        [pre_tokenizers.Digits(individual_digits=True)] if rules in ("smollm", "refact", "starcoder") else []
    )
    before.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(before)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer
