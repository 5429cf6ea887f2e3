"""Wrong importances and wrong allocations."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.importance import readkv_key_importance, readkv_value_importance

K = "readkv_key_importance"


@mutant("key-importance-maximum", K, "C", "the largest square of the group instead of the sum")
def key_maximum(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Right for one query."""
    return np.max((rotated_queries * key_scale[:, None]) ** 2, axis=1)


@mutant("key-importance-absolute", K, "C", "magnitudes instead of squares")
def key_absolute(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Another norm."""
    return np.sum(np.abs(rotated_queries * key_scale[:, None]), axis=1)


@mutant("key-importance-sum-squared", K, "C", "the sum over the group is squared, not its terms")
def key_sum_squared(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Queries of opposite sign cancel."""
    return np.sum(rotated_queries * key_scale[:, None], axis=1) ** 2


@mutant("key-importance-scale-once", K, "C", "sigma instead of sigma squared")
def key_scale_once(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Right for unit scales."""
    return np.sum(rotated_queries**2 * key_scale[:, None], axis=1)


@mutant("key-importance-no-scale", K, "C", "sigma is not applied")
def key_no_scale(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Right for unit scales."""
    return np.sum(rotated_queries**2, axis=1)


@mutant("key-importance-heads-tiled", K, "G", "query heads are tiled over KV heads")
def key_tiled(*, rotated_queries: Any, key_scale: Any) -> Any:
    """h mod H."""
    H, G, d = rotated_queries.shape
    tiled = np.swapaxes(rotated_queries.reshape(G, H, d), 0, 1)
    return readkv_key_importance(rotated_queries=tiled, key_scale=key_scale)


@mutant("key-importance-first-scale", K, "G", "every head uses the scales of head 0")
def key_first_scale(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Right for one head."""
    scale = np.broadcast_to(key_scale[:1], key_scale.shape)
    return readkv_key_importance(rotated_queries=rotated_queries, key_scale=scale)


@mutant("key-importance-half", K, "I", "squares are taken in float16")
def key_half(*, rotated_queries: Any, key_scale: Any) -> Any:
    """Loses bits and range."""
    with np.errstate(over="ignore"):
        rounded = rotated_queries.astype(np.float16).astype(float)
    return readkv_key_importance(rotated_queries=np.clip(rounded, -6e4, 6e4), key_scale=key_scale)


V = "readkv_value_importance"


@mutant("value-importance-not-squared", V, "C", "weights instead of their squares")
def value_plain(*, weights: Any, value_head_weight: Any = None) -> Any:
    """Sums instead of sums of squares."""
    factor = np.ones(len(weights)) if value_head_weight is None else value_head_weight
    return weights.sum(axis=1) * factor[:, None]


@mutant("value-importance-sum-squared", V, "C", "the sum over the group is squared, not its terms")
def value_sum_squared(*, weights: Any, value_head_weight: Any = None) -> Any:
    """Right for one query."""
    factor = np.ones(len(weights)) if value_head_weight is None else value_head_weight
    return weights.sum(axis=1) ** 2 * factor[:, None]


@mutant("value-importance-maximum", V, "C", "the largest square of the group")
def value_maximum(*, weights: Any, value_head_weight: Any = None) -> Any:
    """Right for one query."""
    factor = np.ones(len(weights)) if value_head_weight is None else value_head_weight
    return np.max(weights**2, axis=1) * factor[:, None]


@mutant("value-importance-no-head-weight", V, "C", "value_head_weight is not used")
def value_no_factor(*, weights: Any, value_head_weight: Any = None) -> Any:
    """U28: right for the default."""
    return readkv_value_importance(weights=weights)


@mutant("value-importance-head-weight-squared", V, "C", "value_head_weight is squared as well")
def value_factor_squared(*, weights: Any, value_head_weight: Any = None) -> Any:
    """AMB-24."""
    factor = None if value_head_weight is None else value_head_weight**2
    return readkv_value_importance(weights=weights, value_head_weight=factor)


@mutant("value-importance-heads-tiled", V, "G", "query heads are tiled over KV heads")
def value_tiled(*, weights: Any, value_head_weight: Any = None) -> Any:
    """h mod H."""
    H, G, T = weights.shape
    tiled = np.swapaxes(weights.reshape(G, H, T), 0, 1)
    return readkv_value_importance(weights=tiled, value_head_weight=value_head_weight)


@mutant("value-importance-half", V, "I", "squares are kept in float16: they underflow 8 nats below the largest")
def value_half(*, weights: Any, value_head_weight: Any = None) -> Any:
    """Light tokens get nothing."""
    with np.errstate(under="ignore"):
        squares = (weights**2).astype(np.float16).astype(float)
    factor = np.ones(len(weights)) if value_head_weight is None else value_head_weight
    return np.where(weights > 0.01, weights**2, squares).sum(axis=1) * factor[:, None]


C = "readkv_choose_depths"


@mutant("choose-one-short", C, "C", "one refinement of the budget is not spent")
def one_short(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Off by one."""
    least = minimum_depth * len(importance)
    return readkv_choose_depths(
        importance=importance, gains=gains, budget=max(budget - 1, least), minimum_depth=minimum_depth
    )


@mutant("choose-one-over", C, "C", "one refinement more than the budget is spent")
def one_over(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Off by one."""
    most = len(importance) * len(gains)
    return readkv_choose_depths(
        importance=importance, gains=gains, budget=min(budget + 1, most), minimum_depth=minimum_depth
    )


@mutant("choose-buys-zero-gain", C, "C", "what is left of the budget is spent on steps that gain nothing")
def zero_gain(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """AMB-20."""
    depths = readkv_choose_depths(importance=importance, gains=gains, budget=budget, minimum_depth=minimum_depth)
    for item in range(len(depths)):
        depths[item] += min(len(gains) - depths[item], budget - int(depths.sum()))
    return depths


@mutant("choose-uniform", C, "C", "the budget is spread evenly")
def uniform(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Importance is not used."""
    N = len(importance)
    return np.full(N, budget // N if N else 0) + (np.arange(N) < (budget % N if N else 0))


@mutant("choose-most-important-first", C, "C", "the most important item is filled before the next one")
def fill(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Gains are not used."""
    depths = np.full(len(importance), minimum_depth)
    for item in np.argsort(-importance, kind="stable"):
        if importance[item] > 0:
            depths[item] += min(np.count_nonzero(gains[minimum_depth:]), budget - int(depths.sum()))
    return depths


@mutant("choose-first-gain-for-all", C, "C", "every step is ranked by the gain of the first")
def first_gain(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """The curve is a line."""
    flat = np.where(gains > 0, gains[:1], 0.0)
    return readkv_choose_depths(importance=importance, gains=flat, budget=budget, minimum_depth=minimum_depth)


@mutant("choose-boundary-ties-all", C, "C", "all steps that tie at the boundary are bought")
def ties_all(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """A threshold compare with >=."""
    exact = readkv_choose_depths(importance=importance, gains=gains, budget=budget, minimum_depth=minimum_depth)
    worth = importance[:, None].astype(float) * gains
    bought = [worth[i, d - 1] for i, d in enumerate(exact) if d > minimum_depth]
    if not bought:
        return exact
    return np.maximum(exact, np.count_nonzero(worth >= min(bought), axis=1))


@mutant("choose-boundary-ties-none", C, "C", "no step that ties at the boundary is bought")
def ties_none(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """A threshold compare with >."""
    exact = readkv_choose_depths(importance=importance, gains=gains, budget=budget, minimum_depth=minimum_depth)
    worth = importance[:, None].astype(float) * gains
    left = [worth[i, d] for i, d in enumerate(exact) if d < len(gains)]
    bound = max(left, default=0.0)
    return np.maximum(minimum_depth, np.minimum(exact, np.count_nonzero(worth > bound, axis=1)))


@mutant("choose-minimum-free", C, "C", "the minimum depth does not count against the budget")
def minimum_free(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Overspends."""
    total = min(budget + minimum_depth * len(importance), len(importance) * len(gains))
    return readkv_choose_depths(importance=importance, gains=gains, budget=total, minimum_depth=minimum_depth)


@mutant("choose-minimum-ignored", C, "C", "minimum_depth is not used")
def minimum_ignored(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Right for 0."""
    return readkv_choose_depths(importance=importance, gains=gains, budget=budget)


@mutant("choose-half-products", C, "I", "weighted gains are compared in float16")
def half_products(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Light items vanish, close ones tie."""
    with np.errstate(over="ignore", under="ignore"):
        half = np.minimum(importance.astype(np.float16).astype(float), 6e4)
    return readkv_choose_depths(importance=half, gains=gains, budget=budget, minimum_depth=minimum_depth)


@mutant("choose-squares-again", C, "C", "importances, which are squares already, are squared")
def squared(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """Right for equal ones."""
    squares = importance.astype(float) ** 2
    return readkv_choose_depths(importance=squares, gains=gains, budget=budget, minimum_depth=minimum_depth)


@mutant("choose-highest-tie-though-declared", C, "C", "ties go to the higher item", TIES="lowest_index")
def highest_tie(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> Any:
    """AMB-19 binds where it is declared."""
    mirrored = readkv_choose_depths(
        importance=importance[::-1], gains=gains, budget=budget, minimum_depth=minimum_depth
    )
    return mirrored[::-1].copy()
