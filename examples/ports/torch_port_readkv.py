"""A plain torch port of ReadKV's stages. Unlike the NumPy port it rotates by a matrix and buys with a heap.

The tree is built in float64 by bisection of each split's condition; only the normal law has codebooks.
"""

import heapq
import math
from functools import cache

import torch

FRAMEWORK = "torch"
DTYPES = ("float32", "bfloat16", "float16")
ACCUMULATE = "float32"
LAWS = ("normal",)
F = torch.float32
SHIFTS = torch.arange(7, -1, -1, dtype=torch.uint8)
WITHIN = torch.arange(8, dtype=torch.uint8)


def _mass(low, high):
    return (torch.special.erfc(low / math.sqrt(2)) - torch.special.erfc(high / math.sqrt(2))) / 2


def _means(low, high):
    density = torch.exp(-low * low / 2) - torch.exp(-high * high / 2)
    return density / math.sqrt(2 * math.pi) / _mass(low, high)


def _splits(low, high):
    left, right = low.clone(), torch.minimum(high, low + 2)
    for _ in range(60):
        middle = (left + right) / 2
        rising = middle > (_means(low, middle) + _means(middle, high)) / 2
        left, right = torch.where(rising, left, middle), torch.where(rising, middle, right)
    return (left + right) / 2


def _mirror(x):
    return torch.cat([-x.flip(0), x]).to(F)


@cache
def _tree(depth):
    zero = torch.zeros(1, dtype=torch.float64)
    edges, thresholds, centroids, kept = torch.cat([zero, zero + math.inf]), [zero.to(F)], [zero.to(F)], [0.0]
    for level in range(depth):
        if level:
            split = _splits(edges[:-1], edges[1:])
            thresholds.append(_mirror(split))
            edges = torch.cat([edges, split]).sort().values
        means = _means(edges[:-1], edges[1:])
        centroids.append(_mirror(means))
        kept.append(2 * float((_mass(edges[:-1], edges[1:]) * means**2).sum()))
    return thresholds, centroids, torch.tensor(kept, dtype=torch.float64).diff().to(F)


def readkv_tree(*, depth):
    thresholds, centroids, gains = _tree(depth)
    return {"thresholds": thresholds, "centroids": centroids, "gains": gains}


@cache
def _hadamard(d):
    if d & (d - 1):
        raise ValueError(f"a Hadamard transform needs a power of two of channels, got {d}")
    matrix = torch.ones(1, 1)
    while len(matrix) < d:
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return matrix / math.sqrt(d)


def readkv_rotate(*, x, signs):
    return ((x.to(F) * signs) @ _hadamard(x.shape[-1])).to(x.dtype)


def readkv_encode(*, z):
    node = torch.zeros(z.shape, dtype=torch.int64)
    for thresholds in _tree(8)[0]:
        node = 2 * node + (z >= thresholds[node]).to(torch.int64)
    return node.to(torch.uint8)


def readkv_decode(*, codes, depth):
    depth = torch.as_tensor(depth)
    return torch.cat(_tree(8)[1])[(1 << depth) - 1 + (codes.to(torch.int64) >> (8 - depth))]


def _pack(bits):
    """Bits [..., n] of 0 and 1 -> bytes [..., ceil(n / 8)], first bit lowest."""
    padded = torch.nn.functional.pad(bits, (0, -bits.shape[-1] % 8))
    return (padded.unflatten(-1, (-1, 8)) << WITHIN).sum(-1, dtype=torch.uint8)


def _unpack(planes, count):
    bits = ((planes[..., None] >> WITHIN) & 1).flatten(-2)[..., :count]
    return (bits << SHIFTS[:, None, None]).sum(0, dtype=torch.uint8)


def readkv_pack_key_planes(*, codes):
    return _pack((codes.T >> SHIFTS[:, None, None]) & 1)


def readkv_pack_value_planes(*, codes):
    return _pack((codes >> SHIFTS[:, None, None]) & 1)


def readkv_unpack_key_planes(*, planes, tokens):
    return _unpack(planes, tokens).T.contiguous()


def readkv_unpack_value_planes(*, planes, channels):
    return _unpack(planes, channels)


def readkv_key_importance(*, rotated_queries, key_scale):
    return rotated_queries.square().sum(dim=1) * key_scale.square()


def readkv_value_importance(*, weights, value_head_weight=None):
    importance = weights.square().sum(dim=1)
    return importance if value_head_weight is None else importance * value_head_weight[:, None]


def _buy(importance, gains, costs, budget, minimum_depth):
    """The paper's max-heap of every item's next step; the first step that does not fit ends buying."""
    depths, left = torch.full((len(importance),), minimum_depth), budget - minimum_depth * sum(costs)
    if left < 0:
        raise ValueError(f"minimum_depth {minimum_depth} does not fit the budget {budget}")
    worth = (importance[:, None] * gains[minimum_depth:]).tolist()
    heap = [(-row[0], item) for item, row in enumerate(worth) if row]
    heapq.heapify(heap)
    while heap and -heap[0][0] > 0 and costs[heap[0][1]] <= left:
        _, item = heapq.heappop(heap)
        depths[item] += 1
        left -= costs[item]
        bought = int(depths[item]) - minimum_depth
        if bought < len(worth[item]):
            heapq.heappush(heap, (-worth[item][bought], item))
    return depths


def readkv_choose_depths(*, importance, gains, budget, minimum_depth=0):
    if len(importance) > 100000:
        return _buy_sorted(importance, gains, budget, minimum_depth)
    return _buy(importance, gains, [1] * len(importance), budget, minimum_depth)


def _buy_sorted(importance, gains, budget, minimum_depth):
    worth = (importance[:, None] * gains[minimum_depth:]).flatten()
    order = worth.sort(descending=True, stable=True).indices[: budget - minimum_depth * len(importance)]
    item = order[worth[order] > 0] // (len(gains) - minimum_depth)
    return minimum_depth + torch.bincount(item, minlength=len(importance))


def _read(queries, cache, choose_keys, choose_values, softmax_scale):
    d = queries.shape[-1]
    scale = softmax_scale if softmax_scale is not None else 1 / math.sqrt(d)
    rotated = readkv_rotate(x=queries.to(F), signs=cache["key_signs"])
    key_depths = choose_keys(readkv_key_importance(rotated_queries=rotated, key_scale=cache["key_scale"]))
    z_keys = readkv_decode(codes=cache["key_codes"], depth=key_depths[:, None, :])
    keys = cache["key_mean"][:, None] + cache["key_scale"][:, None] * z_keys
    weights = torch.softmax((rotated @ keys.transpose(-1, -2)) * scale, dim=-1)
    value_depths = choose_values(readkv_value_importance(weights=weights))
    z_values = readkv_decode(codes=cache["value_codes"], depth=value_depths[:, :, None])
    values = cache["value_mean"][:, None] + cache["value_scale"][:, None] * z_values
    output = ((weights @ values) @ _hadamard(d)) * cache["value_signs"]
    return {
        "output": output.to(queries.dtype),
        "key_depths": key_depths,
        "value_depths": value_depths,
        "weights": weights,
    }


def readkv_attention(*, queries, key_budget, value_budget, stored_depth=8, softmax_scale=None, **cache):
    gains = _tree(8)[2][:stored_depth]

    def chooser(budget):
        def choose(importance):
            flat = readkv_choose_depths(importance=importance.flatten(), gains=gains, budget=budget)
            return flat.reshape(importance.shape)

        return choose

    return _read(queries, cache, chooser(key_budget), chooser(value_budget), softmax_scale)


def readkv_restricted_attention(*, queries, rate, stored_depth=8, softmax_scale=None, **cache):
    gains = _tree(8)[2][:stored_depth]

    def chooser(size):
        def choose(importance):
            groups = [row.split(size) if len(row) else () for row in importance]
            depths = torch.zeros(importance.shape, dtype=torch.int64)
            for h, parts in enumerate(groups):
                costs = [len(part) for part in parts]
                summed = torch.stack([part.sum() for part in parts]) if parts else importance[h]
                bought = _buy(summed, gains, costs, math.floor(rate * importance.shape[1]), 1)
                depths[h] = bought.repeat_interleave(torch.tensor(costs, dtype=torch.int64))
            return depths

        return choose

    return _read(queries, cache, chooser(1), chooser(2), softmax_scale)


def lloyd_max_codebook(*, bits, law, d):
    if law != "normal":
        raise NotImplementedError(f"only the normal law, not {law}")
    cells = 2 ** (bits - 1)
    place = torch.arange(1, cells, dtype=torch.float64) / cells
    inner = math.sqrt(6) * torch.special.erfinv(place)  # levels of the density's cube root, N(0, 3)
    edges = torch.cat([torch.zeros(1, dtype=torch.float64), inner, torch.full((1,), math.inf, dtype=torch.float64)])
    for _ in range(2000):
        means = _means(edges[:-1], edges[1:])
        edges[1:-1] = (means[1:] + means[:-1]) / 2
    levels, inner = _mirror(_means(edges[:-1], edges[1:])), edges[1:-1]
    return {"levels": levels, "thresholds": torch.cat([-inner.flip(0), edges[:1], inner]).to(F)}


def affine_quantize(*, x, bits):
    x, levels = x.to(F), 2**bits - 1
    zero = x.amin(dim=-1)
    scale = (x.amax(dim=-1) - zero) / levels
    steps = (x - zero[..., None]) / torch.where(scale > 0, scale, torch.ones_like(scale))[..., None]
    return {"codes": torch.round(steps).to(torch.uint8), "scale": scale, "zero": zero}


def affine_dequantize(*, codes, scale, zero):
    return torch.addcmul(zero[..., None], codes.to(F), scale[..., None])
