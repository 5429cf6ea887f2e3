"""SparQ on ReadKV's nested code: probe two-bit prefixes of a few channels, then read the chosen tokens whole."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.attention import scale_of
from refimpl.baselines.sparq import RANKINGS, probe_scores, ranked_tokens, sparq_channels, sparse_step
from refimpl.checks import ArgumentError, FloatArray, choice, whole
from refimpl.readkv.reader import PrefixCache, check_cache, reconstructed_keys, reconstructed_values
from refimpl.readkv.rotation import readkv_rotate, unrotate
from refimpl.readkv.tree import LEAF_DEPTH

PROBE_DEPTH = 2


def sparq_nested_attention(
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
    rank: int,
    kept_tokens: int,
    ranking: str = "scores",
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`sparq_attention` on a coded cache, in rotated coordinates: depth-2 probes, depth-8 keys and values.

    Args:
        queries: [H, G, d], not rotated. key_codes, value_codes: [H, T, d], 8-bit leaf paths, T >= 1.
        key_mean, key_scale, value_mean, value_scale: [H, d]. key_signs, value_signs: [d], +-1.
        rank, kept_tokens, ranking, softmax_scale: as `sparq_attention`; channels are those of the rotated queries.

    Returns:
        ``output`` [H, G, d], not rotated; ``channels`` [H, r], ``tokens`` [H, min(k + 1, T)], ``mass`` [H, G].

    Raises:
        ArgumentError: a shape, a code, a sign, a dead channel, no tokens, or a size out of range.

    Source: ReadKV App. F.2 (SparQ + nested code); the mean value is that of the depth-8 values (AMB-58).

    One channel, all codes alike: the output is their value.

    >>> step = sparq_nested_attention(queries=[[[1.0]]], key_codes=[[[255], [0]]], value_codes=[[[200], [200]]],
    ...     key_mean=[[0.0]], key_scale=[[1.0]], value_mean=[[5.0]], value_scale=[[1e-9]], key_signs=[1],
    ...     value_signs=[1], rank=1, kept_tokens=0)
    >>> step["output"].round(6).tolist(), step["tokens"].tolist()
    ([[[5.0]]], [[1]])
    """
    arrays = {"key_codes": key_codes, "value_codes": value_codes, "key_mean": key_mean, "key_scale": key_scale}
    arrays |= {"value_mean": value_mean, "value_scale": value_scale, "key_signs": key_signs, "value_signs": value_signs}
    queries, cache = check_cache(queries, arrays, LEAF_DEPTH)
    if cache.key_codes.shape[1] == 0:
        raise ArgumentError("key_codes: expected at least the current token, got T=0")
    scale = scale_of(softmax_scale, queries.shape[-1])
    rotated = readkv_rotate(x=queries, signs=cache.key_signs)
    channels = sparq_channels(rotated, rank)
    probe, keys, values = nested_reads(cache)
    scores = probe_scores(rotated, probe, channels, scale)
    kept = whole("kept_tokens", kept_tokens, low=0)
    tokens = ranked_tokens(scores, kept, choice("ranking", ranking, RANKINGS), 0)
    step = sparse_step(rotated, keys, values, scores, tokens, scale)
    output = unrotate(x=step["output"], signs=cache.value_signs)
    return {"output": output, "channels": channels, "tokens": tokens, "mass": step["mass"]}


def nested_reads(cache: PrefixCache) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Depth-2 keys, depth-8 keys and depth-8 values in rotated coordinates, each [H, T, d]."""
    H, T, d = cache.key_codes.shape
    shallow, deep = (reconstructed_keys(cache, np.full((H, d), depth)) for depth in (PROBE_DEPTH, LEAF_DEPTH))
    return shallow, deep, reconstructed_values(cache, np.full((H, T), LEAF_DEPTH))
