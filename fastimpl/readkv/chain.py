"""The two-stage reader as a chain of fixed shapes.

Mirrors `refimpl.readkv.reader.read_two_stages` with the choosers of `pooled_chooser` and `group_chooser`.

    queries --rotate--> importance of channels --choose--> key depths --prefix planes--> logits --softmax--> weights
    weights --square--> importance of tokens --threshold--> value depths --prefix planes--> mix --rotate back--> output

Lengths, budgets, queries and planes are read on the device and nothing is allocated, so the chain can be captured in a
CUDA graph and replayed as sequences grow. The passes over planes here are the plain ones (`prefix.py`), in float32, for
any device; `fast.py` has the chain on NVIDIA's matrix units.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from fastimpl.device import INTERPRETED, LOG2E, dependent_launch, multiprocessors, padded
from fastimpl.readkv.bar import STATE
from fastimpl.readkv.cache import PlaneCache
from fastimpl.readkv.choose import SMALL, choose_in_registers
from fastimpl.readkv.merge import output_kernel, query_kernel
from fastimpl.readkv.prefix import key_logits_kernel, value_mix_kernel
from fastimpl.readkv.threshold import BINS, Allocation
from fastimpl.readkv.tree import tables
from fastimpl.readkv.weigh import weigh_kernel, weights_kernel


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

    TOKENS, LOGITS, LANES = (128 if INTERPRETED.value else 32), torch.float32, False

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
        self.splits = self.parts_of_values()

        def make(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
            return torch.empty(shape, dtype=kind, device=queries.device)

        self.rotated, self.key_importance = make(self.rows, G, d), make(self.rows, d)
        self.key_depths = make(self.rows, d, kind=torch.int32)
        self.logits = make(self.rows, cache.capacity, self.group, kind=self.LOGITS)
        self.lses = make(self.rows, self.group)
        self.largests, self.totals = make(self.rows, self.tiles, self.group), make(self.rows, self.tiles, self.group)
        items = -(-cache.longest // 2) if policy.paired else cache.longest
        self.importance = make(self.rows, items)
        self.value_depths = make(self.rows, cache.capacity, kind=torch.int8)
        self.mixes = make(self.rows, self.splits, self.group, d)
        self.output = make(N, H, G, d, kind=queries.dtype)
        pools = (self.rows_per_pool, cache.lengths, H, policy.paired)
        self.allocation = Allocation(self.importance, self.gains, value_lefts, policy.minimum, *pools)
        self.key_allocation: Allocation | None = None
        levels = cache.stored_depth - policy.minimum
        self.chosen = levels > 0  # else every stored bit is read
        if padded(self.rows_per_pool * d) * padded(levels, 2) > SMALL and levels:
            flat = self.key_importance.view(-1, self.rows_per_pool * d)
            self.key_allocation = Allocation(flat, self.gains, key_lefts, policy.minimum)
        self.launch = dependent_launch(queries.device)
        self.shape = {"W": cache.stored_depth, "G": G, "G_PAD": padded(G), "GP": self.group, "D": d, "D_PAD": padded(d)}

    def parts_of_values(self) -> int:
        """Programs per row of the value pass."""
        return min(self.tiles, max(1, 2 * multiprocessors(self.queries.device) // self.rows))

    def run(self) -> torch.Tensor:
        """Launch the chain; the output [N, H, G, d] in the chain's own buffer."""
        self.choose_keys()
        self.read_keys()
        self.choose_values()
        self.read_values()
        self.merge()
        return self.output

    def choose_keys(self) -> None:
        """Rotated queries, importances of channels, depths of channels."""
        cache, (_, H, G, d) = self.cache, self.queries.shape
        query_kernel[(self.rows,)](
            self.queries, cache.key_signs, cache.key_scale, self.rotated, self.key_importance, self.allocation.bins,
            self.allocation.state, H, self.rows_per_pool, *self.queries.stride()[:3], 1.0 / math.sqrt(d), G=G,
            G_PAD=padded(G), D=d, D_PAD=padded(d), BINS=BINS.value, STATE=STATE, **self.launch,
        )  # fmt: skip
        shape = (-1, self.rows_per_pool * d)
        if not self.chosen:
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

    def choose_values(self) -> None:
        """Log-masses, importances of tokens, and the bars of their depths."""
        self.weigh()
        if self.chosen:
            self.allocation.resolve()

    def weigh(self) -> None:
        """Log-masses, importances of tokens, and their bins."""
        cache, tokens = self.cache, 512
        programs = -(-cache.longest // tokens)
        weigh_kernel[(programs, self.rows)](
            self.logits, self.largests, self.totals, self.lses, self.importance, self.allocation.bins,
            *self.allocation.bracketing, cache.lengths, cache.heads, cache.capacity, self.importance.shape[1],
            self.tiles, self.rows_per_pool, self.allocation.cost, self.policy.minimum, self.arrivals(programs),
            G=self.queries.shape[2], GP=self.group, TOKENS=tokens, STEP=min(padded(self.tiles, 1), 128),
            PAIRED=self.policy.paired, STATE=STATE, **self.allocation.shape, **self.launch,
        )  # fmt: skip

    def arrivals(self, programs: int) -> int:
        """Programs of a pool, of so many per row; -1 where no bar is sought."""
        return programs * self.rows_per_pool if self.chosen else -1

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
            STEP=min(padded(self.splits, 1), 128), LANES=self.LANES, num_warps=4, **self.launch,
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
