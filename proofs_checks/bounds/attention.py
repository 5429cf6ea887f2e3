"""Bounds of the attention stages, per element of output and lse."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import (
    argument_bound,
    gamma,
    logit_bound,
    lse_bound,
    mean_bound,
    normaliser_bound,
    rounded,
    times,
)
from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp, scale_of, tokens_of_pages
from refimpl.checks import FloatArray
from refimpl.paging import gather_sequence

Bounds = dict[str, FloatArray]


def one_head(
    queries: FloatArray, keys: FloatArray, values: FloatArray, scale: float, precision: Precision
) -> tuple[FloatArray, FloatArray]:
    """Bounds of output [G, d] and lse [G] of one KV head: queries [G, d], keys and values [T, d]."""
    logits = scale * (queries @ keys.T)  # [G, T]
    error = logit_bound(queries, keys, scale, precision.roundoff)
    return mean_bound(logits, error, values, precision), lse_bound(logits, error, precision.roundoff)


def attention_bound(inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision) -> Bounds:
    """`attention`: every KV head over all its tokens."""
    every = np.arange(inputs["keys"].shape[1])
    return _per_head(inputs, reference, [every] * len(inputs["keys"]), precision)


def sparse_attention_bound(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision
) -> Bounds:
    """`sparse_attention`: every KV head over the tokens of its pages."""
    tokens = inputs["keys"].shape[1]
    chosen = [tokens_of_pages(row, int(inputs["page_size"]), tokens) for row in inputs["pages"]]
    return _per_head(inputs, reference, chosen, precision)


def _per_head(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], chosen: list[Any], precision: Precision
) -> Bounds:
    output, lse = np.zeros(reference["output"].shape), np.zeros(reference["output"].shape[:2])
    scale = scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1])
    for h, index in enumerate(chosen):
        output[h], lse[h] = one_head(
            inputs["queries"][h], inputs["keys"][h][index], inputs["values"][h][index], scale, precision
        )
    return {"output": output, "lse": lse}


def paged_attention_bound(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision
) -> Bounds:
    """`paged_attention` and, where ``pages`` is among the inputs, `paged_sparse_attention`."""
    output, lse = np.zeros(reference["output"].shape), np.zeros(reference["output"].shape[:3])
    scale = scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1])
    page_size = inputs["key_pool"].shape[1]
    for n, tokens in enumerate(int(t) for t in inputs["tokens"]):
        keys = gather_sequence(inputs["key_pool"], inputs["block_table"][n], tokens)  # [H, T, d]
        values = gather_sequence(inputs["value_pool"], inputs["block_table"][n], tokens)
        for h in range(len(keys)):
            index = np.arange(tokens)
            if "pages" in inputs:
                row = inputs["pages"][n, h]
                index = tokens_of_pages(row[row >= 0], page_size, tokens)
            output[n, h], lse[n, h] = one_head(
                inputs["queries"][n, h], keys[h][index], values[h][index], scale, precision
            )
    return {"output": output, "lse": lse}


def merge_attention_bound(
    inputs: Mapping[str, Any], reference: Mapping[str, FloatArray], precision: Precision
) -> Bounds:
    """`merge_attention`: a softmax over S given log-masses, each output element a weighted mean over splits.

    Besides the terms of `mean_bound`, the factor that weights exp(lse_s - lse) share: `normaliser_bound`.
    """
    lses = np.moveaxis(inputs["lses"], 0, -1)  # [H, G, S]
    outputs = np.moveaxis(inputs["outputs"], 0, -2)  # [H, G, S, d]
    u = precision.roundoff
    total = log_sum_exp(lses)
    shift = np.where(np.isneginf(total), 0.0, total)[..., None]
    weights = np.exp(lses - shift)  # [H, G, S]
    error = np.where(np.isneginf(lses), 0.0, argument_bound(lses, u))
    low = np.maximum(np.sum(weights * np.exp(-error), axis=-1, keepdims=True), np.finfo(np.float64).tiny)
    distance = np.abs(outputs - reference["output"][..., None, :])  # [H, G, S, d]
    moved = np.einsum("hgs,hgsd->hgd", weights * np.expm1(error), distance)
    magnitude = np.einsum("hgs,hgsd->hgd", weights * np.exp(error), np.abs(outputs))
    inner = (moved + times(gamma(5 * lses.shape[-1] + 20, u), magnitude)) / low
    common = normaliser_bound(lses, u)  # [H, G, 1]
    inner = inner * np.exp(common) + np.expm1(common) * np.abs(reference["output"])
    inner += precision.tiny * np.sum(np.abs(np.where(weights[..., None] > 0, outputs, 0.0)), axis=-2)
    output = rounded(inner, reference["output"], precision)
    empty = np.isneginf(total)
    return {
        "output": np.where(empty[..., None], 0.0, output),
        "lse": lse_bound(lses, np.zeros(lses.shape), u),
    }
