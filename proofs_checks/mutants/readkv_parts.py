"""A right reader of exchangeable parts, from which wrong readers are made by exchanging one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp, scale_of
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.codec import readkv_decode
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.restricted import group_chooser
from refimpl.readkv.rotation import readkv_rotate, unrotate
from refimpl.readkv.tree import deployed_table

Array = Any


def softmax(logits: Array) -> Array:
    """Weights over the last axis; none where it is empty."""
    lse = log_sum_exp(logits)[..., None]
    return np.exp(logits - np.where(np.isneginf(lse), 0.0, lse))


def mean_plus(mean: Array, scale: Array, z: Array) -> Array:
    """mean + scale * z per head and channel."""
    return mean[:, None].astype(float) + scale[:, None] * z


def pooled(importance: Array, gains: Array, budget: int) -> Array:
    """One budget over all heads."""
    return readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget).reshape(importance.shape)


@dataclass(frozen=True)
class Parts:
    """The steps of a read, in order; a mutant exchanges one."""

    heads: Callable[[Array], Array] = lambda queries: queries
    rotate: Callable[[Array, Array], Array] = lambda x, signs: readkv_rotate(x=x, signs=signs)
    key_importance: Callable[[Array, Array], Array] = lambda q, scale: readkv_key_importance(
        rotated_queries=q, key_scale=scale
    )
    choose_keys: Callable[[Array, Array, int], Array] = pooled
    key_read: Callable[[Array], Array] = lambda depths: depths
    restore_keys: Callable[[Array, Array, Array], Array] = mean_plus
    softmax: Callable[[Array], Array] = softmax
    default_scale: bool = False
    value_weights: Callable[[Array, Array], Array] = lambda weights, exact: weights
    value_importance: Callable[[Array], Array] = lambda weights: readkv_value_importance(weights=weights)
    choose_values: Callable[[Array, Array, int], Array] = pooled
    value_read: Callable[[Array], Array] = lambda depths: depths
    restore_values: Callable[[Array, Array, Array], Array] = mean_plus
    mix: Callable[[Array, Array, Array], Array] = lambda weights, values, depths: np.einsum(
        "hgt,htd->hgd", weights, values
    )
    back: Callable[[Array, Array], Array] = lambda mixed, signs: unrotate(x=mixed, signs=signs)
    stored: Callable[[int], int] = lambda depth: depth


def read(parts: Parts, inputs: dict[str, Array], choose_keys: Any, choose_values: Any, softmax_scale: Any) -> Any:
    """One read step by ``parts`` under two rules of allocation."""
    rotated = parts.rotate(parts.heads(inputs["queries"].astype(float)), inputs["key_signs"])
    key_depths = choose_keys(parts.key_importance(rotated, inputs["key_scale"]))
    scale = scale_of(None if parts.default_scale else softmax_scale, rotated.shape[-1])

    def logits(depths: Array) -> Array:
        z = readkv_decode(codes=inputs["key_codes"], depth=depths[:, None, :])
        keys = parts.restore_keys(inputs["key_mean"], inputs["key_scale"], z)
        return scale * np.einsum("hgd,htd->hgt", rotated, keys)

    weights = parts.softmax(logits(parts.key_read(key_depths)))
    exact = parts.softmax(logits(np.full_like(key_depths, 8)))
    value_depths = choose_values(parts.value_importance(parts.value_weights(weights, exact)))
    z_values = readkv_decode(codes=inputs["value_codes"], depth=parts.value_read(value_depths)[:, :, None])
    values = parts.restore_values(inputs["value_mean"], inputs["value_scale"], z_values)
    output = parts.back(parts.mix(weights, values, value_depths), inputs["value_signs"])
    return {"output": output, "key_depths": key_depths, "value_depths": value_depths, "weights": weights}


def attention_of(parts: Parts) -> Callable[..., Any]:
    """A `readkv_attention` of these parts."""

    def readkv_attention(
        *, key_budget: int, value_budget: int, stored_depth: int = 8, softmax_scale: Any = None, **inputs: Any
    ) -> Any:
        gains = deployed_table().gains[: parts.stored(stored_depth)]
        return read(
            parts,
            inputs,
            lambda importance: parts.choose_keys(importance, gains, key_budget),
            lambda importance: parts.choose_values(importance, gains, value_budget),
            softmax_scale,
        )

    return readkv_attention


def restricted_of(parts: Parts, choose_keys: Any = None, choose_values: Any = None) -> Callable[..., Any]:
    """A `readkv_restricted_attention` of these parts; rules take importance, gains and rate."""

    def readkv_restricted_attention(
        *, rate: Any, stored_depth: int = 8, softmax_scale: Any = None, **inputs: Any
    ) -> Any:
        gains = deployed_table().gains[: parts.stored(stored_depth)].astype(float)
        keys = group_chooser(gains, rate, per_head=True, minimum_depth=1, paired=False)
        values = group_chooser(gains, rate, per_head=True, minimum_depth=1, paired=True)
        return read(
            parts,
            inputs,
            keys if choose_keys is None else lambda importance: choose_keys(importance, gains, rate),
            values if choose_values is None else lambda importance: choose_values(importance, gains, rate),
            softmax_scale,
        )

    return readkv_restricted_attention
