"""The reader's chain with its two passes on NVIDIA's matrix units (`lanes_keys.py`, `lanes_values.py`); the rest is `chain.ReadChain`'s.

Mirrors `refimpl.readkv.reader.read_two_stages` for bfloat16 queries of up to 8 heads per KV head, d 64 or 128.
"""

from __future__ import annotations

import math

import torch

from fastimpl.device import INTERPRETED, LOG2E, multiprocessors
from fastimpl.readkv.bar import STATE
from fastimpl.readkv.cache import TILE, PlaneCache
from fastimpl.readkv.chain import Policy, ReadChain
from fastimpl.readkv.lanes_keys import logits_by_lanes
from fastimpl.readkv.lanes_values import mix_by_lanes
from fastimpl.readkv.lanes_weigh import weigh_by_lanes
from fastimpl.readkv.middle import SEARCH_WIDE, allocate_by_lanes, steps_of
from fastimpl.readkv.middle import WARPS as WEIGHING_WARPS
from fastimpl.readkv.prepare import prepare_kernel
from fastimpl.readkv.slots import PARTS, block_capacity, group_capacity, slot_tables, slots_kernel
from fastimpl.readkv.threshold import BINS
from fastimpl.readkv.value_ptx import WARPS
from fastimpl.readkv.value_tables import slot_factors, value_tables

CHUNKS = (256, 512, 1024, 2048)
"""Tokens of a program of the value pass."""

REGISTERS = 128
"""Per thread of the passes and of the kernel between them: 16 warps to a multiprocessor."""

KEY_PROGRAMS, KEY_TILES = 8, 4
"""Programs of the key pass that run at once, at this many registers; where there are more tiles, one has up to four."""

PROGRAMS_PER_PROCESSOR = 4
"""Of the value pass, at this many registers and `value_ptx.WARPS` warps."""

ITEMS, STEPS, WEIGHERS = 512, (2, 4), 512
"""Items and steps of a program between the passes, and how many programs there are to be."""


def able(queries: torch.Tensor) -> bool:
    """Whether this branch runs here and takes these queries [N, H, G, d]."""
    device, (_, _, G, d) = queries.device, queries.shape
    fits = G <= 8 and d in (64, 128) and queries.dtype == torch.bfloat16
    here = device.type == "cuda" and torch.version.hip is None and not INTERPRETED.value
    return fits and here and torch.cuda.get_device_capability(device)[0] >= 8


class FastChain(ReadChain):
    """`ReadChain` on matrix units; ``chunk`` tokens per program of the value pass, None chooses by the work."""

    TOKENS, LOGITS, LANES = TILE, torch.float16, True

    def __init__(
        self, queries: torch.Tensor, cache: PlaneCache, policy: Policy, key_lefts: torch.Tensor,
        value_lefts: torch.Tensor, scale: float, chunk: int | None = None,
    ) -> None:  # fmt: skip
        N, H, _, d = queries.shape
        wanted = N * H * cache.longest // (PROGRAMS_PER_PROCESSOR * multiprocessors(queries.device))
        self.asking = policy.minimum > 0 and wanted < CHUNKS[0] // 2  # where much is read, other warps hide the latency
        self.chunk = chunk or min(CHUNKS, key=lambda size: abs(size - wanted))
        super().__init__(queries, cache, policy, key_lefts, value_lefts, scale)
        device, rows = queries.device, self.rows
        steps = min(STEPS, key=lambda steps: abs(steps - rows * cache.longest // (2 * ITEMS * WEIGHERS)))
        self.weighing = ITEMS, steps
        self.tiles_at_once = 64 if self.tiles <= 64 else 512
        self.items_per_thread = steps_of(self.importance.shape[1], rows, multiprocessors(device))
        runs = -(-rows * self.tiles // (KEY_PROGRAMS * multiprocessors(device)))
        self.tiles_of_program = min(max(runs, 1), KEY_TILES)
        self.groups, self.blocks = group_capacity(d), block_capacity(d, cache.stored_depth)

        def make(*shape: int, kind: torch.dtype) -> torch.Tensor:
            return torch.zeros(shape, dtype=kind, device=device)

        self.members = make(rows, self.groups, 32, kind=torch.int32)
        self.slot_weights = make(rows, self.blocks * 512, kind=torch.int8)
        self.slot_counts = make(rows, 8, kind=torch.int32)
        self.slot_sums = make(rows, 8, PARTS, kind=torch.int32)
        self.slot_units = make(rows, 8, kind=torch.float32)
        self.tables, self.prefixes = slot_tables(device), value_tables(device)
        self.coefficients = slot_factors(device)

    def parts_of_values(self) -> int:
        """Programs per row of the value pass."""
        return max(1, -(-self.cache.longest // self.chunk))

    @property
    def prepared(self) -> bool:
        """Whether one kernel goes from queries to slots: every row is a pool of its own, of few channels."""
        return self.policy.per_head and self.chosen and self.key_allocation is None

    def choose_keys(self) -> None:
        """Rotated queries, importances of channels, depths of channels (and their slots, where `prepared`)."""
        cache, (_, H, G, d) = self.cache, self.queries.shape
        if not self.prepared:
            super().choose_keys()
            return
        prepare_kernel[(PARTS, self.rows)](
            self.queries, cache.key_signs, cache.key_scale, self.gains, self.key_lefts, *self.tables, self.rotated,
            self.key_importance, self.key_depths, self.allocation.bins, self.allocation.state, self.members,
            self.slot_weights, self.slot_counts, self.slot_sums, self.slot_units, H, cache.key_planes.shape[3], *self.queries.stride()[:3],
            self.policy.minimum, 1.0 / math.sqrt(d), G=G, D=d, PARTS=PARTS, GROUPS=self.groups, BLOCKS=self.blocks,
            BINS=BINS.value, STATE=STATE, num_warps=4, **self.allocation.shape, **self.launch,
        )  # fmt: skip

    def make_slots(self) -> None:
        """Slots of the key depths."""
        cache, (_, H, G, d) = self.cache, self.queries.shape
        slots_kernel[(PARTS, self.rows)](
            self.rotated, cache.key_scale, self.key_depths, *self.tables, self.members, self.slot_weights,
            self.slot_counts, self.slot_sums, self.slot_units, H, cache.key_planes.shape[3], G=G, D=d, D_PAD=self.shape["D_PAD"], PARTS=PARTS,
            GROUPS=self.groups, BLOCKS=self.blocks, num_warps=4, **self.launch,
        )  # fmt: skip

    def read_keys(self) -> None:
        """Logits from the slots."""
        cache, (_, H, _, d) = self.cache, self.queries.shape
        if not self.prepared:
            self.make_slots()
        logits_by_lanes[(-(-self.tiles // self.tiles_of_program), self.rows)](
            cache.key_planes, self.members, self.slot_weights, self.slot_counts, self.slot_sums, self.slot_units,
            cache.lengths, self.logits, self.largests, H, cache.key_planes.shape[3], cache.capacity, self.tiles,
            self.groups, self.blocks, self.tiles_of_program, self.scale * LOG2E.value, W=cache.stored_depth, D=d, PARTS=PARTS,
            AHEAD=min(1, self.policy.minimum), num_warps=2, maxnreg=REGISTERS, **self.launch,
        )  # fmt: skip

    def choose_values(self) -> None:
        """Log-masses, importances of tokens, and the bars of their depths, in one kernel where its programs fit."""
        cache, steps, each = self.cache, self.items_per_thread, self.allocation
        if steps is None or not self.chosen:
            super().choose_values()
            return
        items = self.importance.shape[1]
        programs = -(-items // (32 * WEIGHING_WARPS * steps))
        allocate_by_lanes[(programs, self.rows)](
            self.logits, self.largests, self.lses, self.importance, each.bins, each.lefts, each.gains, each.state,
            *each.listed, cache.lengths, cache.heads, cache.capacity, items, self.tiles, self.rows_per_pool, each.cost,
            each.minimum, each.capacity, self.arrivals(programs), G=self.queries.shape[2], STEPS=steps,
            STEP=self.tiles_at_once, PAIRED=self.policy.paired, STATE=STATE,
            CLOSE=each.close, WIDE=SEARCH_WIDE, num_warps=WEIGHING_WARPS, maxnreg=REGISTERS,
            launch_cooperative_grid=True, **each.shape, **self.launch,  # all programs at once or none
        )  # fmt: skip

    def weigh(self) -> None:
        """Log-masses, importances of tokens, and their bins."""
        cache, (items, steps) = self.cache, self.weighing
        programs = -(-self.importance.shape[1] // (items * steps))
        weigh_by_lanes[(programs, self.rows)](
            self.logits, self.largests, self.lses, self.importance, self.allocation.bins,
            *self.allocation.bracketing, cache.lengths, cache.heads, cache.capacity, self.importance.shape[1],
            self.tiles, self.rows_per_pool, self.allocation.cost, self.policy.minimum, self.arrivals(programs),
            G=self.queries.shape[2], ITEMS=items, STEPS=steps, STEP=self.tiles_at_once,
            PAIRED=self.policy.paired, THREADS=32 * WEIGHING_WARPS, STATE=STATE, num_warps=WEIGHING_WARPS,
            **self.allocation.shape, **self.launch,
        )  # fmt: skip

    def read_values(self) -> None:
        """Depths of tokens and the mix of their prefixes."""
        cache, policy, (_, H, G, d) = self.cache, self.policy, self.queries.shape
        mix_by_lanes[(self.splits, self.rows)](
            cache.value_planes, self.logits, self.lses, self.importance, self.gains, self.allocation.state,
            self.coefficients, self.prefixes, cache.lengths, self.value_depths, self.mixes, H, cache.capacity,
            self.importance.shape[1], self.rows_per_pool, policy.minimum, self.splits, G, W=cache.stored_depth, D=d,
            STATE=STATE, STEPS=self.chunk // (64 * WARPS), PAIRED=policy.paired,
            AHEAD=self.asking, num_warps=WARPS, maxnreg=REGISTERS, **self.launch,
        )  # fmt: skip
