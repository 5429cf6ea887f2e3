"""`kvproof capture MODEL.gguf OUT.safetensors`: traces of a Llama-family model on the CPU, in the published format."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from proofs_checks.microscope.llama import Array, Llama
from proofs_checks.microscope.needles import Needle, answers, build_needle
from proofs_checks.microscope.trouble import told
from proofs_checks.microscope.writer import CaptureWriter, Trace

CALIBRATION_TOKENS = 1024


def trace_prompt(model: Llama, prompt: Sequence[int], steps: int) -> Trace:
    """Feed all but the last token of a prompt, then decode ``steps`` tokens greedily and watch their queries."""
    model.reset()
    if len(prompt) > 1:
        model.feed(prompt[:-1])
    token, queries, produced = int(prompt[-1]), [], []
    positions = model.cache.tokens + np.arange(steps)
    for _ in range(steps):
        logits = model.feed([token])
        queries.append(np.stack([model.seen[layer][0] for layer in model.watched]))  # [L, query heads, d]
        token = int(np.argmax(logits))
        produced.append(token)
    heads_first = [
        np.stack([np.swapaxes(cached[layer], 0, 1) for layer in model.watched])
        for cached in (model.cache.keys, model.cache.values)
    ]
    return Trace(heads_first[0], heads_first[1], np.stack(queries), positions, produced)


def held_out_moments(model: Llama, tokens: Sequence[int]) -> tuple[Array, Array]:
    """Mean [L, 2, H, d] and covariance [L, 2, H, d, d] of keys and values over a text, fed in fresh pieces."""
    collected: list[list[Array]] = [[], []]
    for start in range(0, len(tokens), CALIBRATION_TOKENS):
        model.reset()
        model.feed(tokens[start : start + CALIBRATION_TOKENS])
        for kind, cached in enumerate((model.cache.keys, model.cache.values)):
            collected[kind].append(np.stack([cached[layer] for layer in model.watched]))  # [L, n, H, d]
    both = np.stack([np.concatenate(kind, axis=1) for kind in collected], axis=1).astype(np.float64)  # [L, 2, n, H, d]
    mean = both.mean(axis=2)
    centred = both - mean[:, :, None]
    covariance = np.einsum("lknhi,lknhj->lkhij", centred, centred, optimize=True) / both.shape[2]
    return mean.astype(np.float32), covariance.astype(np.float32)


def capture_needles(
    model: Llama, tokenizer: Any, haystack: Sequence[int], writer: CaptureWriter, *, tokens: int, count: int, steps: int
) -> list[Needle]:
    """Add a set for every needle prompt whose answer was right; the others are recorded under "refused"."""
    kept = []
    for index in range(count):
        depth = (index + 0.5) / count
        needle = build_needle(haystack, lambda t: tokenizer.encode(t).ids, tokens=tokens, depth=depth, seed=index)
        trace = trace_prompt(model, needle.tokens, steps)
        text = tokenizer.decode(trace.produced)
        if not answers(needle, text):
            refused = {"key": needle.key, "value": needle.value, "depth": depth, "answer": text}
            writer.about.setdefault("refused", []).append(refused)
            continue
        kept.append(needle)
        writer.add(
            f"needle-{index}", trace, model.watched, rope_of(model), carrier_tokens=[list(needle.value_span)],
            answer=text, depth=depth,
        )  # fmt: skip
    return kept


def rope_of(model: Llama) -> dict[str, Any] | None:
    """The manifest's account of the rotation; None where frequencies were rescaled, which the format cannot say."""
    if model.config.rope_factors is not None:
        return None
    return {"theta": model.config.rope_theta, "pairing": "half-split"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("model", type=Path, help="GGUF file of a Llama-family model")
    parser.add_argument("out", type=Path, help=".safetensors file to write; its manifest is written beside it")
    parser.add_argument("--text", type=Path, required=True, help="text file: the prompt, and the haystack of needles")
    parser.add_argument("--tokens", type=int, default=2048, help="length of every prompt (default 2048)")
    parser.add_argument("--steps", type=int, default=12, help="decode steps that are captured (default 12)")
    parser.add_argument("--layers", help="comma-separated layers (default: four spread evenly)")
    parser.add_argument("--needles", type=int, default=0, help="needle prompts; those answered wrongly are refused")
    parser.add_argument("--calibration", type=Path, help="another text, for held-out moments of keys and values")
    parser.add_argument("--licence", default="unknown", help="the model's licence, for the manifest")


def run(args: argparse.Namespace) -> int:
    """Capture; 0 if at least one set was written, 1 if every needle was refused, 3 if the model cannot be used."""
    try:
        from proofs_checks.microscope.gguf_model import read_gguf, tokenizer_of

        config, weights, metadata = read_gguf(args.model)
        tokenizer = tokenizer_of(metadata)
        text = tokenizer.encode(args.text.read_text(encoding="utf-8")).ids
    except (ImportError, OSError, ValueError, KeyError) as error:
        print(f"kvproof capture: {told(error)}", file=sys.stderr)
        return 3
    evenly = np.linspace(0, config.layers - 1, min(4, config.layers)).astype(int).tolist()
    layers = [int(i) for i in args.layers.split(",")] if args.layers else evenly
    model = Llama(config, weights, layers)
    writer = CaptureWriter({"model": str(metadata.get("general.name", args.model.stem)), "model_license": args.licence,
                     "text": args.text.name, "synthetic": False})  # fmt: skip
    if args.calibration:
        calibration = tokenizer.encode(args.calibration.read_text(encoding="utf-8")).ids
        writer.add_moments(*held_out_moments(model, calibration[: 4 * CALIBRATION_TOKENS]))
    if args.needles:
        capture_needles(model, tokenizer, text, writer, tokens=args.tokens, count=args.needles, steps=args.steps)
    else:
        writer.add("text", trace_prompt(model, text[: args.tokens], args.steps), layers, rope_of(model))
    for refused in writer.about.get("refused", []):
        print(f"refused: {refused['key']} at depth {refused['depth']:.2f}: {refused['answer']!r}", file=sys.stderr)
    if not writer.sets:
        print("kvproof capture: no needle was answered rightly; nothing written", file=sys.stderr)
        return 1
    writer.write(args.out)
    print(f"{args.out}: {len(writer.sets)} sets, layers {', '.join(map(str, layers))}")
    return 0
