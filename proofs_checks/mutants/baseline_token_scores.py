"""Wrong token scores: Expected Attention, R-KV, TriAttention, LazyEviction."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import scale_of
from refimpl.baselines import rkv
from refimpl.baselines.expected_attention import expected_attention_scores
from refimpl.baselines.lazyeviction import lazyeviction_scores, twice_sigmoid
from refimpl.baselines.rocketkv import max_pool
from refimpl.baselines.triattention import OFFSETS, triattention_scores
from refimpl.locks.combine import head_shares

E = "expected_attention_scores"


@mutant("expected-variance-whole", E, "H", "the variance is not halved")
def whole_variance(*, query_covariance: Any, **rest: Any) -> Any:
    """Twice the second cumulant."""
    return expected_attention_scores(query_covariance=2 * query_covariance, **rest)


@mutant("expected-no-variance", E, "H", "the covariance is left out")
def no_variance(*, query_covariance: Any, **rest: Any) -> Any:
    """The mean query alone."""
    return expected_attention_scores(query_covariance=0 * query_covariance, **rest)


@mutant("expected-scale-once", E, "H", "the variance is scaled by 1/sqrt(d), not 1/d")
def scaled_once(*, keys: Any, query_covariance: Any, softmax_scale: float | None = None, **rest: Any) -> Any:
    """scale for scale^2."""
    grown = query_covariance / scale_of(softmax_scale, keys.shape[-1])
    return expected_attention_scores(keys=keys, query_covariance=grown, softmax_scale=softmax_scale, **rest)


@mutant("expected-no-value-length", E, "H", "scores are not multiplied by the values' lengths")
def no_length(*, values: Any, **rest: Any) -> Any:
    """Weights alone."""
    unit = values / np.linalg.norm(values, axis=-1, keepdims=True)
    return expected_attention_scores(values=unit, **rest)


@mutant("expected-sinks-in-softmax", E, "C", "sinks share in the softmax")
def sinks_inside(*, sinks: int = 4, **rest: Any) -> Any:
    """A larger denominator."""
    every = expected_attention_scores(sinks=0, **rest)
    every[:, :sinks] = every[:, sinks:].max() + 1
    return every


@mutant("expected-sinks-per-head", E, "C", "a sink's score is its own head's largest plus 1")
def sinks_per_head(*, sinks: int = 4, **rest: Any) -> Any:
    """The maximum of one head."""
    scores = expected_attention_scores(sinks=sinks, **rest)
    scores[:, :sinks] = scores[:, sinks:].max(axis=1, keepdims=True) + 1
    return scores


R = "rkv_scores"


def _rkv(
    queries: Any, keys: Any, mix: float, kernel: int, scale: Any, *, attention: Any = None, likeness: Any = None
) -> Any:
    w, count = queries.shape[2], keys.shape[1]
    scale = scale_of(scale, queries.shape[-1])
    weights = attention(queries, keys, scale) if attention else _attention(queries, keys, scale)
    alike = likeness(keys) if likeness else rkv.column_means(rkv.cosines(keys))
    return mix * max_pool(weights, kernel) - (1 - mix) * head_shares(alike)[:, : count - w]


def _attention(queries: Any, keys: Any, scale: float) -> Any:
    return head_shares(rkv.window_logits(queries, keys[:, : keys.shape[1] - queries.shape[2]], scale)).mean(axis=1)


def _register(name: str, suspect: str, what: str, **parts: Any) -> None:
    def broken(
        *, queries: Any, keys: Any, mix: float = 0.1, kernel: int = 7, softmax_scale: float | None = None
    ) -> Any:
        return _rkv(queries, keys, mix, kernel, softmax_scale, **parts)

    mutant(name, R, suspect, what)(broken)


def _window_inside(queries: Any, keys: Any, scale: float) -> Any:
    weights = head_shares(rkv.window_logits(queries, keys, scale)).mean(axis=1)
    return weights[:, : keys.shape[1] - queries.shape[2]]


def _group_mean(queries: Any, keys: Any, scale: float) -> Any:
    before = keys[:, : keys.shape[1] - queries.shape[2]]
    return head_shares(scale * np.einsum("hgwd,htd->hgwt", queries, before)).mean(axis=(1, 2))


def _own_counted(keys: Any) -> Any:
    alike = rkv.cosines(keys)
    index = np.arange(keys.shape[1])
    alike[:, index, index] = 1.0
    return alike.mean(axis=1)


def _products(keys: Any) -> Any:
    alike = keys @ np.swapaxes(keys, 1, 2)
    index = np.arange(keys.shape[1])
    alike[:, index, index] = 0.0
    return rkv.column_means(alike)


def _first_alike(keys: Any) -> Any:
    alike = rkv.cosines(keys)
    first = np.argmax(alike > rkv.ALIKE, axis=-1)
    return np.where(np.arange(keys.shape[1]) == first[..., None], 0.0, alike).mean(axis=1)


_register("rkv-window-in-softmax", "C", "the window's tokens share in the softmax", attention=_window_inside)
_register("rkv-group-mean", "C", "weights are averaged over the group, logits not maximised", attention=_group_mean)
_register("rkv-own-cosine-counted", "H", "the diagonal counts and nothing alike is left out", likeness=_own_counted)
_register("rkv-products-for-cosines", "H", "products of keys stand for cosines", likeness=_products)
_register("rkv-first-alike", "H", "the first alike key of a row counts 0, not the last", likeness=_first_alike)


@mutant("rkv-likeness-added", R, "H", "likeness is rewarded instead of punished")
def added(*, mix: float = 0.1, **rest: Any) -> Any:
    """A plus for a minus."""
    attention = rkv.rkv_scores(mix=1.0, **rest)
    return mix * attention - (1 - mix) * rkv.rkv_scores(mix=0.0, **rest)


@mutant("rkv-mix-turned", R, "H", "lambda weighs the likeness")
def turned(*, mix: float = 0.1, **rest: Any) -> Any:
    """1 - lambda."""
    return rkv.rkv_scores(mix=1 - mix, **rest)


@mutant("rkv-not-pooled", R, "C", "attention is not pooled")
def not_pooled(*, kernel: int = 7, **rest: Any) -> Any:
    """Single tokens."""
    return rkv.rkv_scores(kernel=1, **rest)


T = "triattention_scores"


@mutant("tri-turned-back", T, "E", "queries are turned back instead of ahead")
def turned_back(*, step: int, offsets: Any = OFFSETS, frequencies: Any, **rest: Any) -> Any:
    """The sign of the angle."""
    return triattention_scores(step=step, offsets=offsets, frequencies=-frequencies, **rest)


@mutant("tri-interleaved-pairs", T, "E", "channels 2f and 2f + 1 are taken for a pair")
def interleaved(*, keys: Any, centre: Any, **rest: Any) -> Any:
    """The other RoPE layout."""
    order = np.concatenate([np.arange(0, keys.shape[-1], 2), np.arange(1, keys.shape[-1], 2)])
    return triattention_scores(keys=keys[..., order], centre=centre[..., order], **rest)


@mutant("tri-position-twice", T, "E", "the key's position is undone twice")
def position_twice(*, keys: Any, positions: Any, frequencies: Any, **rest: Any) -> Any:
    """The cached key already holds it."""
    half = keys.shape[-1] // 2
    turned = (keys[..., :half] + 1j * keys[..., half:]) * np.exp(-1j * positions[:, None] * frequencies)
    undone = np.concatenate([turned.real, turned.imag], axis=-1)
    return triattention_scores(keys=undone, positions=positions, frequencies=frequencies, **rest)


@mutant("tri-no-spare", T, "H", "the second term is left out")
def no_spare(*, centre: Any, magnitude: Any, **rest: Any) -> Any:
    """The mean query alone."""
    half = centre.shape[-1] // 2
    return triattention_scores(centre=centre, magnitude=np.hypot(centre[..., :half], centre[..., half:]), **rest)


@mutant("tri-sum-over-offsets", T, "C", "offsets are summed, not averaged")
def summed(*, centre: Any, magnitude: Any, offsets: Any = OFFSETS, aggregate: str = "mean", **rest: Any) -> Any:
    """Weighs the second term too little."""
    half = centre.shape[-1] // 2
    spare = magnitude - np.hypot(centre[..., :half], centre[..., half:])
    fixed = triattention_scores(centre=0 * centre, magnitude=spare, offsets=offsets, **rest)
    call = {"centre": centre, "magnitude": magnitude, "offsets": offsets, "aggregate": aggregate, **rest}
    factor = 1 if aggregate == "max" else len(offsets)
    return factor * (triattention_scores(**call) - fixed) + fixed


L = "lazyeviction_scores"


@mutant(
    "lazy-other-combination", L, "H", "the two parts are added where their product is asked, and multiplied for sum"
)
def other(*, combine: str = "product", **rest: Any) -> Any:
    """The switch turned."""
    return lazyeviction_scores(combine="sum" if combine == "product" else "product", **rest)


@mutant("lazy-single-sigmoid", L, "H", "sigmoids are not doubled")
def single(*, last: Any, interval: Any, step: int, combine: str = "product", least_interval: float = 1.0) -> Any:
    """Half of each."""
    scores = lazyeviction_scores(
        last=last, interval=interval, step=step, combine=combine, least_interval=least_interval
    )
    return scores / (4 if combine == "product" else 2)


@mutant("lazy-interval-inverted", L, "H", "the second part falls with the interval")
def inverted(*, last: Any, interval: Any, step: int, combine: str = "product", least_interval: float = 1.0) -> Any:
    """2 sigmoid(-m)."""
    rest = np.maximum(interval, least_interval)
    recent, rhythm = twice_sigmoid((last - step) / rest), twice_sigmoid(-rest)
    return recent * rhythm if combine == "product" else recent + rhythm
