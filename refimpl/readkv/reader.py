"""The two-stage reader: key prefixes from the query, attention, value prefixes from the attention (Alg. 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from refimpl.attention import scale_of, softmax
from refimpl.checks import FloatArray, IntArray, Sizes, integers, real, whole
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.calibration import check_scales, restore, standardize
from refimpl.readkv.codec import decode_prefixes, encode_leaves
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.rotation import check_signs, readkv_rotate, unrotate
from refimpl.readkv.tree import LEAF_DEPTH, Table, deployed_table

Chooser = Callable[[FloatArray], IntArray]
"""A rule that turns importances [H, N] into depths [H, N]."""


@dataclass(frozen=True)
class PrefixCache:
    """A layer's codes and public state: key_codes, value_codes [H, T, d]; means and scales [H, d]; signs [d].

    ``table`` is the tree that its codes are paths of.
    """

    key_codes: IntArray
    value_codes: IntArray
    key_mean: FloatArray
    key_scale: FloatArray
    value_mean: FloatArray
    value_scale: FloatArray
    key_signs: FloatArray
    value_signs: FloatArray
    stored_depth: int = LEAF_DEPTH
    table: Table = field(default_factory=deployed_table)

    @property
    def gains(self) -> FloatArray:
        """The stored float32 gains of the levels that are kept, as float64 [stored_depth]."""
        return self.table.gains[: self.stored_depth].astype(np.float64)


def check_cache(queries: Any, arrays: dict[str, Any], stored_depth: Any) -> tuple[FloatArray, PrefixCache]:
    """Check a reader's arguments and return the queries [H, G, d] and the cache.

    Raises ArgumentError for a shape, a code above 255, a dead channel, a sign or a stored depth outside 1..8.
    """
    sizes = Sizes()
    queries = real("queries", queries, "H G d", sizes)
    cache = PrefixCache(
        key_codes=integers("key_codes", arrays["key_codes"], "H T d", sizes, low=0, high=255),
        value_codes=integers("value_codes", arrays["value_codes"], "H T d", sizes, low=0, high=255),
        key_mean=real("key_mean", arrays["key_mean"], "H d", sizes),
        key_scale=check_scales("key_scale", arrays["key_scale"], "H d", sizes),
        value_mean=real("value_mean", arrays["value_mean"], "H d", sizes),
        value_scale=check_scales("value_scale", arrays["value_scale"], "H d", sizes),
        key_signs=check_signs("key_signs", arrays["key_signs"], sizes["d"]),
        value_signs=check_signs("value_signs", arrays["value_signs"], sizes["d"]),
        stored_depth=whole("stored_depth", stored_depth, low=1, high=LEAF_DEPTH),
    )
    return queries, cache


def encode_cache(
    *,
    keys: Any,
    values: Any,
    key_mean: Any,
    key_scale: Any,
    value_mean: Any,
    value_scale: Any,
    key_signs: Any,
    value_signs: Any,
    stored_depth: int = LEAF_DEPTH,
) -> PrefixCache:
    """Algorithm 1's encoder: rotate, standardise and encode keys and values [H, T, d] of one layer.

    Means, scales, signs and ``stored_depth`` as `readkv_attention`. Raises ArgumentError for a shape, a
    non-finite value, a dead channel or a sign that is not +-1.

    Source: ReadKV Alg. 1 (Encoder).

    1 lies just above the split .98160: path 11000000; -1 is its mirror image.

    >>> cache = encode_cache(keys=[[[1.0]]], values=[[[-1.0]]], key_mean=[[0.0]], key_scale=[[1.0]],
    ...     value_mean=[[0.0]], value_scale=[[1.0]], key_signs=[1], value_signs=[1])
    >>> cache.key_codes.tolist(), cache.value_codes.tolist()
    ([[[192]]], [[[63]]])
    """
    sizes = Sizes()
    keys = real("keys", keys, "H T d", sizes)
    values = real("values", values, "H T d", sizes)
    key_mean, value_mean = real("key_mean", key_mean, "H d", sizes), real("value_mean", value_mean, "H d", sizes)
    key_scale = check_scales("key_scale", key_scale, "H d", sizes)
    value_scale = check_scales("value_scale", value_scale, "H d", sizes)
    key_signs = check_signs("key_signs", key_signs, sizes["d"])
    value_signs = check_signs("value_signs", value_signs, sizes["d"])
    key_z = standardize(readkv_rotate(x=keys, signs=key_signs), key_mean, key_scale)
    value_z = standardize(readkv_rotate(x=values, signs=value_signs), value_mean, value_scale)
    return PrefixCache(
        key_codes=encode_leaves(key_z, LEAF_DEPTH),
        value_codes=encode_leaves(value_z, LEAF_DEPTH),
        key_mean=key_mean,
        key_scale=key_scale,
        value_mean=value_mean,
        value_scale=value_scale,
        key_signs=key_signs,
        value_signs=value_signs,
        stored_depth=whole("stored_depth", stored_depth, low=1, high=LEAF_DEPTH),
    )


def reconstructed_keys(cache: PrefixCache, depths: IntArray) -> FloatArray:
    """Transformed keys [H, T, d] from prefixes of depths [H, d] shared by all tokens."""
    z_hat = decode_prefixes(cache.key_codes, depths[:, None, :], LEAF_DEPTH, cache.table)
    return restore(z_hat, cache.key_mean, cache.key_scale)


def reconstructed_values(cache: PrefixCache, depths: IntArray) -> FloatArray:
    """Transformed values [H, T, d] from prefixes of depths [H, T] shared by all channels."""
    z_hat = decode_prefixes(cache.value_codes, depths[:, :, None], LEAF_DEPTH, cache.table)
    return restore(z_hat, cache.value_mean, cache.value_scale)


def read_two_stages(
    queries: FloatArray,
    cache: PrefixCache,
    choose_keys: Chooser,
    choose_values: Chooser,
    *,
    softmax_scale: float | None = None,
    value_head_weight: Any = None,
) -> dict[str, Any]:
    """One decode step of any reader that fetches key prefixes, then value prefixes, by the two given rules.

    The key rule sees the key importances [H, d], the value rule the value importances [H, T] of the attention that the
    fetched key prefixes give. No other bit of the cache is used.

    Returns ``output`` [H, G, d] (not rotated), ``key_depths`` [H, d], ``value_depths`` [H, T], ``weights`` [H, G, T].

    Source: ReadKV Alg. 1, Sec. 3.2.
    """
    rotated = readkv_rotate(x=queries, signs=cache.key_signs)  # [H, G, d]
    key_depths = choose_keys(readkv_key_importance(rotated_queries=rotated, key_scale=cache.key_scale))
    keys = reconstructed_keys(cache, key_depths)  # [H, T, d]
    logits = scale_of(softmax_scale, queries.shape[-1]) * np.einsum("hgd,htd->hgt", rotated, keys, optimize=True)
    weights = softmax(logits)  # [H, G, T]
    value_depths = choose_values(readkv_value_importance(weights=weights, value_head_weight=value_head_weight))
    values = reconstructed_values(cache, value_depths)  # [H, T, d]
    mixed = np.einsum("hgt,htd->hgd", weights, values, optimize=True)
    output = unrotate(x=mixed, signs=cache.value_signs)
    return {"output": output, "key_depths": key_depths, "value_depths": value_depths, "weights": weights}


def pooled_chooser(gains: FloatArray, budget: int) -> Chooser:
    """ChooseDepths over all items of all heads at once, head-major (AMB-21)."""

    def choose(importance: FloatArray) -> IntArray:
        depths = readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget)
        return depths.reshape(importance.shape)

    return choose


def readkv_attention(
    *,
    queries: Any,
    key_codes: Any,
    value_codes: Any,
    key_mean: Any,
    key_scale: Any,
    value_mean: Any,
    value_scale: Any,
    key_signs: Any,
    value_signs: Any,
    key_budget: int,
    value_budget: int,
    stored_depth: int = LEAF_DEPTH,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """One decode step of ReadKV: query-chosen key prefixes, attention from them, attention-chosen value prefixes.

    Args:
        queries: [H, G, d], not rotated; d a power of two.
        key_codes, value_codes: [H, T, d] 8-bit paths of rotated, standardised keys and values. T may be 0.
        key_mean, key_scale, value_mean, value_scale: [H, d], of the rotated channels.
        key_signs, value_signs: [d] of +-1.
        key_budget: refinements over all H*d key channels, at least 0 (AMB-75); each reads T bits.
        value_budget: refinements over all H*T value tokens, at least 0; each reads d bits.
        stored_depth: W, 1..8; bits below it are never read (AMB-34).
        softmax_scale: factor on the logits, default 1/sqrt(d).

    Returns:
        ``output`` [H, G, d] (not rotated), ``key_depths`` [H, d], ``value_depths`` [H, T], ``weights`` [H, G, T].

    Raises:
        ArgumentError: a shape, a code, a dead channel, a sign, a negative budget, or d not a power of two.

    Source: ReadKV Alg. 1; AMB-16, AMB-19 to AMB-22, AMB-24 (value_head_weight 1).

    One channel, keys -+c_1: one key bit finds token 1, whose value bit is then the only one worth reading.

    >>> result = readkv_attention(queries=[[[20.0]]], key_codes=[[[0], [255]]], value_codes=[[[255], [0]]],
    ...     key_mean=[[0.0]], key_scale=[[1.0]], value_mean=[[3.0]], value_scale=[[1.0]], key_signs=[1],
    ...     value_signs=[1], key_budget=1, value_budget=1)
    >>> result["key_depths"].tolist(), result["value_depths"].tolist(), result["output"].round(6).tolist()
    ([[1]], [[0, 1]], [[[2.202115]]])
    """
    arrays = {
        "key_codes": key_codes,
        "value_codes": value_codes,
        "key_mean": key_mean,
        "key_scale": key_scale,
        "value_mean": value_mean,
        "value_scale": value_scale,
        "key_signs": key_signs,
        "value_signs": value_signs,
    }
    queries, cache = check_cache(queries, arrays, stored_depth)
    key_budget = whole("key_budget", key_budget, low=0)
    value_budget = whole("value_budget", value_budget, low=0)
    return read_two_stages(
        queries,
        cache,
        pooled_chooser(cache.gains, key_budget),
        pooled_chooser(cache.gains, value_budget),
        softmax_scale=softmax_scale,
    )
