"""The reader's two stages: one decode step from codes, under the flexible and under the restricted policy.

Mirrors `refimpl.readkv.reader.readkv_attention` and `refimpl.readkv.restricted.readkv_restricted_attention`. Codes are
packed into planes first; then `chain.py` runs, on matrix units (`fast.py`) where the queries are bfloat16 and the
device has them. Other readers of a cache are `full_reader` (every stored bit) and `restricted_reader`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import torch

from fastimpl.checks import FLOATS, ArgumentError, Sizes, scale_of, whole
from fastimpl.readkv.cache import PlaneCache, empty_cache, encode
from fastimpl.readkv.chain import FLEXIBLE, RESTRICTED, Policy, ReadChain
from fastimpl.readkv.fast import FastChain, able
from fastimpl.readkv.rotation import check_signs
from fastimpl.readkv.tree import LEVELS

SINGLE, CODES = (torch.float32,), (torch.uint8,)


def chain_for(
    queries: torch.Tensor, cache: PlaneCache, policy: Policy, key_lefts: torch.Tensor, value_lefts: torch.Tensor,
    scale: float,
) -> ReadChain:  # fmt: skip
    """The fastest chain that takes these queries [N, H, G, d] here."""
    kind = FastChain if able(queries) else ReadChain
    return kind(queries, cache, policy, key_lefts, value_lefts, scale)


def full_reader(queries: torch.Tensor, cache: PlaneCache, scale: float) -> ReadChain:
    """The Full Reader (W, W) of queries [N, H, G, d]: every channel and every token at the stored depth."""
    policy = Policy(per_head=True, minimum=cache.stored_depth, paired=False)
    none = torch.zeros(cache.rows, dtype=torch.int64, device=queries.device)
    return chain_for(queries, cache, policy, none, none, scale)


def restricted_reader(queries: torch.Tensor, cache: PlaneCache, rate: Any, scale: float) -> ReadChain:
    """The restricted reader at mean depth ``rate``, budgets from the cache's lengths now (`restricted_lefts`)."""
    keys, values = restricted_lefts(cache, rate)
    return chain_for(queries, cache, RESTRICTED, keys, values, scale)


def restricted_lefts(cache: PlaneCache, rate: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Refinements beyond depth 1 of keys and of values, [N * H] int64: what a chain's budgets are rewritten with.

    Raises ArgumentError for a rate outside 1..stored_depth. Reads the lengths back to the host.
    """
    if refinements("rate", rate, 1, cache.stored_depth) < 1:
        raise ArgumentError(f"rate: expected at least 1 (the minimum depth), got {rate!r}")
    tokens = cache.lengths.tolist()
    counts = ([cache.channels] * len(tokens), tokens)
    lefts = [[refinements("rate", rate, n, cache.stored_depth) - n for n in each] for each in counts]
    keys, values = (torch.tensor(left, dtype=torch.int64, device=cache.lengths.device) for left in lefts)
    return keys.repeat_interleave(cache.heads), values.repeat_interleave(cache.heads)


def refinements(name: str, rate: Any, items: int, stored_depth: int) -> int:
    """floor(rate * items); a float stands for its shortest decimal (AMB-33).

    >>> refinements("rate", 0.29, 100, 8)
    29
    """
    if isinstance(rate, bool) or not isinstance(rate, (int, float, Fraction)) or not math.isfinite(rate):
        raise ArgumentError(f"{name}: expected a finite number, got {rate!r}")
    value = Fraction(repr(rate)) if isinstance(rate, float) else Fraction(rate)
    if not 0 <= value <= stored_depth:
        raise ArgumentError(f"{name}: expected 0..{stored_depth} (the stored depth), got {rate!r}")
    return math.floor(value * items)


Codes = tuple[torch.Tensor, torch.Tensor]


def one_sequence(queries: Any, arrays: dict[str, Any], stored_depth: Any) -> tuple[torch.Tensor, PlaneCache, Codes]:
    """The queries [1, H, G, d], an empty cache of one sequence at its length, and the codes [1, H, T, d] for it.

    Raises ArgumentError for a dtype, shape, sign or scale.
    """
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    keys, values = (sizes.bind(name, arrays[name], "H T d", CODES)[None] for name in ("key_codes", "value_codes"))
    state = {name: sizes.bind(name, arrays[name], "H d", SINGLE).contiguous()
             for name in ("key_mean", "key_scale", "value_mean", "value_scale")}  # fmt: skip
    for name in ("key_scale", "value_scale"):
        if bool((state[name] <= 0).any()):
            raise ArgumentError(f"{name}: expected positive scales, got a dead channel {float(state[name].min())}")
    state |= {name: check_signs(sizes, name, arrays[name]) for name in ("key_signs", "value_signs")}
    cache = empty_cache(1, sizes["T"], state, whole("stored_depth", stored_depth, 1, LEVELS))
    cache.lengths.fill_(sizes["T"])
    return queries[None], cache, (keys, values)


def step_of(
    queries: torch.Tensor, cache: PlaneCache, codes: Codes, policy: Policy, lefts: tuple[list[int], list[int]],
    scale: float,
) -> Callable[[], dict[str, torch.Tensor]]:  # fmt: skip
    """One decode step: packs the codes, runs the chain, and returns what the stages return."""
    (H, G, _), tokens = queries.shape[1:], codes[0].shape[2]
    budgets = [torch.tensor(left, dtype=torch.int64, device=queries.device) for left in lefts]
    chain = chain_for(queries, cache, policy, *budgets, scale) if H and G else None

    def step() -> dict[str, torch.Tensor]:
        encode(cache, *codes)
        if chain is not None and tokens:
            chain.run()
        elif chain is not None:
            chain.choose_keys()
            chain.output.zero_()
        if chain is None:
            depths = queries.new_zeros((H, queries.shape[3] + tokens), dtype=torch.int32)
            return {"output": queries.new_zeros((H, G, queries.shape[3])), "key_depths": depths[:, tokens:],
                    "value_depths": depths[:, :tokens], "weights": queries.new_zeros((H, G, tokens)).float()}  # fmt: skip
        return {"output": chain.output[0], "key_depths": chain.key_depths,
                "value_depths": chain.value_depths[:, :tokens].int(), "weights": chain.weights(tokens)}  # fmt: skip

    return step


def flexible_lefts(cache: PlaneCache, tokens: int, key_budget: Any, value_budget: Any) -> tuple[list[int], list[int]]:
    """Checked budgets of one pool. Raises ArgumentError for a range."""
    H, d, W = cache.heads, cache.channels, cache.stored_depth
    keys, values = (
        whole("key_budget", key_budget, 0, H * d * W),
        whole("value_budget", value_budget, 0, H * tokens * W),
    )
    return [keys], [values]


def readkv_attention(
    *, queries: Any, key_codes: Any, value_codes: Any, key_mean: Any, key_scale: Any, value_mean: Any,
    value_scale: Any, key_signs: Any, value_signs: Any, key_budget: int, value_budget: int, stored_depth: int = 8,
    softmax_scale: float | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """One decode step from codes: queries [H,G,d], codes [H,T,d] -> output, key_depths, value_depths, weights.

    Budgets are refinements pooled over the KV heads (ReadKV Alg. 1). Raises ArgumentError for a dtype, shape, sign,
    scale or budget.
    """
    arrays = {"key_codes": key_codes, "value_codes": value_codes, "key_mean": key_mean, "key_scale": key_scale,
              "value_mean": value_mean, "value_scale": value_scale, "key_signs": key_signs,
              "value_signs": value_signs}  # fmt: skip
    queries, cache, codes = one_sequence(queries, arrays, stored_depth)
    lefts = flexible_lefts(cache, codes[0].shape[2], key_budget, value_budget)
    return step_of(queries, cache, codes, FLEXIBLE, lefts, scale_of(softmax_scale, cache.channels))()


def readkv_restricted_attention(
    *, queries: Any, key_codes: Any, value_codes: Any, key_mean: Any, key_scale: Any, value_mean: Any,
    value_scale: Any, key_signs: Any, value_signs: Any, rate: Any, stored_depth: int = 8,
    softmax_scale: float | None = None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    """`readkv_attention` at one mean depth for keys and values of every head, least depth 1, value tokens in pairs.

    Source: ReadKV App. F.8, G. Raises ArgumentError also for a rate outside 1..stored_depth.
    """
    arrays = {"key_codes": key_codes, "value_codes": value_codes, "key_mean": key_mean, "key_scale": key_scale,
              "value_mean": value_mean, "value_scale": value_scale, "key_signs": key_signs,
              "value_signs": value_signs}  # fmt: skip
    queries, cache, codes = one_sequence(queries, arrays, stored_depth)
    keys, values = restricted_lefts(cache, rate)
    step = step_of(queries, cache, codes, RESTRICTED, (keys.tolist(), values.tolist()),
                   scale_of(softmax_scale, cache.channels))  # fmt: skip
    return step()
