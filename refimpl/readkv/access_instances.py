"""The papers' constructions as protocols of the access model: Theorem 1, Theorem 2 and E.1.3's oblivious rival."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from refimpl.attention import log_sum_exp
from refimpl.checks import FloatArray, IntArray, whole
from refimpl.readkv.access_model import OBLIVIOUS, Coins, Evidence, Protocol, View, staged
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.codec import decode_prefixes, encode_leaves
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance
from refimpl.readkv.tree import DEEPEST, LEAF_DEPTH, deployed_table


def _bits(codes: IntArray, depth: int) -> list[int]:
    """Codes of ``depth`` bits as one list of bits, first bit first."""
    shifts = np.arange(depth - 1, -1, -1)
    return ((np.asarray(codes).ravel()[:, None] >> shifts) & 1).ravel().tolist()


def _prefix(returned: dict[int, int], start: int, depth: int, leaf_depth: int) -> int:
    """The code whose first ``depth`` bits are the returned ones from address ``start`` on, zeros below."""
    code = 0
    for place in range(depth):
        code = 2 * code + returned[start + place]
    return code << (leaf_depth - depth)


def _gains(depth: int) -> FloatArray:
    return deployed_table(depth).gains.astype(np.float64)


def key_score_protocol(*, transform: FloatArray, depth: int, budget: int) -> Protocol:
    """Theorem 1's reader: the key x = U^T z / sqrt(d) in d codes of L bits, read where the query's weights q_i^2/d say.

    Args:
        transform: U [d, d], orthogonal, public. depth: L, 1..12. budget: refinements, the theorem's L k.

    Returns:
        a staged(1) protocol of L d stored bits and ``budget`` probes; source x [d], query y [d], answer about x.y.

    Source: ReadKV Sec. 4.1, App. E.1.1; with L = 8, budget 2d on x = y = e_j it is E.1.3's obstruction.
    """
    d = len(transform)
    depth = whole("depth", depth, low=1, high=DEEPEST)
    budget = whole("budget", budget, low=0, high=depth * d)

    def depths_of(query: FloatArray) -> IntArray:
        rotated = transform @ query  # [d]
        scale = np.full((1, d), 1.0 / math.sqrt(d))
        weights = readkv_key_importance(rotated_queries=rotated[None, None], key_scale=scale)[0]
        return readkv_choose_depths(importance=weights, gains=_gains(depth), budget=budget)

    def encode(source: FloatArray, coins: Coins) -> list[int]:
        return _bits(encode_leaves(math.sqrt(d) * (transform @ source), depth), depth)

    def read(view: View) -> list[int]:
        return [c * depth + place for c, t in enumerate(depths_of(view.query)) for place in range(t)]

    def decode(seen: Evidence) -> float:
        depths = depths_of(seen.query)
        codes = np.array([_prefix(seen.returned, c * depth, int(t), depth) for c, t in enumerate(depths)])
        z_hat = decode_prefixes(codes, depths, depth)  # [d]
        return float((transform @ seen.query) @ z_hat / math.sqrt(d))

    return Protocol(staged(1), storage=depth * d, probes=budget, encoder=encode, reader=read, decoder=decode)


def attention_family(*, sign: int, values: FloatArray, query_sign: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Theorem 2's query [m], keys [2, m] and values [2, m] for b, (v_1, v_2) and eta.

    >>> query, keys, _ = attention_family(sign=1, values=np.zeros((2, 4)), query_sign=-1)
    >>> (keys @ query / 2.0).round(12).tolist()
    [-5.0, 5.0]
    """
    m = values.shape[1]
    centroid = float(deployed_table().centroids[1][1])
    unit = np.eye(m)[0]
    keys = np.stack([sign * centroid * unit, -sign * centroid * unit])
    return query_sign * (5.0 * math.sqrt(m) / centroid) * unit, keys, values


def _query_vector(m: int, eta: int) -> FloatArray:
    return attention_family(sign=1, values=np.zeros((2, m)), query_sign=eta)[0]


def _value_depths(weights: FloatArray) -> IntArray:
    """Depths [2] of the two values: one token's whole code."""
    importance = readkv_value_importance(weights=weights[None, None])[0]
    return readkv_choose_depths(importance=importance, gains=_gains(LEAF_DEPTH), budget=LEAF_DEPTH)


def _attention_code(source: Any, coins: Coins) -> list[int]:
    _, keys, values = attention_family(sign=source[0], values=np.asarray(source[1]), query_sign=1)
    return _bits(encode_leaves(np.concatenate([keys, values]), LEAF_DEPTH), LEAF_DEPTH)


def _key_depths(m: int, eta: int) -> IntArray:
    weights = readkv_key_importance(rotated_queries=_query_vector(m, eta)[None, None], key_scale=np.ones((1, m)))[0]
    return readkv_choose_depths(importance=weights, gains=_gains(LEAF_DEPTH), budget=1)


def attention_protocol(*, dimension: int) -> Protocol:
    """Theorem 2's reader: one key refinement finds the token that matters, eight value refinements read it.

    Args:
        dimension: m. Source: (b, values [2, m] in [-1, 1]); query: eta, +1 or -1; answer: the output [m].

    Returns:
        a staged(2) protocol of 32 m stored bits and 8 m + 2 probes. Identity transforms, means 0, scales 1.

    Source: ReadKV Sec. 4.2, App. E.1.2.
    """
    m = whole("dimension", dimension, low=1)
    value_start = 2 * m * LEAF_DEPTH  # keys first, then values; [token][channel][bit]

    def address(token: int, channel: int, start: int = 0) -> int:
        return start + (token * m + channel) * LEAF_DEPTH

    def attention(eta: int, returned: dict[int, int]) -> FloatArray:
        depths = _key_depths(m, eta)
        codes = [[_prefix(returned, address(j, c), int(t), LEAF_DEPTH) for c, t in enumerate(depths)] for j in (0, 1)]
        logits = decode_prefixes(np.array(codes), depths, LEAF_DEPTH) @ _query_vector(m, eta) / math.sqrt(m)  # [2]
        weights: FloatArray = np.exp(logits - log_sum_exp(logits))
        return weights

    def read(view: View) -> list[int]:
        if view.batch == 0:
            depths = _key_depths(m, view.query)
            return [address(j, c) + place for j in (0, 1) for c, t in enumerate(depths) for place in range(t)]
        chosen = _value_depths(attention(view.query, view.returned))
        return [address(j, c, value_start) + p for j, t in enumerate(chosen) for c in range(m) for p in range(t)]

    def decode(seen: Evidence) -> FloatArray:
        weights = attention(seen.query, seen.returned)
        depths = _value_depths(weights)  # [2]
        codes = [
            [_prefix(seen.returned, address(j, c, value_start), int(t), LEAF_DEPTH) for c in range(m)]
            for j, t in enumerate(depths)
        ]
        output: FloatArray = weights @ decode_prefixes(np.array(codes), depths[:, None], LEAF_DEPTH)
        return output

    return Protocol(staged(2), storage=32 * m, probes=8 * m + 2, encoder=_attention_code, reader=read, decoder=decode)


def stochastic_rounding_protocol(*, dimension: int, storage: int) -> Protocol:
    """E.1.3's query-oblivious rival: two bits per coordinate, unbiased stochastic rounding to -1, -1/3, 1/3, 1.

    Args:
        dimension: d; the reader always fetches the first 2 d cells. storage: at least 2 d; the rest is padding.

    The encoder's coins are uniforms [d] of [0, 1). Squared error has mean at most 1/9 on the unit ball, unlike the
    deployed deterministic code's .2605.

    Source: ReadKV App. E.1.3.
    """
    d = whole("dimension", dimension, low=1)

    def encode(source: FloatArray, coins: Coins) -> list[int]:
        place = (np.asarray(source) + 1.0) * 1.5  # 0..3 in units of the step 2/3
        floor = np.minimum(np.floor(place), 2.0)
        level = floor + (np.asarray(coins.encoder) < place - floor)
        return _bits(level.astype(np.int64), 2)

    def decode(seen: Evidence) -> float:
        level = np.array([2 * seen.returned[2 * c] + seen.returned[2 * c + 1] for c in range(d)])
        return float(np.asarray(seen.query) @ (level / 1.5 - 1.0))

    return Protocol(
        OBLIVIOUS,
        storage=whole("storage", storage, low=2 * d),
        probes=2 * d,
        encoder=encode,
        reader=lambda view: range(2 * d),
        decoder=decode,
    )
