"""Wrong pooled readers: each exchanges one step of a right one."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.readkv_parts import Parts, attention_of, softmax
from proofs_checks.mutants.registry import mutant
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.rotation import fast_hadamard, readkv_rotate, unrotate

A = "readkv_attention"


def broken(name: str, suspect: str, what: str, **change: Any) -> None:
    """Register a reader with one part exchanged."""
    mutant(name, A, suspect, what)(attention_of(Parts(**change)))


def _sequency(x: Any, signs: Any) -> Any:
    """The rotation with rows by number of sign changes."""
    d = len(signs)
    matrix = fast_hadamard(np.eye(d))
    order = np.argsort(np.count_nonzero(np.diff(matrix, axis=1), axis=1))
    return readkv_rotate(x=x, signs=signs)[..., order]


def _per_head(importance: Any, gains: Any, budget: int) -> Any:
    share = budget // len(importance)
    return np.stack([readkv_choose_depths(importance=row, gains=gains, budget=share) for row in importance])


def _per_item(importance: Any, gains: Any, budget: int) -> Any:
    return np.full(importance.shape, budget // importance.size if importance.size else 0)


def _by_token(importance: Any, gains: Any, budget: int) -> Any:
    """Ties and all in token-major order: a transposed view is flattened."""
    flat = readkv_choose_depths(importance=importance.ravel(), gains=gains, budget=budget)
    return flat.reshape(importance.shape[::-1]).T


def _overflowing(logits: Any) -> Any:
    with np.errstate(over="ignore", invalid="ignore"):
        weights = np.exp(logits.astype(np.float32))
        return weights / weights.sum(axis=-1, keepdims=True)


def _forget_mean(mean: Any, scale: Any, z: Any) -> Any:
    """z = 0 only at depth 0, where the token is skipped: its mean is not added."""
    return np.where(z == 0, 0.0, mean[:, None].astype(float) + scale[:, None] * z)


def _renormalised(weights: Any, values: Any, depths: Any) -> Any:
    kept = weights * (depths > 0)[:, None]
    total = kept.sum(axis=-1, keepdims=True)
    return np.einsum("hgt,htd->hgd", np.divide(kept, total, out=np.zeros_like(kept), where=total > 0), values)


def _half_importance(weights: Any) -> Any:
    return np.sum((weights.astype(np.float16) ** 2).astype(float), axis=1)


def _last_odd_lost(weights: Any, values: Any, depths: Any) -> Any:
    even = weights.shape[-1] // 2 * 2
    even = even or weights.shape[-1]
    return np.einsum("hgt,htd->hgd", weights[..., :even], values[:, :even])


def _tiled(queries: Any) -> Any:
    H, G, d = queries.shape
    return np.swapaxes(queries.reshape(G, H, d), 0, 1)


def _tiled_back(mixed: Any, signs: Any) -> Any:
    H, G, d = mixed.shape
    return unrotate(x=np.swapaxes(mixed, 0, 1).reshape(H, G, d), signs=signs)


broken(
    "read-query-not-signed",
    "E",
    "the query is transformed without signs",
    rotate=lambda x, s: readkv_rotate(x=x, signs=np.ones(len(s))),
)
broken("read-query-not-rotated", "E", "the query is not rotated", rotate=lambda x, s: x)
broken("read-query-in-sequency-order", "E", "the query's transform orders rows by sign changes", rotate=_sequency)
broken("read-query-unscaled", "E", "the query's transform lacks 1/sqrt(d)", rotate=lambda x, s: fast_hadamard(x * s))
broken("read-output-not-rotated-back", "E", "the output stays in rotated coordinates", back=lambda m, s: m)
broken(
    "read-output-rotated-forward",
    "E",
    "U instead of its transpose at the end",
    back=lambda m, s: readkv_rotate(x=m, signs=s),
)
broken(
    "read-output-without-signs",
    "E",
    "the inverse transform lacks its signs",
    back=lambda m, s: unrotate(x=m, signs=np.ones(len(s))),
)
broken("read-heads-tiled", "G", "query heads are tiled over KV heads", heads=_tiled, back=_tiled_back)
broken("read-key-budget-per-head", "C", "the key budget is split evenly over heads", choose_keys=_per_head)
broken("read-value-budget-per-head", "C", "the value budget is split evenly over heads", choose_values=_per_head)
broken("read-keys-uniform", "C", "every key channel has the mean depth", choose_keys=_per_item)
broken("read-values-uniform", "C", "every token has the mean depth", choose_values=_per_item)
broken("read-value-depths-transposed", "C", "value depths are unflattened token-major", choose_values=_by_token)
broken(
    "read-key-importance-maximum",
    "C",
    "the largest square of the group",
    key_importance=lambda q, s: np.max((q * s[:, None]) ** 2, axis=1),
)
broken(
    "read-key-importance-no-scale",
    "C",
    "sigma is left out of the key importance",
    key_importance=lambda q, s: np.sum(q**2, axis=1),
)
broken(
    "read-value-importance-exact",
    "C",
    "values are ranked by attention on whole keys, not on the prefixes read",
    value_weights=lambda weights, exact: exact,
)
broken(
    "read-value-importance-not-squared",
    "C",
    "values are ranked by weights, not squares",
    value_importance=lambda w: w.sum(axis=1),
)
broken(
    "read-value-importance-sum-squared",
    "C",
    "the group's sum is squared",
    value_importance=lambda w: w.sum(axis=1) ** 2,
)
broken("read-value-importance-half", "I", "squares of weights are taken in float16", value_importance=_half_importance)
broken(
    "read-key-prefix-one-longer",
    "D",
    "key prefixes are read one bit longer than chosen",
    key_read=lambda t: np.minimum(t + 1, 8),
)
broken(
    "read-key-prefix-one-shorter", "D", "key prefixes are read one bit shorter", key_read=lambda t: np.maximum(t - 1, 0)
)
broken(
    "read-key-depth-doubled",
    "D",
    "key planes are counted for keys and values together: twice the depth",
    key_read=lambda t: np.minimum(2 * t, 8),
)
broken("read-whole-keys", "D", "all key planes are read whatever was chosen", key_read=lambda t: np.full_like(t, 8))
broken(
    "read-value-prefix-one-longer",
    "D",
    "value prefixes are read one bit longer than chosen",
    value_read=lambda t: np.minimum(t + 1, 8),
)
broken(
    "read-whole-values", "D", "all value planes are read whatever was chosen", value_read=lambda t: np.full_like(t, 8)
)
broken("read-key-scale-forgotten", "D", "sigma is not applied to keys", restore_keys=lambda m, s, z: m[:, None] + z)
broken(
    "read-value-scale-forgotten", "D", "sigma is not applied to values", restore_values=lambda m, s, z: m[:, None] + z
)
broken(
    "read-value-mean-forgotten", "D", "the mean is not added to values", restore_values=lambda m, s, z: s[:, None] * z
)
broken(
    "read-mean-forgotten-at-depth-0",
    "D",
    "tokens of depth 0 are skipped: their mean is not added",
    restore_values=_forget_mean,
)
broken(
    "read-depth-0-renormalised", "D", "tokens of depth 0 are skipped and the weights renormalised", mix=_renormalised
)
broken("read-scale-ignored", "B", "an explicit softmax scale is ignored", default_scale=True)
broken("read-no-maximum", "B", "exp of the logits without their maximum subtracted", softmax=_overflowing)
broken("read-base-2", "B", "2^z where e^z is meant", softmax=lambda z: softmax(z * np.log(2)))
broken("read-stored-depth-ignored", "A", "8 bits are read whatever is stored", stored=lambda depth: 8)
broken("read-last-odd-token-lost", "A", "the last token is left out where T is odd", mix=_last_odd_lost)


@mutant("read-one-key-refinement-short", A, "C", "one refinement of the key budget is unspent")
def key_short(*, key_budget: int, **inputs: Any) -> Any:
    """Off by one."""
    return attention_of(Parts())(key_budget=max(key_budget - 1, 0), **inputs)


@mutant("read-left-keys-to-values", A, "C", "unspent key budget is given to the values")
def left_over(*, key_budget: int, value_budget: int, **inputs: Any) -> Any:
    """Budgets are of different units."""
    first = attention_of(Parts())(key_budget=key_budget, value_budget=value_budget, **inputs)
    left = key_budget - int(first["key_depths"].sum())
    most = first["value_depths"].size * inputs.get("stored_depth", 8)
    return attention_of(Parts())(key_budget=key_budget, value_budget=min(value_budget + left, most), **inputs)
