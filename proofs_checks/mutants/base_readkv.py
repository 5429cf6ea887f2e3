"""The ReadKV half of a right port: codec and readers call the port's own stages, so that a broken one shows in them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of
from refimpl.readkv.budgets import budget_of_rate
from refimpl.readkv.restricted import group_chooser


def attach_readkv(port: SimpleNamespace) -> None:
    """Give ``port`` an encoder, a decoder and readers made of its own stages."""
    port.readkv_encode = _encode_of(port)
    port.readkv_decode = _decode_of(port)
    port.readkv_attention = _attention_of(port)
    port.readkv_restricted_attention = _restricted_of(port)


def _encode_of(port: SimpleNamespace) -> Callable[..., Any]:
    def readkv_encode(*, z: Any) -> Any:
        node = np.zeros(z.shape, dtype=np.int64)
        for thresholds in port.readkv_tree(depth=8)["thresholds"]:
            node = 2 * node + (z >= np.asarray(thresholds)[node])
        return node.astype(np.uint8)

    return readkv_encode


def _decode_of(port: SimpleNamespace) -> Callable[..., Any]:
    def readkv_decode(*, codes: Any, depth: Any) -> Any:
        every = np.concatenate(port.readkv_tree(depth=8)["centroids"]).astype(np.float64)
        depth = np.asarray(depth)
        return every[(1 << depth) - 1 + (codes.astype(np.int64) >> (8 - depth))]

    return readkv_decode


Choose = Callable[[Any], Any]


def read(
    port: SimpleNamespace, inputs: dict[str, Any], choose_keys: Choose, choose_values: Choose, softmax_scale: Any
) -> Any:
    """Algorithm 1 on the port's own rotation, importances and decoder."""
    rotated = port.readkv_rotate(x=inputs["queries"].astype(float), signs=inputs["key_signs"])
    importance = port.readkv_key_importance(rotated_queries=rotated, key_scale=inputs["key_scale"])
    key_depths = choose_keys(importance)
    z_keys = port.readkv_decode(codes=inputs["key_codes"], depth=key_depths[:, None, :])
    keys = inputs["key_mean"][:, None].astype(float) + inputs["key_scale"][:, None] * z_keys
    logits = scale_of(softmax_scale, rotated.shape[-1]) * np.einsum("hgd,htd->hgt", rotated, keys)
    lse = log_sum_exp(logits)[..., None]
    weights = np.exp(logits - np.where(np.isneginf(lse), 0.0, lse))
    value_depths = choose_values(port.readkv_value_importance(weights=weights))
    z_values = port.readkv_decode(codes=inputs["value_codes"], depth=value_depths[:, :, None])
    values = inputs["value_mean"][:, None].astype(float) + inputs["value_scale"][:, None] * z_values
    mixed = np.einsum("hgt,htd->hgd", weights, values)
    # U^T = diag(signs) U_1, the transform without signs
    back = port.readkv_rotate(x=mixed, signs=np.ones(mixed.shape[-1])) * inputs["value_signs"]
    return {"output": back, "key_depths": key_depths, "value_depths": value_depths, "weights": weights}


def _attention_of(port: SimpleNamespace) -> Callable[..., Any]:
    def readkv_attention(
        *, key_budget: int, value_budget: int, stored_depth: int = 8, softmax_scale: Any = None, **inputs: Any
    ) -> Any:
        gains = port.readkv_tree(depth=8)["gains"][:stored_depth]

        def chooser(budget: int) -> Choose:
            def choose(importance: Any) -> Any:
                flat = port.readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget)
                return flat.reshape(importance.shape)

            return choose

        return read(port, inputs, chooser(key_budget), chooser(value_budget), softmax_scale)

    return readkv_attention


def _restricted_of(port: SimpleNamespace) -> Callable[..., Any]:
    def readkv_restricted_attention(
        *, rate: Any, stored_depth: int = 8, softmax_scale: Any = None, **inputs: Any
    ) -> Any:
        gains = port.readkv_tree(depth=8)["gains"][:stored_depth]

        def choose_keys(importance: Any) -> Any:
            budget = budget_of_rate(rate=rate, items=importance.shape[1], stored_depth=stored_depth)
            return np.stack(
                [
                    port.readkv_choose_depths(importance=row, gains=gains, budget=budget, minimum_depth=1)
                    for row in importance
                ]
            )

        choose_values = group_chooser(gains.astype(float), rate, per_head=True, minimum_depth=1, paired=True)
        return read(port, inputs, choose_keys, choose_values, softmax_scale)

    return readkv_restricted_attention
