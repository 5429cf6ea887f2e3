"""The readers that ReadKV is compared with: full, uniform, calibration-only, two-depth, protected layers (App. F)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray, Sizes, integers, real, whole
from refimpl.readkv.allocation import check_importance
from refimpl.readkv.calibration import check_scales
from refimpl.readkv.reader import Chooser, PrefixCache, pooled_chooser, read_two_stages


def _fixed(depths: IntArray) -> Chooser:
    return lambda importance: depths


def read_schedule(
    *, queries: FloatArray, cache: PrefixCache, key_depths: Any, value_depths: Any, softmax_scale: float | None = None
) -> dict[str, Any]:
    """Attention from prefixes of given depths: key_depths [H, d], value_depths [H, T], each 0..stored_depth.

    Results as `readkv_attention`. Raises ArgumentError for a shape or a depth beyond what is stored.

    Source: ReadKV Sec. 3.2 (the decoders, apart from the allocation).
    """
    H, T, d = cache.key_codes.shape
    sizes, stored = Sizes({"H": H, "T": T, "d": d}), cache.stored_depth
    keys = integers("key_depths", key_depths, "H d", sizes, low=0, high=stored)
    values = integers("value_depths", value_depths, "H T", sizes, low=0, high=stored)
    return read_two_stages(queries, cache, _fixed(keys), _fixed(values), softmax_scale=softmax_scale)


def read_uniform(
    *, queries: FloatArray, cache: PrefixCache, key_depth: int, value_depth: int, softmax_scale: float | None = None
) -> dict[str, Any]:
    """Every key channel at one depth, every value token at one depth; the query chooses nothing.

    Source: ReadKV App. F.5 (Uniform depth).
    """
    H, T, d = cache.key_codes.shape
    return read_schedule(
        queries=queries,
        cache=cache,
        key_depths=np.full((H, d), whole("key_depth", key_depth, low=0, high=cache.stored_depth)),
        value_depths=np.full((H, T), whole("value_depth", value_depth, low=0, high=cache.stored_depth)),
        softmax_scale=softmax_scale,
    )


def read_full(*, queries: FloatArray, cache: PrefixCache, softmax_scale: float | None = None) -> dict[str, Any]:
    """The Full Reader (W, W): every stored bit is read at every step.

    Source: ReadKV Sec. 5 (Baseline Settings).
    """
    return read_uniform(
        queries=queries,
        cache=cache,
        key_depth=cache.stored_depth,
        value_depth=cache.stored_depth,
        softmax_scale=softmax_scale,
    )


def calibration_key_importance(*, rotated_queries: Any, key_scale: Any) -> FloatArray:
    """Equation (2) averaged over n calibration queries [n, H, G, d]: the importance [H, d] of a reader without query.

    Source: ReadKV App. F.5 (Calibration-only).

    >>> calibration_key_importance(rotated_queries=[[[[1.0]]], [[[3.0]]]], key_scale=[[2.0]]).tolist()
    [[20.0]]
    """
    sizes = Sizes()
    queries = real("rotated_queries", rotated_queries, "n H G d", sizes)
    scale = check_scales("key_scale", key_scale, "H d", sizes)
    if sizes["n"] == 0:
        raise ArgumentError("rotated_queries: expected at least one calibration query, got n=0")
    importance: FloatArray = np.sum((queries * scale[:, None]) ** 2, axis=2).mean(axis=0)
    return importance


def read_calibrated(
    *,
    queries: FloatArray,
    cache: PrefixCache,
    key_importance: Any,
    value_importance: Any,
    key_budget: int,
    value_budget: int,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """Calibration-only reading: importances [H, d] and [H, T] fixed before the query comes, budgets pooled.

    The paper does not print how it fixes the value importance; constant importances read tokens level by level.

    Source: ReadKV App. F.5, Table 9.
    """
    sizes = Sizes(zip("HTd", cache.key_codes.shape, strict=True))
    keys = check_importance("key_importance", key_importance, "H d", sizes)
    values = check_importance("value_importance", value_importance, "H T", sizes)
    choose_keys = pooled_chooser(cache.gains, whole("key_budget", key_budget, low=0))
    choose_values = pooled_chooser(cache.gains, whole("value_budget", value_budget, low=0))
    return read_two_stages(
        queries,
        cache,
        lambda importance: choose_keys(keys),
        lambda importance: choose_values(values),
        softmax_scale=softmax_scale,
    )


def two_depth_count(*, items: int, lower: int, upper: int, budget: int) -> int:
    """How many of N items can have the upper depth: the largest k with lower N + k (upper - lower) <= budget.

    Raises ArgumentError unless 0 <= lower < upper and lower N fits the budget.

    Source: ReadKV App. F.6.

    >>> two_depth_count(items=10, lower=1, upper=8, budget=25)
    2
    """
    lower = whole("lower", lower, low=0)
    upper = whole("upper", upper, low=lower + 1)
    left = whole("budget", budget, low=0) - lower * whole("items", items, low=0)
    if left < 0:
        raise ArgumentError(f"lower: expected a depth that fits the budget, got {items} x {lower} > {budget}")
    return min(items, left // (upper - lower))


def two_depth_spent(*, items: int, lower: int, upper: int, count: int) -> int:
    """Refinements of an exact-budget schedule: lower N + k (upper - lower). Compare multilevel reads at this budget.

    Source: ReadKV App. F.6.

    >>> two_depth_spent(items=10, lower=1, upper=8, count=2)
    24
    """
    return lower * items + count * (upper - lower)


def two_depth_schedule(*, importance: Any, lower: int, upper: int, budget: int) -> IntArray:
    """Depths [N] in {lower, upper}: the k most important items have the upper depth, lower index first among equals.

    Source: ReadKV App. F.6.

    >>> two_depth_schedule(importance=[1.0, 3.0, 2.0], lower=0, upper=8, budget=17).tolist()
    [0, 8, 8]
    """
    weights = check_importance("importance", importance, "N", Sizes())
    count = two_depth_count(items=len(weights), lower=lower, upper=upper, budget=budget)
    depths = np.full(len(weights), lower, dtype=np.int64)
    depths[np.argsort(-weights, kind="stable")[:count]] = upper
    return depths


def read_two_depth(
    *,
    queries: FloatArray,
    cache: PrefixCache,
    key_budget: int,
    value_budget: int,
    key_lower: int | None = 0,
    value_lower: int | None = 0,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """The reader with keys, values or both restricted to depths {lower, W}; None leaves a stage multilevel.

    Budgets are pooled refinements; a restricted stage spends lower N + k (W - lower) of its own.

    Source: ReadKV App. F.6, F.7.
    """

    def chooser(lower: int | None, budget: int) -> Chooser:
        if lower is None:
            return pooled_chooser(cache.gains, budget)

        def choose(importance: FloatArray) -> IntArray:
            flat = two_depth_schedule(
                importance=importance.ravel(), lower=lower, upper=cache.stored_depth, budget=budget
            )
            return flat.reshape(importance.shape)

        return choose

    choose_keys = chooser(key_lower, whole("key_budget", key_budget, low=0))
    choose_values = chooser(value_lower, whole("value_budget", value_budget, low=0))
    return read_two_stages(queries, cache, choose_keys, choose_values, softmax_scale=softmax_scale)


def protected_layers(*, layers: int, edge: int = 2) -> list[bool]:
    """Which layers stay dense: the first and the last ``edge`` (the papers' dagger rows) -> [layers].

    Source: ReadKV Sec. 5 (Baseline Settings).

    >>> protected_layers(layers=6)
    [True, True, False, False, True, True]
    """
    layers, edge = whole("layers", layers, low=0), whole("edge", edge, low=0)
    return [layer < edge or layer >= layers - edge for layer in range(layers)]


def read_layer(*, layer: int, protected: list[bool], dense: Callable[[], Any], compressed: Callable[[], Any]) -> Any:
    """The output of one layer under protection: ``dense()`` for a protected layer, else ``compressed()``.

    >>> read_layer(layer=0, protected=[True, False], dense=lambda: "dense", compressed=lambda: "prefixes")
    'dense'
    """
    return dense() if protected[whole("layer", layer, low=0, high=len(protected) - 1)] else compressed()
