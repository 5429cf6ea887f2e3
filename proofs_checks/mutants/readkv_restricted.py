"""Wrong restricted readers: pairs, odd tails, remainders, budgets of a head, the minimum depth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from proofs_checks.mutants.readkv_parts import Parts, read, restricted_of
from proofs_checks.mutants.registry import mutant
from refimpl.readkv.allocation import choose_group_depths, readkv_choose_depths
from refimpl.readkv.restricted import group_chooser, pair_costs
from refimpl.readkv.rotation import readkv_rotate

R = "readkv_restricted_attention"


def broken(name: str, suspect: str, what: str, **rules: Any) -> None:
    """Register a restricted reader with one rule exchanged; other keywords are parts."""
    own = {k: rules.pop(k) for k in ("choose_keys", "choose_values") if k in rules}
    mutant(name, R, suspect, what)(restricted_of(Parts(**rules), **own))


def _pairs(importance: Any, gains: Any, rate: Any, summed: Any, costs: Any = None, budget: Any = None) -> Any:
    """Values by pairs whose importance is ``summed`` [H, pairs]."""
    T = importance.shape[1]
    widths = pair_costs(T)
    costs, budget = widths if costs is None else costs, math.floor(rate * T) if budget is None else budget
    rows = [
        choose_group_depths(importance=row, costs=costs, gains=gains, budget=budget, minimum_depth=1) for row in summed
    ]
    return np.repeat(np.reshape(rows, (len(importance), len(widths))), widths, axis=1)


def _padded(importance: Any) -> Any:
    """[H, pairs, 2], an odd last token beside a 0."""
    H, T = importance.shape
    return np.pad(importance, ((0, 0), (0, T % 2))).reshape(H, -1, 2)


def _by_maximum(importance: Any, gains: Any, rate: Any) -> Any:
    return _pairs(importance, gains, rate, _padded(importance).max(axis=-1))


def _by_first(importance: Any, gains: Any, rate: Any) -> Any:
    return _pairs(importance, gains, rate, _padded(importance)[..., 0])


def _odd_costs_2(importance: Any, gains: Any, rate: Any) -> Any:
    T = importance.shape[1]
    widths = pair_costs(T)
    budget = math.floor(rate * T) + T % 2  # the minimum's extra cost is granted
    return _pairs(importance, gains, rate, _padded(importance).sum(axis=-1), np.full(len(widths), 2), budget)


def _odd_at_minimum(importance: Any, gains: Any, rate: Any) -> Any:
    depths = _pairs(importance, gains, rate, _padded(importance).sum(axis=-1))
    if depths.shape[1] % 2:
        depths[:, -1] = 1
    return depths


def _unpaired(importance: Any, gains: Any, rate: Any) -> Any:
    return group_chooser(gains, rate, per_head=True, minimum_depth=1, paired=False)(importance)


def _shifted(importance: Any, gains: Any, rate: Any) -> Any:
    """Tokens 2i+1 and 2i+2 are paired."""
    T = importance.shape[1]
    if T < 3:
        return _pairs(importance, gains, rate, _padded(importance).sum(axis=-1))
    starts = np.append(0, np.arange(1, T, 2))
    costs = np.diff(np.append(starts, T))
    rows = [
        choose_group_depths(
            importance=np.add.reduceat(row, starts),
            costs=costs,
            gains=gains,
            budget=math.floor(rate * T),
            minimum_depth=1,
        )
        for row in importance
    ]
    return np.repeat(np.array(rows), costs, axis=1)


def _spends_rest(importance: Any, gains: Any, rate: Any) -> Any:
    """What is left is given to single tokens."""
    depths = _pairs(importance, gains, rate, _padded(importance).sum(axis=-1))
    for row in depths:
        left = math.floor(rate * len(row)) - int(row.sum())
        for _ in range(left):
            row[int(np.argmin(row))] += 1
    return depths


def _pooled(importance: Any, gains: Any, rate: Any) -> Any:
    return group_chooser(gains, rate, per_head=False, minimum_depth=1, paired=False)(importance)


def _no_minimum(importance: Any, gains: Any, rate: Any) -> Any:
    return group_chooser(gains, rate, per_head=True, minimum_depth=0, paired=False)(importance)


def _pairs_without_minimum(importance: Any, gains: Any, rate: Any) -> Any:
    return group_chooser(gains, rate, per_head=True, minimum_depth=0, paired=True)(importance)


def _rounded_up(importance: Any, gains: Any, rate: Any) -> Any:
    budget = math.ceil(rate * importance.shape[1]) + (rate == int(rate) and rate < len(gains))
    return np.stack(
        [readkv_choose_depths(importance=row, gains=gains, budget=budget, minimum_depth=1) for row in importance]
    )


def _one_short(importance: Any, gains: Any, rate: Any) -> Any:
    N = importance.shape[1]
    budget = max(math.floor(rate * N) - 1, N)
    return np.stack(
        [readkv_choose_depths(importance=row, gains=gains, budget=budget, minimum_depth=1) for row in importance]
    )


broken("restricted-unpaired", "C", "value tokens are refined one by one", choose_values=_unpaired)
broken("restricted-pairs-shifted", "C", "tokens 2i+1 and 2i+2 are paired", choose_values=_shifted)
broken("restricted-pair-maximum", "C", "a pair ranks by its heavier token", choose_values=_by_maximum)
broken("restricted-pair-first", "C", "a pair ranks by its first token", choose_values=_by_first)
broken("restricted-odd-token-costs-2", "A", "an odd last token is charged as a pair", choose_values=_odd_costs_2)
broken("restricted-odd-token-at-minimum", "A", "an odd last token is never refined", choose_values=_odd_at_minimum)
broken("restricted-remainder-spent", "C", "what no pair can use is given to single tokens", choose_values=_spends_rest)
broken("restricted-keys-pooled", "C", "one key budget over all heads", choose_keys=_pooled)
broken("restricted-key-minimum-0", "C", "key channels may be at depth 0", choose_keys=_no_minimum)
broken("restricted-value-minimum-0", "C", "tokens may be at depth 0", choose_values=_pairs_without_minimum)
broken("restricted-budget-over", "C", "the key budget is one refinement too large", choose_keys=_rounded_up)
broken("restricted-budget-short", "C", "the key budget is one refinement too small", choose_keys=_one_short)
broken(
    "restricted-query-not-signed",
    "E",
    "the query is transformed without signs",
    rotate=lambda x, s: readkv_rotate(x=x, signs=np.ones(len(s))),
)
broken("restricted-output-not-rotated-back", "E", "the output stays in rotated coordinates", back=lambda m, s: m)
broken(
    "restricted-key-prefix-one-longer",
    "D",
    "key prefixes are read one bit longer",
    key_read=lambda t: np.minimum(t + 1, 8),
)
broken(
    "restricted-value-mean-forgotten",
    "D",
    "the mean is not added to values",
    restore_values=lambda m, s, z: s[:, None] * z,
)
broken(
    "restricted-exact-importance",
    "C",
    "values are ranked by attention on whole keys",
    value_weights=lambda weights, exact: exact,
)


@mutant("restricted-head-0-depths", R, "C", "all heads are read at head 0's key depths")
def head_0(*, rate: Any, stored_depth: int = 8, softmax_scale: Any = None, **inputs: Any) -> Any:
    """One schedule for all."""
    from refimpl.readkv.tree import deployed_table

    gains = deployed_table().gains[:stored_depth].astype(float)
    keys = group_chooser(gains, rate, per_head=True, minimum_depth=1, paired=False)
    values = group_chooser(gains, rate, per_head=True, minimum_depth=1, paired=True)

    def first(importance: Any) -> Any:
        depths = keys(importance)
        return np.broadcast_to(depths[:1], depths.shape).copy()

    return read(Parts(), inputs, first, values, softmax_scale)
