"""Cases of token scores by which a cache is cut: Expected Attention, R-KV, TriAttention, LazyEviction."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from refimpl.baselines.expected_attention import average_rotation
from refimpl.baselines.rope import rope_frequencies, rope_rotate

WIDE = ("float32", "float64")


def expected_cases() -> list[Case]:
    """Cases of `expected_attention_scores`."""
    stage = Family("expected_attention_scores", "H")
    return [
        stage.probe("uniform", "B", "no moments, values of length 1: every score is 1/12", _no_moments),
        stage.probe("variance-counts", "H", "mean 0: half the variance times scale^2", _variance),
        stage.probe("value-length", "H", "equal keys: scores follow the values' lengths", _equal_keys),
        stage.probe(
            "sinks-on-top", "C", "a sink has the largest score of all heads plus 1", partial(_expected, 3, 1, 20)
        ),
        stage.probe("no-sinks", "C", "no sinks: nothing is set apart", partial(_expected, 1, 2, 15, sinks=0)),
        stage.probe("heads", "G", "KV heads of different moments", partial(_expected, 3, 2, 18)),
        stage.probe("softmax-scale", "B", "an explicit scale", partial(_expected, 1, 2, 15, softmax_scale=0.25)),
        stage.relation(
            "token-order",
            "without sinks tokens are scored whatever their order",
            partial(_expected, 2, 2, 17, sinks=0),
            lambda i: {**i, "keys": i["keys"][:, ::-1], "values": i["values"][:, ::-1]},
            lambda a: {"scores": a["scores"][:, ::-1]},
        ),
        stage.general("H2-G4-T50-d64", "random moments", partial(_expected, 2, 4, 50)),
        stage.general("H1-G3-T33-d80", "d = 80", partial(_expected, 1, 3, 33, 80)),
        stage.size("H1-G4-T33-d128", "A", "d = 128", partial(_expected, 1, 4, 33, 128)),
    ]


def _expected(H: int, G: int, T: int, d: int = 64, **more: Any) -> Inputs:
    rng = generator("expected", f"{H},{G},{T},{d}")
    root = rng.normal(size=(H, G, d, d)) / np.sqrt(d)
    turn = average_rotation(frequencies=rope_frequencies(d), start=T)
    covariance = turn @ (root @ np.swapaxes(root, -1, -2)) @ turn.T
    return {
        "keys": rng.normal(size=(H, T, d)) * np.arange(1, H + 1)[:, None, None],
        "values": rng.normal(size=(H, T, d)),
        "query_mean": rng.normal(size=(H, G, d)) @ turn.T,
        "query_covariance": covariance,
        **more,
    }


def _no_moments() -> Inputs:
    inputs, values = _expected(1, 2, 12, sinks=0), np.zeros((1, 12, 64))
    values[..., 0] = 1.0
    return {
        **inputs,
        "values": values,
        "query_mean": np.zeros((1, 2, 64)),
        "query_covariance": np.zeros((1, 2, 64, 64)),
    }


def _variance() -> Inputs:
    inputs = _expected(1, 2, 12, sinks=0)
    return {**inputs, "query_mean": np.zeros((1, 2, 64)), "query_covariance": 4 * inputs["query_covariance"]}


def _equal_keys() -> Inputs:
    inputs = _expected(1, 2, 12, sinks=0)
    return {**inputs, "keys": np.broadcast_to(inputs["keys"][:, :1], inputs["keys"].shape)}


def rkv_cases() -> list[Case]:
    """Cases of `rkv_scores`."""
    stage = Family("rkv_scores", "H")
    before = "the softmax runs over the tokens before the window only"
    largest = "logits are reduced by their maximum over the group before the softmax"
    return [
        stage.probe(
            "likeness-alone", "H", "softmax of mean cosines over all tokens", partial(_rkv, 1, 1, 4, 20, mix=0.0)
        ),
        stage.probe("attention-alone", "C", before, partial(_rkv, 1, 1, 4, 20, mix=1.0)),
        stage.probe("group-maximum", "C", largest, partial(_rkv, 1, 4, 4, 20, mix=1.0)),
        stage.probe("pooling", "C", "maxima over 7 neighbours", partial(_rkv, 1, 1, 2, 30, mix=1.0, kernel=7)),
        stage.probe("last-alike", "H", "the last alike key of a row counts 0, so that it stays", _pairs),
        stage.probe("none-alike", "H", "rows without an alike key lose their first column", _orthogonal),
        stage.probe("key-length", "H", "cosines, not products", partial(_rkv, 1, 1, 4, 20, mix=0.0, lengths=True)),
        stage.probe("heads", "G", "KV heads of their own", partial(_rkv, 3, 2, 4, 24)),
        stage.relation(
            "both-turned",
            "queries and keys negated together change neither logits nor cosines",
            partial(_rkv, 2, 2, 4, 20),
            lambda i: {**i, "queries": -i["queries"], "keys": -i["keys"]},
        ),
        stage.general("H2-G3-T50", "the defaults: lambda 0.1, kernel 7", partial(_rkv, 2, 3, 8, 50)),
        stage.general("mix-.07", "another lambda", partial(_rkv, 1, 4, 8, 40, mix=0.0625, kernel=5)),
    ]


def _rkv(H: int, G: int, w: int, T: int, lengths: bool = False, **more: Any) -> Inputs:
    rng = generator("rkv", f"{H},{G},{w},{T}")
    keys = rng.normal(size=(H, T, 64)) + rng.normal(size=(H, 1, 64))
    if lengths:
        keys *= np.exp2(np.arange(T) % 5)[:, None]
    return {"queries": 2 * rng.normal(size=(H, G, w, 64)), "keys": keys, **more}


def _pairs() -> Inputs:
    """Keys 2, 5 and 9 are one direction, nothing else is alike: 9 is left out of two rows, 5 of one, 2 of none."""
    inputs = _rkv(1, 1, 2, 14, mix=0.0)
    keys = 3 * np.eye(64)[None, :14] + 0.0
    keys[0, 5] = keys[0, 9] = 2 * keys[0, 2]
    keys += 0.125
    return {**inputs, "keys": keys}


def _orthogonal() -> Inputs:
    inputs = _rkv(1, 1, 2, 8, mix=0.0)
    keys = 4 * np.eye(64)[None, :8] + 0.5
    keys[..., 60:] += 1.0
    return {**inputs, "keys": keys}


def triattention_cases() -> list[Case]:
    """Cases of `triattention_scores`."""
    stage = Family("triattention_scores", "H")
    short: Inputs = {"offsets": np.array([1, 2, 4, 8])}
    spare = "what queries vary beyond their mean counts by length alone"
    return [
        stage.probe("spare-magnitude", "H", spare, _no_centre),
        stage.probe("half-pairing", "E", "channel f turns with f + d/2", partial(_tri, 1, 1, 6, offsets=np.array([2]))),
        stage.probe("phase", "E", "turned ahead, not back", partial(_tri, 1, 2, 9, offsets=np.array([3]))),
        stage.probe("mean-over-offsets", "C", "a mean, not a sum", partial(_tri, 1, 2, 7, **short)),
        stage.probe("maximum", "C", "the largest over the offsets", partial(_tri, 1, 2, 7, aggregate="max", **short)),
        stage.probe("heads", "G", "query heads of their own", partial(_tri, 3, 2, 8, **short)),
        stage.relation(
            "positions-cancel",
            "the key holds its position: shifting the given ones with it unchanged alters nothing",
            partial(_tri, 2, 2, 9, **short),
            lambda i: {**i, "positions": i["positions"] + 5},
        ),
        stage.general("H2-G3-T40", "offsets up to 64", partial(_tri, 2, 3, 40, offsets=2 ** np.arange(7))),
        stage.general("d128-default-offsets", "the published offsets", partial(_tri, 1, 4, 20, 128), dtypes=WIDE),
    ]


def _tri(H: int, G: int, T: int, d: int = 64, **more: Any) -> Inputs:
    rng = generator("tri", f"{H},{G},{T},{d}")
    frequencies, positions = rope_frequencies(d).astype(np.float32), 3 + np.arange(T)
    keys = rope_rotate(x=rng.normal(size=(H, T, d)), positions=positions, frequencies=frequencies)
    centre = rng.normal(size=(H, G, d))
    size = np.hypot(centre[..., : d // 2], centre[..., d // 2 :])
    return {
        "keys": keys,
        "positions": positions,
        "frequencies": frequencies,
        "centre": centre,
        "magnitude": size + 0.5 * rng.random(size.shape),
        "step": T + 3,
        **more,
    }


def _no_centre() -> Inputs:
    inputs = _tri(1, 2, 7, offsets=np.array([1, 2]))
    return {**inputs, "keys": np.ones((1, 7, 64)), "centre": 0 * inputs["centre"]}


def lazy_cases() -> list[Case]:
    """Cases of `lazyeviction_scores`; how the parts combine is a parameter (AMB-67)."""
    stage = Family("lazyeviction_scores", "H")
    return [
        stage.probe("seen-now", "H", "looked at now: H1 is 1", partial(_lazy, "product", now=True)),
        stage.probe("interval-of-0", "B", "an interval of 0 is raised, never divided by", _never_rested),
        stage.probe("sum", "H", "the sum of both parts", partial(_lazy, "sum")),
        stage.probe("long-rest", "B", "a rest of 4000 steps over an interval of 1: no overflow", _long_rest),
        stage.relation(
            "later",
            "every step 1000 later: only differences count",
            partial(_lazy, "product"),
            lambda i: {**i, "last": i["last"] + 1000, "step": i["step"] + 1000},
        ),
        stage.general("H2-G4-T60", "random steps", partial(_lazy, "product")),
        stage.general("least-interval-4", "another least interval", partial(_lazy, "product", least_interval=4.0)),
    ]


def _lazy(combine: str, now: bool = False, **more: Any) -> Inputs:
    rng = generator("lazy", combine)
    last = np.full((2, 4, 60), 500) if now else rng.integers(400, 501, size=(2, 4, 60))
    return {"last": last, "interval": rng.integers(0, 90, size=(2, 4, 60)), "step": 500, "combine": combine, **more}


def _never_rested() -> Inputs:
    return {**_lazy("product"), "interval": np.zeros((2, 4, 60), dtype=np.int64), "last": np.full((2, 4, 60), 499)}


def _long_rest() -> Inputs:
    inputs = _lazy("sum")
    last = inputs["last"].copy()
    last[..., ::2] = 0
    return {**inputs, "last": last, "interval": np.ones_like(last), "step": 4000}
