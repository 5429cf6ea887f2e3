"""Bounds of token scores that are judged by value: Expected Attention, R-KV, TriAttention, LazyEviction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.common import ARGUMENT_ROUNDOFFS, EXP_ROUNDOFFS, gamma, logit_bound, times
from proofs_checks.bounds.readkv_reader import weight_bound
from proofs_checks.numbers import Precision
from refimpl.attention import scale_of
from refimpl.baselines.expected_attention import expected_logits
from refimpl.baselines.lazyeviction import twice_sigmoid
from refimpl.baselines.rkv import ALIKE, column_means, cosines, window_logits
from refimpl.baselines.rocketkv import max_pool
from refimpl.baselines.rope import as_complex
from refimpl.baselines.triattention import OFFSETS
from refimpl.checks import FloatArray
from refimpl.locks.combine import head_shares

Bounds = dict[str, FloatArray]

ANGLE_ROUNDOFFS = 8
"""Roundings of an angle: products with the frequency on both routes, sums, and the reduction to one turn."""


def expected_attention_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`expected_attention_scores`: a linear and a quadratic form, softmax, mean over the group, a length; sinks."""
    keys, values = inputs["keys"], inputs["values"]
    mean, covariance = inputs["query_mean"], inputs["query_covariance"]
    d, G, u = keys.shape[-1], mean.shape[1], precision.roundoff
    scale, sinks = scale_of(inputs.get("softmax_scale"), d), int(inputs.get("sinks", 4))
    rest = keys[:, sinks:]
    logits = expected_logits(rest, mean, covariance, scale)
    # the longest path: two sums of d products, the scale twice, the half, the addition
    wide = expected_logits(np.abs(rest), np.abs(mean), np.abs(covariance), abs(scale))
    error = weight_bound(logits, times(gamma(2 * d + 8, u), wide), precision)
    weights = head_shares(logits).mean(axis=1)
    length = np.linalg.norm(values[:, sinks:], axis=-1)
    inner = error.mean(axis=1) + gamma(G + 2, u) * weights
    bound = np.empty(reference["scores"].shape)
    bound[:, sinks:] = length * (inner * (1 + gamma(d + 4, u)) + gamma(d + 4, u) * weights) + precision.tiny
    bound[:, :sinks] = bound[:, sinks:].max(initial=0.0) + 2 * u * np.abs(reference["scores"][:, :sinks])
    return {"scores": bound}


def rkv_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`rkv_scores`: mean softmax weights under max pooling, and a softmax of mean cosines.

    The maxima are no operations: they err by at most their largest argument's error. Which key of a row is the last
    alike one can turn on a cosine near 1/2; every one that an honest port may take is allowed for.
    """
    queries, keys, u = inputs["queries"], inputs["keys"], precision.roundoff
    w, d = queries.shape[2], queries.shape[3]
    mix, scale = float(inputs.get("mix", 0.1)), scale_of(inputs.get("softmax_scale"), d)
    before = keys[:, : keys.shape[1] - w]
    logits = window_logits(queries, before, scale)
    error = weight_bound(logits, logit_bound(queries, before[:, None], scale, u).max(axis=1), precision)
    weights = head_shares(logits).mean(axis=1)
    attention = max_pool(error.mean(axis=1) + gamma(w + 2, u) * weights, int(inputs.get("kernel", 7)))
    means, moved = _column_means_range(cosines(keys), u * (2 * d + 12))
    likeness = weight_bound(means, moved + gamma(keys.shape[1] + 2, u), precision)[:, : before.shape[1]]
    last = 3 * u * (np.abs(reference["scores"]) + 2 * (1 - mix) * head_shares(means)[:, : before.shape[1]])
    return {"scores": abs(mix) * attention + (1 - mix) * likeness + last}


def _column_means_range(alike: FloatArray, error: float) -> tuple[FloatArray, FloatArray]:
    """Mean cosines per column [H, T], and how far those of a port whose cosines err by ``error`` may lie from them."""
    T = alike.shape[-1]
    index = np.arange(T)
    sure = np.where(alike > ALIKE + error, index, -1).max(axis=-1)[..., None]  # [H, T, 1], the last one surely alike
    open_ = (np.abs(alike - ALIKE) <= error) & (index > sure)  # later ones that may be
    first = np.where(sure < 0, 0, sure)
    may = open_ | ((index == first) & open_.any(axis=-1, keepdims=True))
    return column_means(alike), error + np.where(may, np.abs(alike), 0.0).sum(axis=1) / T


def triattention_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`triattention_scores`: cosines of angles that are rounded at the size of the largest position."""
    u, half = precision.roundoff, inputs["keys"].shape[-1] // 2
    centre, cached = np.abs(as_complex(inputs["centre"])), np.abs(as_complex(inputs["keys"]))
    offsets = np.asarray(inputs.get("offsets", OFFSETS))
    reach = int(inputs["step"]) + inputs["positions"][None, :] + np.abs(offsets)[:, None]  # [O, T]
    turn = ANGLE_ROUNDOFFS * (np.abs(inputs["frequencies"]) * reach[..., None] + 2 * math.pi) + half + EXP_ROUNDOFFS
    waves = np.einsum("hgf,htf,otf->hgto", centre, cached, u * turn, optimize=True)
    pooled = waves.max(axis=-1) if inputs.get("aggregate") == "max" else waves.mean(axis=-1)
    pooled = pooled + gamma(len(offsets) + 2, u) * np.einsum("hgf,htf->hgt", centre, cached, optimize=True)
    fixed = np.einsum("hgf,htf->hgt", np.abs(inputs["magnitude"]) + centre, cached, optimize=True)
    return {"scores": pooled + gamma(half + 10, u) * fixed + u * np.abs(reference["scores"])}


def lazyeviction_bound(inputs: Mapping[str, Any], reference: Mapping[str, Any], precision: Precision) -> Bounds:
    """`lazyeviction_scores`: two sigmoids of quotients, each with its argument's relative roundings and its own."""
    u, step = precision.roundoff, int(inputs["step"])
    rest = np.maximum(inputs["interval"], float(inputs.get("least_interval", 1.0)))
    factors = []
    for x in ((inputs["last"] - step) / rest, -1 / rest):
        factors.append((twice_sigmoid(x), u * (ARGUMENT_ROUNDOFFS * np.abs(x) + EXP_ROUNDOFFS + 4)))
    (recent, first), (rhythm, second) = factors
    if inputs.get("combine", "product") == "sum":
        return {"scores": recent * first + rhythm * second + u * reference["scores"] + 2 * precision.tiny}
    relative = (1 + first) * (1 + second) * (1 + u) - 1
    return {"scores": reference["scores"] * relative + 2 * precision.tiny}
