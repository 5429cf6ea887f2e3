"""A plain float32 NumPy port of ReadKV's stages. It imports nothing of kvproof; the tree is built in float64."""

import math
from functools import cache

import numpy as np

DTYPES = ("float32",)
LAWS = ("normal", "sphere")
F = np.float32
BITS = np.arange(7, -1, -1, dtype=np.uint8)[:, None, None]

_tail = np.vectorize(lambda x: math.erfc(x / math.sqrt(2)) / 2 if x < math.inf else 0.0, otypes=[float])


def _means(low, high):
    """Mean of N(0, 1) in each cell 0 <= low < high."""
    density = (np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)) / math.sqrt(2 * math.pi)
    return density / (_tail(low) - _tail(high))


@cache
def _tree(depth):
    edges, thresholds, centroids = np.array([0.0, math.inf]), [np.zeros(1)], [np.zeros(1)]
    distortion = [1.0]
    for level in range(depth):
        mean = _means(edges[:-1], edges[1:])
        centroids.append(np.concatenate([-mean[::-1], mean]))
        mass = _tail(edges[:-1]) - _tail(edges[1:])
        distortion.append(1 - 2 * np.sum(mass * mean**2))
        if level + 1 < depth:
            split = mean
            for _ in range(80):  # Lloyd's rounds inside the fixed interval
                split = (_means(edges[:-1], split) + _means(split, edges[1:])) / 2
            thresholds.append(np.concatenate([-split[::-1], split]))
            edges = np.insert(edges, np.arange(1, len(edges)), split)
    return [t.astype(F) for t in thresholds], [c.astype(F) for c in centroids], -np.diff(distortion).astype(F)


def readkv_tree(*, depth):
    thresholds, centroids, gains = _tree(depth)
    return {
        "thresholds": [t.copy() for t in thresholds],
        "centroids": [c.copy() for c in centroids],
        "gains": gains.copy(),
    }


def _hadamard(x):
    d, half = x.shape[-1], 1
    while half < d:
        pairs = x.reshape(*x.shape[:-1], d // (2 * half), 2, half)
        x = np.stack([pairs[..., 0, :] + pairs[..., 1, :], pairs[..., 0, :] - pairs[..., 1, :]], axis=-2)
        x = x.reshape(*x.shape[:-3], d)
        half *= 2
    return x


def readkv_rotate(*, x, signs):
    d = x.shape[-1]
    if d & (d - 1):
        raise ValueError(f"a Hadamard transform needs a power of two of channels, got {d}")
    return _hadamard(x * signs) * F(1 / math.sqrt(d))


def readkv_encode(*, z):
    node = np.zeros(z.shape, np.int64)
    for thresholds in _tree(8)[0]:
        node = 2 * node + (z >= thresholds[node])
    return node.astype(np.uint8)


def readkv_decode(*, codes, depth):
    depth, table = np.asarray(depth), np.concatenate(_tree(8)[1])
    return table[(1 << depth) - 1 + (codes.astype(np.int64) >> (8 - depth))]


def readkv_pack_key_planes(*, codes):
    return np.packbits((codes.T >> BITS) & 1, axis=-1, bitorder="little")


def readkv_pack_value_planes(*, codes):
    return np.packbits((codes >> BITS) & 1, axis=-1, bitorder="little")


def _join(planes, count):
    bits = np.unpackbits(planes, axis=-1, count=count, bitorder="little")
    return np.bitwise_or.reduce(bits << BITS, axis=0)


def readkv_unpack_key_planes(*, planes, tokens):
    return _join(planes, tokens).T.copy()


def readkv_unpack_value_planes(*, planes, channels):
    return _join(planes, channels)


def readkv_key_importance(*, rotated_queries, key_scale):
    return ((rotated_queries * key_scale[:, None]) ** 2).sum(axis=1)


def readkv_value_importance(*, weights, value_head_weight=None):
    importance = (weights**2).sum(axis=1)
    return importance if value_head_weight is None else importance * value_head_weight[:, None]


def _buy(importance, gains, costs, budget, minimum_depth):
    """Depths by falling importance times gain; the first step that does not fit ends buying."""
    left = budget - minimum_depth * int(costs.sum())
    if left < 0:
        raise ValueError(f"minimum_depth {minimum_depth} does not fit the budget {budget}")
    worth = importance.astype(F)[:, None] * gains.astype(F)[minimum_depth:]
    item, level = np.nonzero(worth > 0)
    order = np.argsort(-worth[item, level], kind="stable")
    taken = item[order][: np.searchsorted(np.cumsum(costs[item[order]]), left, side="right")]
    return minimum_depth + np.bincount(taken, minlength=len(importance))


def readkv_choose_depths(*, importance, gains, budget, minimum_depth=0):
    return _buy(importance, gains, np.ones(len(importance), np.int64), budget, minimum_depth)


def _softmax(logits):
    if logits.shape[-1] == 0:
        return logits
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def _read(queries, cache, choose_keys, choose_values, softmax_scale):
    d = queries.shape[-1]
    scale = F(softmax_scale if softmax_scale is not None else 1 / math.sqrt(d))
    rotated = readkv_rotate(x=queries, signs=cache["key_signs"])
    importance = readkv_key_importance(rotated_queries=rotated, key_scale=cache["key_scale"])
    key_depths = choose_keys(importance)
    z_keys = readkv_decode(codes=cache["key_codes"], depth=key_depths[:, None, :])
    keys = cache["key_mean"][:, None] + cache["key_scale"][:, None] * z_keys
    weights = _softmax((rotated @ np.swapaxes(keys, -1, -2)) * scale)
    value_depths = choose_values(readkv_value_importance(weights=weights))
    z_values = readkv_decode(codes=cache["value_codes"], depth=value_depths[:, :, None])
    values = cache["value_mean"][:, None] + cache["value_scale"][:, None] * z_values
    output = _hadamard(weights @ values) * cache["value_signs"] * F(1 / math.sqrt(d))
    return {"output": output, "key_depths": key_depths, "value_depths": value_depths, "weights": weights}


def readkv_attention(*, queries, key_budget, value_budget, stored_depth=8, softmax_scale=None, **cache):
    gains = _tree(8)[2][:stored_depth]

    def chooser(budget):
        def choose(importance):
            flat = readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget)
            return flat.reshape(importance.shape)

        return choose

    return _read(queries, cache, chooser(key_budget), chooser(value_budget), softmax_scale)


def readkv_restricted_attention(*, queries, rate, stored_depth=8, softmax_scale=None, **cache):
    gains = _tree(8)[2][:stored_depth]

    def chooser(size):
        def choose(importance):
            depths = np.zeros(importance.shape, np.int64)
            starts = np.arange(0, importance.shape[1], size)
            costs = np.diff(np.append(starts, importance.shape[1]))
            for h, row in enumerate(importance):
                summed = np.add.reduceat(row, starts) if len(row) else row
                depths[h] = np.repeat(_buy(summed, gains, costs, math.floor(rate * len(row)), 1), costs)
            return depths

        return choose

    return _read(queries, cache, chooser(1), chooser(2), softmax_scale)


def _integral(f):
    return np.concatenate([[0.0], np.cumsum((f[1:] + f[:-1]) / 2)])


def lloyd_max_codebook(*, bits, law, d):
    end = 12.0 if law == "normal" else math.sqrt(d)
    x = np.linspace(-end, end, 400001)
    density = np.exp(-(x**2) / 2) if law == "normal" else np.maximum(1 - x**2 / d, 0) ** ((d - 3) / 2)
    mass, moment, near = (_integral(f) for f in (density, density * x, np.cbrt(density)))  # levels lie as the cube root
    levels = np.interp((np.arange(2**bits) + 0.5) / 2**bits, near / near[-1], x)
    for _ in range(300):
        thresholds = (levels[:-1] + levels[1:]) / 2
        at = np.concatenate([[-end], thresholds, [end]])
        levels = np.diff(np.interp(at, x, moment)) / np.diff(np.interp(at, x, mass))
    return {"levels": levels.astype(F), "thresholds": ((levels[:-1] + levels[1:]) / 2).astype(F)}


def affine_quantize(*, x, bits):
    levels = 2**bits - 1
    zero = x.min(axis=-1)
    scale = (x.max(axis=-1) - zero) / F(levels)
    steps = (x - zero[..., None]) / np.where(scale > 0, scale, F(1))[..., None]
    return {"codes": np.rint(steps).astype(np.uint8), "scale": scale, "zero": zero}


def affine_dequantize(*, codes, scale, zero):
    return codes * scale[..., None] + zero[..., None]
