"""Wrong attention and merging: head maps, log-sum-exp bases, empty sets, tails."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import attention, log_sum_exp, merge_attention

A = "attention"


def tf32_rounded(x: Any) -> Any:
    """Keep 10 fraction bits, as a tensor core does with float32 operands."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits + 0x1000) & np.uint32(0xFFFFE000)).view(np.float32).astype(np.float64)


def scale_or_default(queries: Any, given: float | None) -> float:
    """The softmax scale that was given, else 1 / sqrt(d)."""
    return float(given if given is not None else 1 / np.sqrt(queries.shape[-1]))


@mutant("attention-heads-tiled", A, "G", "query head h reads KV head h mod H")
def tiled(*, queries: Any, keys: Any, values: Any) -> Any:
    """Tiled instead of repeated."""
    heads, group, _ = queries.shape
    order = np.tile(np.arange(heads), group)
    flat = attention(queries=queries.reshape(heads * group, 1, -1), keys=keys[order], values=values[order])
    return {"output": flat["output"].reshape(queries.shape), "lse": flat["lse"].reshape(heads, group)}


@mutant("attention-heads-first-only", A, "G", "every query head reads KV head 0")
def first_head(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for one KV head only."""
    heads = np.zeros(len(keys), dtype=int)
    return attention(queries=queries, keys=keys[heads], values=values[heads])


@mutant("attention-group-size-as-stride", A, "G", "the group's size is used as the KV stride: head min(h * G, H - 1)")
def strided_heads(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for G = 1."""
    heads = np.minimum(np.arange(len(keys)) * queries.shape[1], len(keys) - 1)
    return attention(queries=queries, keys=keys[heads], values=values[heads])


@mutant("attention-lse-in-bits", A, "B", "the lse is reported in base 2")
def bits(*, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None) -> Any:
    """The output is right."""
    state = attention(queries=queries, keys=keys, values=values, softmax_scale=softmax_scale)
    return {"output": state["output"], "lse": state["lse"] / np.log(2)}


@mutant("attention-base2-exponent", A, "B", "2^z where e^z is meant")
def base2(*, queries: Any, keys: Any, values: Any) -> Any:
    """log2(e) forgotten."""
    return attention(
        queries=queries, keys=keys, values=values, softmax_scale=scale_or_default(queries, None) * np.log(2)
    )


@mutant("attention-no-maximum", A, "B", "exp of the logits without their maximum subtracted, in float32")
def no_maximum(*, queries: Any, keys: Any, values: Any) -> Any:
    """Overflows at logits of 89."""
    logits = (scale_or_default(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)).astype(np.float32)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weights = np.exp(logits)
        total = weights.sum(axis=-1)
        output = np.einsum("hgt,htd->hgd", weights, values) / np.where(total > 0, total, 1)[..., None]
        return {"output": output, "lse": np.log(total)}


@mutant("attention-finite-sentinel", A, "B", "the running maximum starts at -5e4, so smaller logits vanish")
def sentinel(*, queries: Any, keys: Any, values: Any) -> Any:
    """B4: real logits lie below the sentinel."""
    logits = scale_or_default(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)
    top = np.maximum(logits.max(axis=-1, keepdims=True, initial=-5e4), -5e4)
    weights = np.exp(logits - top)
    total = weights.sum(axis=-1)
    with np.errstate(divide="ignore"):
        lse = np.log(total) + top[..., 0]
    output = np.einsum("hgt,htd->hgd", weights, values) / np.where(total > 0, total, 1)[..., None]
    return {"output": output, "lse": np.where(total > 0, lse, -np.inf)}


@mutant("attention-half-logits", A, "B", "logits are kept in float16")
def half_logits(*, queries: Any, keys: Any, values: Any) -> Any:
    """Loses everything beyond 65504 and three digits below."""
    logits = scale_or_default(queries, None) * np.einsum("hgd,htd->hgt", queries, keys)
    with np.errstate(over="ignore"):
        logits = logits.astype(np.float16).astype(np.float64)
    lse = log_sum_exp(logits)
    weights = np.exp(logits - np.where(np.isneginf(lse), 0, lse)[..., None])
    return {"output": np.einsum("hgt,htd->hgd", weights, values), "lse": lse}


@mutant("attention-tf32", A, "I", "the float32 product of queries and keys runs in TF32")
def tf32(*, queries: Any, keys: Any, values: Any) -> Any:
    """I1: the default of a framework's dot."""
    return attention(queries=tf32_rounded(queries), keys=tf32_rounded(keys), values=values)


@mutant("attention-padded-scale", A, "A", "the scale comes from the head size padded to a power of two")
def padded_scale(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for powers of two."""
    width = 2 ** int(np.ceil(np.log2(queries.shape[-1])))
    return attention(queries=queries, keys=keys, values=values, softmax_scale=1 / np.sqrt(width))


@mutant("attention-scale-ignored", A, "B", "an explicit softmax scale is ignored")
def scale_ignored(*, queries: Any, keys: Any, values: Any, softmax_scale: float | None = None) -> Any:
    """Right for the default."""
    return attention(queries=queries, keys=keys, values=values)


@mutant("attention-padded-tokens", A, "A", "tokens are padded to a multiple of 8 with zeros that are not masked")
def padded_tokens(*, queries: Any, keys: Any, values: Any) -> Any:
    """Right for multiples of 8."""
    pad = -keys.shape[1] % 8
    widths = ((0, 0), (0, pad), (0, 0))
    return attention(queries=queries, keys=np.pad(keys, widths), values=np.pad(values, widths))


@mutant("attention-last-token-lost", A, "A", "the last token is left out where T is odd")
def last_lost(*, queries: Any, keys: Any, values: Any) -> Any:
    """Vector width 2."""
    even = keys.shape[1] // 2 * 2
    return attention(queries=queries, keys=keys[:, :even], values=values[:, :even])


@mutant("attention-empty-is-nan", A, "B", "no tokens give 0/0")
def empty_nan(*, queries: Any, keys: Any, values: Any) -> Any:
    """No guard on an empty sum."""
    if keys.shape[1] == 0:
        return {"output": np.full(queries.shape, np.nan), "lse": np.full(queries.shape[:2], -np.inf)}
    return attention(queries=queries, keys=keys, values=values)


M = "merge_attention"


@mutant("merge-base2", M, "B", "log-masses in nats are merged as if in bits")
def merge_base2(*, outputs: Any, lses: Any) -> Any:
    """B3."""
    merged = merge_attention(outputs=outputs, lses=lses * np.log(2))
    return {"output": merged["output"], "lse": merged["lse"] / np.log(2)}


@mutant("merge-equal-weights", M, "B", "splits are averaged without their masses")
def merge_mean(*, outputs: Any, lses: Any) -> Any:
    """Right for equal masses."""
    return {"output": outputs.mean(axis=0), "lse": log_sum_exp(np.moveaxis(lses, 0, -1))}


@mutant("merge-empty-is-nan", M, "B", "-inf minus -inf where every split is empty")
def merge_nan(*, outputs: Any, lses: Any) -> Any:
    """B1."""
    with np.errstate(invalid="ignore", divide="ignore"):
        weights = np.exp(lses - lses.max(axis=0))
        total = weights.sum(axis=0)
        return {
            "output": (weights[..., None] * outputs).sum(axis=0) / total[..., None],
            "lse": np.log(total) + lses.max(axis=0),
        }


@mutant("merge-empty-takes-all", M, "B", "an empty split's -inf is read as +inf: it takes all weight")
def merge_plus_inf(*, outputs: Any, lses: Any) -> Any:
    """B2."""
    flipped = np.where(np.isneginf(lses), 1e30, lses)
    return merge_attention(outputs=outputs, lses=flipped)


@mutant("merge-no-maximum", M, "B", "exp of log-masses without their maximum subtracted")
def merge_no_max(*, outputs: Any, lses: Any) -> Any:
    """Overflows for masses above 88 nats."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        weights = np.exp(lses.astype(np.float32))
        total = weights.sum(axis=0)
        output = (weights[..., None] * outputs).sum(axis=0) / np.where(total > 0, total, 1)[..., None]
        return {"output": output, "lse": np.log(total)}


@mutant("merge-empty-output-counts", M, "B", "the output of an empty split is multiplied in: 0 times whatever it holds")
def merge_counts_empty(*, outputs: Any, lses: Any) -> Any:
    """Adds a small weight instead of none."""
    return merge_attention(outputs=outputs, lses=np.maximum(lses, lses.max(axis=0) - 40.0))


@mutant("merge-rounded-partials", M, "B", "partials are rounded to bf16 before merging")
def merge_bf16(*, outputs: Any, lses: Any) -> Any:
    """B7."""
    from proofs_checks.numbers import round_bfloat16

    with np.errstate(over="ignore"):
        return merge_attention(outputs=round_bfloat16(outputs), lses=lses)


@mutant("merge-first-two", M, "B", "only the first two splits are merged")
def merge_two(*, outputs: Any, lses: Any) -> Any:
    """A fixed split count."""
    return merge_attention(outputs=outputs[:2], lses=lses[:2])
