"""The two-stage reader as a chain of fixed shapes, and the two stages that call it.

Mirrors `refimpl.readkv.reader.readkv_attention` and `refimpl.readkv.restricted.readkv_restricted_attention`.

    queries --rotate--> importance of channels --choose--> key depths --prefix planes--> logits --softmax--> weights
    weights --square--> importance of tokens --threshold--> value depths --prefix planes--> mix --rotate back--> output

Lengths, budgets, queries and planes are read on the device and nothing is allocated, so the chain can be captured in a
CUDA graph and replayed as sequences grow. ``fast`` reads planes on NVIDIA's matrix units (`lanes.py`); the plain
kernels (`prefix.py`) compute in float32 anywhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import torch

from fastimpl.checks import FLOATS, ArgumentError, Sizes, scale_of, whole
from fastimpl.device import LOG2E, dependent_launch, multiprocessors, padded
from fastimpl.readkv.cache import PlaneCache, empty_cache, encode
from fastimpl.readkv.choose import SMALL, choose_in_registers
from fastimpl.readkv.merge import output_kernel, query_kernel
from fastimpl.readkv.prefix import key_logits_kernel, value_mix_kernel
from fastimpl.readkv.rotation import check_signs
from fastimpl.readkv.threshold import STATE, Allocation
from fastimpl.readkv.tree import LEVELS, tables
from fastimpl.readkv.weigh import weigh_kernel, weights_kernel

SINGLE, CODES = (torch.float32,), (torch.uint8,)


@dataclass(frozen=True)
class Policy:
    """How depths are bought: a budget per KV head or one per sequence, the least depth, tokens alone or in pairs."""

    per_head: bool
    minimum: int
    paired: bool


FLEXIBLE = Policy(per_head=False, minimum=0, paired=False)
RESTRICTED = Policy(per_head=True, minimum=1, paired=True)


class ReadChain:
    """Buffers and launches of one decode step; `run` allocates nothing.

    Args:
        queries: [N, H, G, d], rewritten between runs. cache: planes of N sequences.
        key_lefts, value_lefts: int64 on the device, one per pool (N * H where ``policy.per_head``, else N): refinements
            beyond the minimum depth; rewritten as sequences grow.
        scale: factor on the logits.
    """

    TOKENS = 128

    def __init__(
        self, queries: torch.Tensor, cache: PlaneCache, policy: Policy, key_lefts: torch.Tensor,
        value_lefts: torch.Tensor, scale: float,
    ) -> None:  # fmt: skip
        N, H, G, d = queries.shape
        self.queries, self.cache, self.policy, self.scale = queries, cache, policy, scale
        self.key_lefts, self.rows, self.group = key_lefts, N * H, padded(G, 8)
        self.rows_per_pool = 1 if policy.per_head else H
        self.gains = tables(queries.device).gains[: cache.stored_depth].contiguous()
        self.tiles = -(-cache.longest // self.TOKENS)
        self.splits = min(self.tiles, max(1, 2 * multiprocessors(queries.device) // self.rows))

        def make(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=kind, device=queries.device)

        self.rotated, self.key_importance = make(self.rows, G, d), make(self.rows, d)
        self.key_depths = make(self.rows, d, kind=torch.int32)
        self.logits, self.lses = make(self.rows, cache.capacity, self.group), make(self.rows, self.group)
        self.largests, self.totals = make(self.rows, self.tiles, self.group), make(self.rows, self.tiles, self.group)
        items = -(-cache.longest // 2) if policy.paired else cache.longest
        self.importance = make(self.rows, items)
        self.value_depths = make(self.rows, cache.capacity, kind=torch.int8)
        self.mixes = make(self.rows, self.splits, self.group, d)
        self.output = make(N, H, G, d, kind=queries.dtype)
        self.allocation = Allocation(
            self.importance,
            self.gains,
            value_lefts,
            policy.minimum,
            self.rows_per_pool,
            cache.lengths,
            H,
            policy.paired,
        )
        self.key_allocation: Allocation | None = None
        levels = cache.stored_depth - policy.minimum
        if padded(self.rows_per_pool * d) * padded(levels, 2) > SMALL and levels:
            flat = self.key_importance.view(-1, self.rows_per_pool * d)
            self.key_allocation = Allocation(flat, self.gains, key_lefts, policy.minimum)
        self.launch = dependent_launch(queries.device)
        self.shape = {"W": cache.stored_depth, "G": G, "G_PAD": padded(G), "GP": self.group, "D": d, "D_PAD": padded(d)}

    def run(self) -> torch.Tensor:
        """Launch the chain; the output [N, H, G, d] in the chain's own buffer."""
        self.choose_keys()
        self.read_keys()
        self.weigh()
        self.allocation.resolve()
        self.read_values()
        self.merge()
        return self.output

    def choose_keys(self) -> None:
        """Rotated queries, importances of channels, depths of channels."""
        cache, (_, H, G, d) = self.cache, self.queries.shape
        self.allocation.bins.zero_()
        self.allocation.state.zero_()
        query_kernel[(self.rows,)](
            self.queries, cache.key_signs, cache.key_scale, self.rotated, self.key_importance, H,
            *self.queries.stride()[:3], 1.0 / math.sqrt(d), G=G, G_PAD=padded(G), D=d, D_PAD=padded(d), **self.launch,
        )  # fmt: skip
        shape = (-1, self.rows_per_pool * d)
        if cache.stored_depth == self.policy.minimum:
            self.key_depths.fill_(self.policy.minimum)
        elif self.key_allocation is not None:
            self.key_allocation.choose(self.key_depths.view(shape))
        else:
            choose_in_registers(self.key_importance.view(shape), self.gains, self.key_lefts, self.policy.minimum,
                                self.key_depths.view(shape))  # fmt: skip

    def read_keys(self) -> None:
        """Logits from key prefixes."""
        cache = self.cache
        key_logits_kernel[(self.tiles, self.rows)](
            cache.key_planes, self.rotated, cache.key_scale, self.key_depths, tables(self.queries.device).centroids,
            cache.lengths, self.logits, self.largests, self.totals, cache.heads, cache.key_planes.shape[3],
            cache.capacity, self.scale * LOG2E.value, self.tiles, TOKENS=self.TOKENS, num_warps=8, **self.shape,
            **self.launch,
        )  # fmt: skip

    def weigh(self) -> None:
        """Log-masses, importances of tokens, and their bins."""
        cache, paired, tokens = self.cache, self.policy.paired, 512
        weigh_kernel[(-(-cache.longest // tokens), self.rows)](
            self.logits, self.largests, self.totals, self.lses, self.importance, self.allocation.bins, cache.lengths,
            cache.heads, cache.capacity, self.importance.shape[1], self.tiles, self.rows_per_pool,
            self.allocation.cost, G=self.queries.shape[2], GP=self.group, TOKENS=tokens,
            STEP=min(padded(self.tiles, 1), 128), PAIRED=paired, **self.launch,
        )  # fmt: skip

    def read_values(self) -> None:
        """Depths of tokens and the mix of their prefixes."""
        cache, policy = self.cache, self.policy
        value_mix_kernel[(self.splits, self.rows)](
            cache.value_planes, self.logits, self.lses, self.importance, self.gains, self.allocation.state,
            tables(self.queries.device).centroids, cache.lengths, self.value_depths, self.mixes, cache.heads,
            cache.capacity, self.importance.shape[1], self.rows_per_pool, policy.minimum, self.splits,
            TOKENS=self.TOKENS, PAIRED=policy.paired, STATE=STATE, num_warps=8, **self.allocation.shape, **self.shape,
            **self.launch,
        )  # fmt: skip

    def merge(self) -> None:
        """The output out of the splits' mixes."""
        cache, (_, H, G, d) = self.cache, self.queries.shape
        output_kernel[(self.rows * G,)](
            self.mixes, cache.value_mean, cache.value_scale, cache.value_signs, cache.lengths, self.output, H,
            self.splits, 1.0 / math.sqrt(d), G=G, GP=self.group, D=d, D_PAD=padded(d),
            STEP=min(padded(self.splits, 1), 32), **self.launch,
        )  # fmt: skip

    def weights(self, tokens: int) -> torch.Tensor:
        """The attention weights [N * H, G, tokens] of the last run."""
        G = self.queries.shape[2]
        weights = torch.empty((self.rows, G, tokens), dtype=torch.float32, device=self.queries.device)
        if weights.numel():
            weights_kernel[(-(-tokens // 256), self.rows)](
                self.logits, self.lses, weights, self.cache.lengths, self.cache.heads, self.cache.capacity, tokens,
                G=G, GP=self.group, TOKENS=256,
            )  # fmt: skip
        return weights


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


def _one_sequence(queries: Any, arrays: dict[str, Any], stored_depth: Any) -> tuple[torch.Tensor, PlaneCache]:
    """The queries [1, H, G, d] and a cache of the codes. Raises ArgumentError for a dtype, shape, sign or scale."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    codes = [sizes.bind(name, arrays[name], "H T d", CODES) for name in ("key_codes", "value_codes")]
    state = {name: sizes.bind(name, arrays[name], "H d", SINGLE).contiguous()
             for name in ("key_mean", "key_scale", "value_mean", "value_scale")}  # fmt: skip
    for name in ("key_scale", "value_scale"):
        if bool((state[name] <= 0).any()):
            raise ArgumentError(f"{name}: expected positive scales, got a dead channel {float(state[name].min())}")
    state |= {name: check_signs(sizes, name, arrays[name]) for name in ("key_signs", "value_signs")}
    cache = empty_cache(1, sizes["T"], state, whole("stored_depth", stored_depth, 1, LEVELS))
    cache.lengths.fill_(sizes["T"])
    encode(cache, codes[0][None], codes[1][None])
    return queries[None], cache


def _read(
    queries: torch.Tensor, cache: PlaneCache, policy: Policy, lefts: tuple[list[int], list[int]], tokens: int,
    softmax_scale: float | None,
) -> dict[str, torch.Tensor]:  # fmt: skip
    H, G, d = queries.shape[1:]
    if 0 in (H, G, tokens):
        device = queries.device
        depths = torch.full((H, d), policy.minimum, dtype=torch.int32, device=device)
        if H and G:
            depths = _key_depths_alone(queries, cache, policy, lefts)
        return {"output": torch.zeros_like(queries[0]), "key_depths": depths,
                "value_depths": torch.zeros((H, tokens), dtype=torch.int32, device=device),
                "weights": torch.zeros((H, G, tokens), dtype=torch.float32, device=device)}  # fmt: skip
    budgets = [torch.tensor(left, dtype=torch.int64, device=queries.device) for left in lefts]
    chain = ReadChain(queries, cache, policy, *budgets, scale_of(softmax_scale, d))
    output = chain.run()
    return {"output": output[0], "key_depths": chain.key_depths, "value_depths": chain.value_depths[:, :tokens].int(),
            "weights": chain.weights(tokens)}  # fmt: skip


def _key_depths_alone(
    queries: torch.Tensor, cache: PlaneCache, policy: Policy, lefts: tuple[list[int], list[int]]
) -> torch.Tensor:
    budgets = [torch.tensor(left, dtype=torch.int64, device=queries.device) for left in lefts]
    chain = ReadChain(queries, cache, policy, *budgets, 1.0)
    chain.choose_keys()
    return chain.key_depths


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
    queries, cache = _one_sequence(queries, arrays, stored_depth)
    H, T, d = key_codes.shape
    keys = whole("key_budget", key_budget, 0, H * d * cache.stored_depth)
    values = whole("value_budget", value_budget, 0, H * T * cache.stored_depth)
    return _read(queries, cache, FLEXIBLE, ([keys], [values]), T, softmax_scale)


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
    queries, cache = _one_sequence(queries, arrays, stored_depth)
    H, T, d = key_codes.shape
    if refinements("rate", rate, 1, cache.stored_depth) < 1:
        raise ArgumentError(f"rate: expected at least 1 (the minimum depth), got {rate!r}")
    lefts = [[refinements("rate", rate, items, cache.stored_depth) - items] * H for items in (d, T)]
    return _read(queries, cache, RESTRICTED, (lefts[0], lefts[1]), T, softmax_scale)
