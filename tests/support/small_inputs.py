"""Small float64 inputs of every stage, the awkward ones among them, for evaluation in 50 digits."""

import numpy as np


def normal(seed, *shape, size=1.0):
    return np.random.default_rng(seed).normal(size=shape) * size


def qkv(H, G, T, d, size=1.0):
    return {"queries": normal(1, H, G, d, size=size), "keys": normal(2, H, T, d), "values": 3 + normal(3, H, T, d)}


def constant_logits(value, T, G=2, d=4, apart=0.0):
    """Logits ``value`` on all tokens, ``value - apart`` on every second, at scale 1/2."""
    queries, keys = np.zeros((1, G, d)), np.zeros((1, T, d))
    queries[..., :2] = 2.0, -2.0
    keys[..., 0], keys[:, 1::2, 1] = value, apart
    return {"queries": queries, "keys": keys, "values": normal(4, 1, T, d)}


ATTENTION = {
    "random": qkv(2, 3, 7, 4),
    "odd-width": qkv(1, 7, 5, 5, size=4.0),
    "one-token": qkv(1, 2, 1, 4),
    "no-tokens": qkv(2, 1, 0, 4),
    "explicit-scale": {**qkv(1, 2, 6, 4), "softmax_scale": -0.3},
    "logits-of-200": constant_logits(200.0, 9),
    "logits-of-plus-60000": constant_logits(60000.0, 5, apart=1.0),
    "logits-of-minus-60000": constant_logits(-60000.0, 5, apart=1.0),
    "logits-of-both-signs": constant_logits(60000.0, 4, apart=120000.0),
    "zero-query": {**qkv(1, 1, 8, 4), "queries": np.zeros((1, 1, 4))},
}


def splits(S, H, G, d, empty=(), shift=0.0):
    lses = normal(5, S, H, G, size=3.0) + shift
    lses[list(empty)] = -np.inf
    return {"outputs": normal(6, S, H, G, d), "lses": lses}


MERGE = {
    "random": splits(4, 2, 3, 4),
    "one-split": splits(1, 1, 2, 4),
    "one-empty": splits(3, 1, 2, 4, empty=[1]),
    "all-empty": splits(3, 2, 1, 4, empty=[0, 1, 2]),
    "masses-of-60000": splits(3, 1, 2, 4, shift=60000.0),
    "masses-of-minus-60000": splits(3, 1, 2, 4, shift=-60000.0),
    "far-apart": {"outputs": normal(7, 2, 1, 1, 4), "lses": np.array([[[-60000.0]], [[60000.0]]])},
    "equal": {**splits(5, 1, 1, 4), "lses": np.full((5, 1, 1), 200.0)},
}

SPARSE = {
    "open-page": {**qkv(2, 2, 11, 4), "pages": np.array([[2, 0], [1, 2]]), "page_size": 4},
    "open-page-of-one": {**qkv(1, 3, 9, 4), "pages": np.array([[2]]), "page_size": 4},
    "nothing-kept": {**qkv(2, 2, 5, 4), "pages": np.zeros((2, 0), dtype=np.int64), "page_size": 4},
    "no-tokens": {**qkv(1, 2, 0, 4), "pages": np.zeros((1, 0), dtype=np.int64), "page_size": 4},
    "every-page": {**qkv(1, 2, 6, 4), "pages": np.array([[2, 1, 0]]), "page_size": 2},
    "logits-of-60000": {**constant_logits(60000.0, 6, apart=1.0), "pages": np.array([[0, 2]]), "page_size": 2},
}


def batch(d=4, size=1.0):
    """Three sequences of 7, 0 and 4 tokens in blocks of 3, shuffled, with undefined table columns."""
    return {
        "queries": normal(8, 3, 2, 2, d, size=size),
        "key_pool": normal(9, 6, 3, 2, d),
        "value_pool": normal(10, 6, 3, 2, d),
        "block_table": np.array([[4, 0, 5], [-1, 99, 7], [2, 1, 2**30]]),
        "tokens": np.array([7, 0, 4]),
    }


PAGED = {"batch": batch(), "sharp": batch(d=5, size=40.0), "scale": {**batch(), "softmax_scale": 2.0}}
LOGICAL = np.array([[[2, 0], [1, -1]], [[-1, -1], [-1, -1]], [[1, -1], [-1, -1]]])
PAGED_SPARSE = {name: {**inputs, "pages": LOGICAL} for name, inputs in PAGED.items()}


def lattice():
    """Deviations +-2 e0 and +-2 e2: two equal singular values, exact in every precision."""
    page = np.zeros((1, 1, 8, 5))
    page[0, 0, [0, 1, 4, 5], [0, 0, 2, 2]] = 2.0
    page[0, 0, [2, 3, 6, 7], [0, 0, 2, 2]] = -2.0
    return page


PAGES = {
    "random": (normal(11, 2, 2, 6, 4), 3),
    "full-rank-asked": (normal(12, 1, 2, 4, 6), 4),
    "tall": (normal(13, 1, 1, 8, 3), 2),
    "large-centroid": (normal(14, 1, 2, 6, 4) + 1000.0, 2),
    "decaying": (normal(15, 1, 2, 6, 5) * 10.0 ** -np.arange(5.0), 3),
    "one-token": (normal(16, 1, 2, 1, 4), 1),
    "constant-page": (np.broadcast_to(normal(17, 1, 2, 1, 4), (1, 2, 6, 4)), 3),
    "zero-page": (np.zeros((1, 1, 6, 4)), 3),
    "rank-one-page": (normal(18, 1, 1, 1, 4) + normal(19, 1, 1, 6, 1) * np.array([3.0, -1.0, 2.0, 0.5]), 3),
    "equal-singular-values": (lattice(), 2),
    "equal-singular-values-split": (lattice(), 1),
    "no-pages": (np.zeros((2, 0, 6, 4)), 3),
}


def summary(H, P, B, d, r, size=1.0):
    return {
        "centroid": normal(20, H, P, d, size=size),
        "basis": normal(21, H, P, d, r),
        "coefficients": normal(22, H, P, B, r, size=size),
    }


SUMMARIES = {
    "random": summary(2, 2, 5, 4, 3),
    "zero-lines": {**summary(1, 2, 3, 4, 2), "centroid": np.zeros((1, 2, 4)), "coefficients": np.zeros((1, 2, 3, 2))},
    "tiny-and-huge": {**summary(1, 2, 4, 4, 2, size=1e-30), "basis": normal(23, 1, 2, 4, 2, size=1e30)},
    "one-token": summary(1, 1, 1, 4, 1),
    "no-pages": summary(2, 0, 4, 4, 2),
}

SCORES = {
    "random": {"queries": normal(24, 2, 3, 4, size=3.0), **SUMMARIES["random"]},
    "no-modes": {"queries": normal(25, 1, 2, 4), **SUMMARIES["zero-lines"]},
    "one-token": {"queries": normal(26, 1, 7, 4), **SUMMARIES["one-token"]},
    "no-pages": {"queries": normal(27, 2, 1, 4), **SUMMARIES["no-pages"]},
    "scale": {"queries": normal(28, 2, 1, 4), **SUMMARIES["random"], "softmax_scale": -1.5},
    "logits-of-60000": {
        "queries": np.full((1, 2, 4), 2.0),
        "centroid": np.array([[[60000.0, 0, 0, 0], [-60000.0, 0, 0, 0]]]),
        "basis": np.broadcast_to(np.eye(4)[:, 1:3], (1, 2, 4, 2)),
        "coefficients": normal(29, 1, 2, 3, 2),
    },
}

EXACT_SCORES = {
    "random": {"queries": normal(30, 2, 3, 4, size=3.0), "key_pages": normal(31, 2, 3, 5, 4)},
    "open-page-of-one": {"queries": normal(32, 1, 8, 4), "key_pages": normal(33, 1, 1, 1, 4)},
    "no-pages": {"queries": normal(34, 2, 1, 4), "key_pages": np.zeros((2, 0, 5, 4))},
    "scale": {"queries": normal(35, 1, 2, 4), "key_pages": normal(36, 1, 2, 3, 4), "softmax_scale": 7.0},
    "logits-of-200": {"queries": constant_logits(200.0, 8)["queries"]}
    | {"key_pages": constant_logits(200.0, 8)["keys"].reshape(1, 2, 4, 4)},
    "logits-of-minus-60000": {"queries": constant_logits(-60000.0, 8)["queries"]}
    | {"key_pages": constant_logits(-60000.0, 8, apart=1.0)["keys"].reshape(1, 2, 4, 4)},
}

SHARE_SCORES = {
    "random": normal(37, 2, 3, 5, size=3.0),
    "one-page": normal(38, 1, 4, 1),
    "an-empty-page": np.array([[[1.0, -np.inf, 0.5], [-np.inf, 2.0, 0.0]]]),
    "an-empty-head": np.array([[[1.0, 2.0, 0.5], [-np.inf, -np.inf, -np.inf]]]),
    "all-empty": np.full((1, 2, 3), -np.inf),
    "equal-at-200": np.full((1, 3, 6), 200.0),
    "equal-at-60000": np.full((1, 2, 4), 60000.0),
    "near-minus-60000": normal(39, 1, 2, 5) - 60000.0,
    "far-apart": np.array([[[60000.0, -60000.0, 59999.0]]]),
    "no-pages": np.zeros((2, 2, 0)),
}
SHARES = {
    f"{name}-{rule}": {"scores": scores, "combine": rule}
    for name, scores in SHARE_SCORES.items()
    for rule in ("share_average", "group_max", "group_mass")
}
