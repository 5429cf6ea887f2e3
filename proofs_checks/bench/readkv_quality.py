"""Output error of the timed readers on the real capture and on synthetic heads, against dense attention in float32."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from proofs_checks.bench.locks import Bench

READERS = (("(8, 2)", 8, 2), ("(8, 4)", 8, 4), ("(4, 2)", 4, 2), ("Full (4, 4)", 4, None))


def _captured(torch: Any, layer: int) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Queries [steps, H, G, d] of one layer, its keys and values [1, H, T, d], and its calibrated state."""
    capture = importlib.import_module("proofs_checks.capture")
    inputs = importlib.import_module("proofs_checks.judge.cases.readkv_inputs")
    slices = [capture.needle_slice(layer, step) for step in range(8)]
    state = {name: value for name, value in inputs.captured_cache(layer).items() if not name.endswith("codes")}

    def put(array: Any, kind: Any) -> Any:
        return torch.tensor(np.asarray(array), device="cuda", dtype=kind)

    queries = put(np.stack([s["queries"] for s in slices]), torch.bfloat16)
    keys, values = (put(slices[0][name][None], torch.float32) for name in ("keys", "values"))
    return queries, keys, values, {name: put(value, torch.float32) for name, value in state.items()}


def _synthetic(torch: Any, size: float) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Normal keys and values of 8,192 tokens; queries times ``size``."""
    draw = torch.randn(2, 1, 4, 8192, 128, device="cuda")
    queries = (size * torch.randn(2, 4, 7, 128, device="cuda")).bfloat16()
    zero, one = torch.zeros(4, 128, device="cuda"), torch.ones(4, 128, device="cuda")
    state = {"key_mean": zero, "key_scale": one, "value_mean": zero, "value_scale": one,
             "key_signs": one[0], "value_signs": one[0]}  # fmt: skip
    return queries, draw[0], draw[1], state


def quality(bench: Bench) -> None:
    """One row per reader and source: relative error of the output, entropy of the exact weights."""
    torch = bench.torch
    cache_module, reader = (importlib.import_module(f"fastimpl.readkv.{m}") for m in ("cache", "reader"))
    sources = {f"capture, layer {layer}": _captured(torch, layer) for layer in range(4)}
    sources |= {f"normal, queries x{size:g}": _synthetic(torch, size) for size in (1.0, 3.0)}
    for name, (queries, keys, values, state) in sources.items():
        N, _, _, d = queries.shape
        logits = torch.einsum("nhgd,xhtd->nhgt", queries.float(), keys) * d**-0.5
        exact = torch.softmax(logits, -1)
        spread = float(-(exact * exact.clamp(min=1e-30).log()).sum(-1).mean())
        wanted = torch.einsum("nhgt,xhtd->nhgd", exact, values)
        for label, stored, rate in READERS:
            cache = cache_module.empty_cache(N, keys.shape[2], state, stored)
            cache.lengths.fill_(keys.shape[2])
            cache_module.encode(cache, keys.expand(N, -1, -1, -1), values.expand(N, -1, -1, -1))
            made = reader.full_reader(queries, cache, d**-0.5) if rate is None else reader.restricted_reader(
                queries, cache, rate, d**-0.5)  # fmt: skip
            error = float((made.run().float() - wanted).norm() / wanted.norm())
            row = {"case": name, "kind": "quality", "name": label, "relative_error": round(error, 4),
                   "entropy_nats": round(spread, 2)}  # fmt: skip
            bench.rows.append(row)
            bench.say(f"{name:20} quality  {label:12} error {error:.4f}, entropy {spread:.2f} nats")
