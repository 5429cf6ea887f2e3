"""The restricted GPU reader: per-head budgets, equal rates, a minimum depth and token pairs (App. F.8, G)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, IntArray
from refimpl.readkv.allocation import choose_group_depths
from refimpl.readkv.budgets import Rate, budget_of_rate, exact_rate
from refimpl.readkv.reader import Chooser, PrefixCache, check_cache, read_two_stages
from refimpl.readkv.tree import LEAF_DEPTH


@dataclass(frozen=True)
class Restrictions:
    """The four restrictions of Table 10, each its own switch; all off is the flexible reader at whole-layer rates."""

    equal_rates: bool = True
    """Keys and values have one rate."""
    per_head: bool = True
    """Each KV head spends its own budget instead of sharing one."""
    minimum_depth: int = 1
    """Every item is read at least to this depth."""
    paired_values: bool = True
    """Neighbouring value tokens 2i and 2i+1 share a depth."""


def pair_costs(tokens: int) -> IntArray:
    """Cost of one step of every pair of neighbouring tokens: 2, and 1 for an odd last token -> [ceil(T/2)].

    >>> pair_costs(5).tolist()
    [2, 2, 1]
    """
    return np.diff(np.append(np.arange(0, tokens, 2), tokens))


def group_chooser(
    gains: FloatArray, rate: Rate, *, per_head: bool, minimum_depth: int, paired: bool, name: str = "rate"
) -> Chooser:
    """The rule that spends floor(rate N) refinements on [H, N] importances under the given restrictions.

    >>> choose = group_chooser(np.array([0.5, 0.25]), 1.5, per_head=True, minimum_depth=1, paired=True)
    >>> choose(np.array([[1.0, 1.0, 9.0, 0.0]])).tolist()      # 6 refinements: 4 for the minimum, 2 for a pair
    [[1, 1, 2, 2]]
    """

    def choose(importance: FloatArray) -> IntArray:
        H, N = importance.shape
        costs = pair_costs(N) if paired else np.ones(N, dtype=np.int64)  # [groups of one head]
        starts = np.cumsum(costs) - costs
        summed = np.add.reduceat(importance, starts, axis=1) if N else importance  # [H, groups]
        pools = summed if per_head else summed.reshape(1, -1)
        pool_costs = costs if per_head else np.tile(costs, H)
        budget = budget_of_rate(rate=rate, items=int(pool_costs.sum()), stored_depth=len(gains), name=name)
        depths = [
            choose_group_depths(
                importance=pool, costs=pool_costs, gains=gains, budget=budget, minimum_depth=minimum_depth
            )
            for pool in pools
        ]
        return np.repeat(np.reshape(depths, (H, len(costs))), costs, axis=1).astype(np.int64)

    return choose


def read_restricted(
    queries: FloatArray,
    cache: PrefixCache,
    key_rate: Rate,
    value_rate: Rate,
    restrictions: Restrictions,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """A reader under any combination of Table 10's restrictions; results as `readkv_attention`.

    Raises ArgumentError if equal_rates is on and the rates differ, for a rate below minimum_depth or above the stored
    depth.

    Source: ReadKV App. F.8 (the factorial study), Table 10.
    """
    if restrictions.equal_rates and exact_rate("key_rate", key_rate) != exact_rate("value_rate", value_rate):
        raise ArgumentError(f"value_rate: expected the key rate {key_rate!r} (equal_rates), got {value_rate!r}")
    for name, rate in (("key_rate", key_rate), ("value_rate", value_rate)):
        if exact_rate(name, rate) < restrictions.minimum_depth:
            raise ArgumentError(f"{name}: expected at least minimum_depth={restrictions.minimum_depth}, got {rate!r}")

    def chooser(rate: Rate, paired: bool, name: str) -> Chooser:
        per_head, minimum_depth = restrictions.per_head, restrictions.minimum_depth
        return group_chooser(
            cache.gains, rate, per_head=per_head, minimum_depth=minimum_depth, paired=paired, name=name
        )

    choose_keys = chooser(key_rate, False, "key_rate")
    choose_values = chooser(value_rate, restrictions.paired_values, "value_rate")
    return read_two_stages(queries, cache, choose_keys, choose_values, softmax_scale=softmax_scale)


def readkv_restricted_attention(
    *,
    queries: Any,
    key_codes: Any,
    value_codes: Any,
    key_mean: Any,
    key_scale: Any,
    value_mean: Any,
    value_scale: Any,
    key_signs: Any,
    value_signs: Any,
    rate: Rate,
    stored_depth: int = LEAF_DEPTH,
    softmax_scale: float | None = None,
) -> dict[str, Any]:
    """`readkv_attention` under the timed GPU reader's policy: every restriction of `Restrictions` on.

    Per KV head, floor(rate d) key and floor(rate T) value refinements; every depth at least 1. Tokens 2i and 2i+1 share
    a depth, by their summed importance, and a step costs 2 (an odd last token alone costs 1). Steps go in order of
    importance times gain, lower index first; the first that does not fit ends buying and the rest is unspent.

    Args:
        rate: mean depth of keys and of values, 1..stored_depth.
        Others: as `readkv_attention`.

    Returns:
        As `readkv_attention`.

    Raises:
        ArgumentError: as `readkv_attention`; a rate below 1 or above stored_depth.

    Source: ReadKV App. F.8, G.

    Three value tokens at rate 1.5 have 4 refinements: 3 for the minimum, and the pair's step (2) no longer fits.

    >>> result = readkv_restricted_attention(queries=[[[0.0]]], key_codes=[[[0], [0], [0]]],
    ...     value_codes=[[[0], [0], [0]]], key_mean=[[0.0]], key_scale=[[1.0]], value_mean=[[0.0]],
    ...     value_scale=[[1.0]], key_signs=[1], value_signs=[1], rate=1.5)
    >>> result["key_depths"].tolist(), result["value_depths"].tolist()
    ([[1]], [[1, 1, 1]])
    """
    arrays = {
        "key_codes": key_codes,
        "value_codes": value_codes,
        "key_mean": key_mean,
        "key_scale": key_scale,
        "value_mean": value_mean,
        "value_scale": value_scale,
        "key_signs": key_signs,
        "value_signs": value_signs,
    }
    queries, cache = check_cache(queries, arrays, stored_depth)
    depth = exact_rate("rate", rate)
    if depth < 1:
        raise ArgumentError(f"rate: expected at least 1 (the minimum depth), got {rate!r}")
    if depth > cache.stored_depth:
        raise ArgumentError(f"rate: expected at most the stored depth {cache.stored_depth}, got {rate!r}")
    return read_restricted(queries, cache, rate, rate, Restrictions(), softmax_scale)
