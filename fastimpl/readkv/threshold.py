"""ChooseDepths for many items: the bar of `choose.py` by a histogram, then exactly among the few steps near it.

Mirrors `refimpl.readkv.allocation.readkv_choose_depths` and `choose_group_depths`; importance [rows, N], a pool is one
or several rows that share a budget.

    count    grid (N / BLOCK, rows)   importances -> 4096 bins per pool, 32 to an octave from 2^-124 up; a pool's last
                                      program: low <= bar < high from the bins alone, whatever the products' rounding
    collect  grid (N / BLOCK, rows)   cost of the steps that reach ``high``; items with a step in [low, high) listed; a
                                      pool's last program: the bar among them, and how far equals are bought (`bar.py`)
    (depths) grid (N / BLOCK, rows)   steps above the bar, and the equals of items before the cut

A step's worth is importance times gain, and gains are given: so the bins of one importance tell all its steps. Where
the bracket is wide (a bar below 2^-124 or above 16, or gains closer than a fifth) the last search goes over all items instead of
the list. Bytes: 4 per item and pass.
"""

from __future__ import annotations

import itertools

import torch
import triton
import triton.language as tl

from fastimpl.device import INTERPRETED, dependent_launch, follow, multiprocessors, padded, register_limit
from fastimpl.readkv.bar import BAR, CUT, DONE, FOUND, HIGH, LOW, REST, SHIFT, STATE, resolve, row_items

BINS = tl.constexpr(4096)
FIRST_BIN = tl.constexpr((127 - 124) << 5)
BLOCKS = (1 << 16,) if INTERPRETED.value else (1024, 2048, 4096)
"""Items of a program: the size that gives each multiprocessor the nearest to two programs."""

SEARCH = 1 << 16 if INTERPRETED.value else 4096
WIDE_SEARCH = SEARCH if INTERPRETED.value else 512
INFINITY = tl.constexpr(0x7F800000)


@triton.jit
def bin_of(importance):
    """Bin of float32 importances; the lowest holds all below 2^-124, the highest all from 16 up."""
    place = (importance.to(tl.int32, bitcast=True) >> SHIFT) - FIRST_BIN
    return tl.minimum(tl.maximum(place, 0), BINS - 1)


@triton.jit
def item_cost(item, items, cost, last_cost):
    """Cost of one step of each item [..]; 0 beyond the last."""
    return tl.where(item == items - 1, last_cost, cost) * (item < items).to(tl.int32)


@triton.jit
def arrive(state, programs):
    """Whether this program of ``programs`` comes last; then all that the others wrote is seen, and the count is 0."""
    tl.debug_barrier()
    last = tl.atomic_add(state + DONE, 1, sem="acq_rel") == programs - 1
    if last:
        tl.store(state + DONE, 0)
    return last


@triton.jit
def count_kernel(
    importance, bins, suffixes, lefts, gains, state, lengths, stride, items_of_all, cost, last_cost, heads,
    rows_per_pool, minimum, programs, LEVELS: tl.constexpr, W_PAD: tl.constexpr, LENGTHS: tl.constexpr,
    PAIRED: tl.constexpr, STATE: tl.constexpr, BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Add the costs of BLOCK items to their pool's bins; the last program brackets the bar."""
    follow(DEPENDENT)
    row, item = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    items, cost, last_cost = row_items(lengths, row, heads, items_of_all, cost, last_cost, LENGTHS, PAIRED)
    value = tl.load(importance + row.to(tl.int64) * stride + item, mask=item < items, other=0.0)
    pool = (row // rows_per_pool).to(tl.int64)
    tl.atomic_add(bins + pool * BINS + bin_of(value), item_cost(item, items, cost, last_cost), mask=item < items,
                  sem="relaxed")  # fmt: skip
    if arrive(state + pool * STATE, programs):
        bracket_of(bins, suffixes, lefts, gains, state, pool, minimum, LEVELS, W_PAD, STATE)


@triton.jit
def reached_bin(value):
    """The bin of float32 ``value`` before clamping, int32."""
    return (value.to(tl.int32, bitcast=True) >> SHIFT) - FIRST_BIN


@triton.jit
def edge_bits(j):
    """The lowest float32 of bin ``j``, as an integer."""
    return (j + FIRST_BIN) << SHIFT


@triton.jit
def reach(suffixes, j, gain):
    """Costs of the steps that surely, and perhaps, reach the edges of bins j [N], of gains [W]."""
    edge = edge_bits(j).to(tl.float32, bitcast=True)
    needed = edge[:, None] * (1.0 / tl.maximum(gain, 1e-30))[None, :]
    # 2^-20 covers the rounding of this product of a rounded inverse and of importance times gain
    above = tl.maximum(reached_bin(needed * 1.00000096) + 1, 1)
    within = tl.minimum(tl.maximum(reached_bin(needed * 0.99999904), 0), BINS - 1)
    some = edge[:, None] * 0.0 + gain[None, :] > 0.0
    surely = tl.load(suffixes + tl.minimum(above, BINS - 1), mask=some & (above < BINS), other=0)
    perhaps = tl.load(suffixes + within, mask=some, other=0)
    return tl.sum(surely, 1), tl.sum(perhaps, 1)


@triton.jit
def bracket_of(
    bins, suffixes, lefts, gains, state, pool, minimum, LEVELS: tl.constexpr, W_PAD: tl.constexpr, STATE: tl.constexpr
):
    """Bracket [low, high) of a pool's bar from its bins; low = 0: everything fits. One edge of 64 first, then each."""
    j, w, i = tl.arange(0, BINS), minimum + tl.arange(0, W_PAD), tl.arange(0, 64)
    count = tl.load(bins + pool * BINS + j)
    left, gain = tl.load(lefts + pool), tl.load(gains + w, mask=w < LEVELS, other=0.0)
    total = tl.sum(count, 0)
    own = suffixes + pool * BINS
    tl.store(own + j, total - tl.cumsum(count, 0) + count)  # of bins j and higher
    tl.debug_barrier()
    surely, perhaps = reach(own, i * 64, gain)
    last = tl.max(tl.where(surely > left, i * 64, 0), 0)
    first = tl.min(tl.where(perhaps <= left, i * 64, BINS), 0)
    surely, _perhaps = reach(own, last + i, gain)
    near = tl.maximum(first - 63 + i, 0)
    _surely, perhaps = reach(own, tl.minimum(near, BINS - 1), gain)
    low = tl.max(tl.where(surely > left, edge_bits(last + i), 1), 0)
    high = tl.min(tl.where((perhaps <= left) & (near < BINS), edge_bits(near), INFINITY), 0)
    low = tl.where(left >= total.to(tl.int64) * (LEVELS - minimum), 0, low)
    tl.store(state + pool * STATE + LOW, low.to(tl.int64))
    tl.store(state + pool * STATE + HIGH, high.to(tl.int64))


@triton.jit
def collect_kernel(
    importance, gains, lengths, lefts, state, listed_keys, listed_items, stride, items_of_all, cost, last_cost, heads,
    rows_per_pool, minimum, capacity, programs, LEVELS: tl.constexpr, W_PAD: tl.constexpr, LENGTHS: tl.constexpr,
    PAIRED: tl.constexpr, STATE: tl.constexpr, BLOCK: tl.constexpr, CLOSE: tl.constexpr, SEARCH: tl.constexpr,
    SEARCH_WIDE: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Cost of the steps that reach the bracket's top; the items with a step inside a narrow bracket; then the bar."""
    row, item = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    items, cost, last_cost = row_items(lengths, row, heads, items_of_all, cost, last_cost, LENGTHS, PAIRED)
    pool = (row // rows_per_pool).to(tl.int64)
    own = state + pool * STATE
    steps = ()
    for level in tl.static_range(W_PAD):
        steps = steps + (tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0),)
    follow(DEPENDENT)
    low, high = tl.load(own + LOW).to(tl.int32), tl.load(own + HIGH).to(tl.int32)
    value = tl.load(importance + row.to(tl.int64) * stride + item, mask=item < items, other=0.0)
    listed_keys, listed_items = listed_keys + pool * capacity, listed_items + pool * capacity
    if low > 0:
        above = tl.zeros([BLOCK], tl.int32)
        reached = tl.zeros([BLOCK], tl.int32)
        for level in tl.static_range(W_PAD):
            key = (value * steps[level]).to(tl.int32, bitcast=True)
            above += (key >= high).to(tl.int32)
            reached += (key >= low).to(tl.int32)
        here = ((reached > above) & (item < items)).to(tl.int32)
        spent = (above * item_cost(item, items, cost, last_cost)).to(tl.int64)
        before = tl.atomic_add(own + FOUND, tl.sum((spent << 32) + here, 0), sem="relaxed")
        at = (before & 0x7FFFFFFF) + tl.cumsum(here, 0) - here
        gain = tl.load(gains + minimum + above, mask=here > 0, other=0.0)  # of the step after those above
        tl.store(listed_keys + at, (value * gain).to(tl.int32, bitcast=True), mask=here > 0)
        tl.store(listed_items + at, row % rows_per_pool * items + item, mask=here > 0)
    if arrive(own, programs):
        resolve(listed_keys, listed_items, importance, gains, lefts, own, pool, stride, items, cost, last_cost,
                rows_per_pool, minimum, LEVELS, W_PAD, CLOSE, SEARCH, SEARCH_WIDE)  # fmt: skip


@triton.jit
def steps_at(importance, gains, bar, cut, rest, item, minimum, LEVELS: tl.constexpr, W_PAD: tl.constexpr):
    """Steps beyond the minimum of items with these importances and numbers [N] in their pool."""
    above = tl.zeros(importance.shape, tl.int32)
    equal = tl.zeros(importance.shape, tl.int32)
    for level in tl.static_range(W_PAD):
        gain = tl.load(gains + minimum + level, mask=minimum + level < LEVELS, other=0.0)
        key = (importance * gain).to(tl.int32, bitcast=True)
        above += (key > bar).to(tl.int32)
        equal += (key == bar).to(tl.int32)
    some = tl.where(item < cut, equal, tl.where(item == cut, tl.minimum(equal, rest), 0))
    return above + tl.where(bar > 0, some, 0)


@triton.jit
def depths_kernel(
    importance, gains, lengths, state, depths, stride, items_of_all, heads, rows_per_pool, minimum,
    LEVELS: tl.constexpr, W_PAD: tl.constexpr, LENGTHS: tl.constexpr, PAIRED: tl.constexpr, STATE: tl.constexpr,
    BLOCK: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of BLOCK items."""
    follow(DEPENDENT)
    row, item = tl.program_id(1), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    items, _cost, _last = row_items(lengths, row, heads, items_of_all, 1, 1, LENGTHS, PAIRED)
    own = state + (row // rows_per_pool).to(tl.int64) * STATE
    bar, cut, rest = (
        tl.load(own + BAR).to(tl.int32),
        tl.load(own + CUT).to(tl.int32),
        tl.load(own + REST).to(tl.int32),
    )
    at = row.to(tl.int64) * stride + item
    value = tl.load(importance + at, mask=item < items, other=0.0)
    number = row % rows_per_pool * items + item
    steps = steps_at(value, gains, bar, cut, rest, number, minimum, LEVELS, W_PAD)
    tl.store(depths + at, minimum + steps, mask=item < items)


class Allocation:
    """The bar of every pool over importances [rows, N] (float32, contiguous), with buffers; `run` allocates nothing.

    Args:
        gains: [W] float32. lefts: [pools] int64, refinements beyond the minimum. minimum: depth of every item.
        rows_per_pool: rows that share a budget.
        lengths, heads: tokens [n] on the device of rows ``heads`` at a time; None: N items in every row.
        paired: items are pairs of tokens: a step costs 2, of an odd last token 1.
        last_cost: cost of the last item's step, where there are no lengths.
    """

    def __init__(
        self, importance: torch.Tensor, gains: torch.Tensor, lefts: torch.Tensor, minimum: int, rows_per_pool: int = 1,
        lengths: torch.Tensor | None = None, heads: int = 1, paired: bool = False, last_cost: int | None = None,
    ) -> None:  # fmt: skip
        rows, items = importance.shape
        self.importance, self.gains, self.lefts, self.minimum, self.heads = importance, gains, lefts, minimum, heads
        self.rows_per_pool, self.pools, self.lengths, self.paired = (
            rows_per_pool,
            rows // rows_per_pool,
            lengths,
            paired,
        )
        self.cost = 2 if paired else 1
        self.last_cost = self.cost if last_cost is None else last_cost
        steps = gains[minimum:].tolist()
        self.close = any(b > 0 and a < 1.2 * b for a, b in itertools.pairwise(steps))
        device, self.capacity = importance.device, rows_per_pool * items
        self.bins = torch.zeros((self.pools, BINS.value), dtype=torch.int32, device=device)
        self.suffixes = torch.empty((self.pools, BINS.value), dtype=torch.int32, device=device)
        self.state = torch.zeros((self.pools, STATE), dtype=torch.int64, device=device)
        self.listed = torch.empty((2, self.pools, self.capacity), dtype=torch.int32, device=device)
        self.shape = {"LEVELS": len(gains), "W_PAD": padded(len(gains) - minimum, 2)}
        self.switches = {"LENGTHS": lengths is not None, "PAIRED": paired, **dependent_launch(device)}

    @property
    def block(self) -> int:
        """Items of a program of the passes over all items."""
        wanted = self.importance.numel() // (2 * multiprocessors(self.importance.device))
        return min(BLOCKS, key=lambda size: abs(size - wanted))

    @property
    def grid(self) -> tuple[int, int]:
        """Programs of the passes over all items."""
        return -(-self.importance.shape[1] // self.block), self.importance.shape[0]

    @property
    def bracketing(self) -> tuple[torch.Tensor, ...]:
        """What the kernels that fill the bins need besides them to bracket the bar."""
        return self.suffixes, self.lefts, self.gains, self.state

    def count(self) -> None:
        """First pass, to the brackets; the bins and the state must be 0."""
        items = self.importance.shape[1]
        count_kernel[self.grid](
            self.importance, self.bins, *self.bracketing, self._lengths, items, items, self.cost, self.last_cost,
            self.heads, self.rows_per_pool, self.minimum, self.grid[0] * self.rows_per_pool, STATE=STATE, BLOCK=self.block,
            num_warps=8, **self.shape, **self.switches,
        )  # fmt: skip

    @property
    def _lengths(self) -> torch.Tensor:
        return self.importance if self.lengths is None else self.lengths

    def resolve(self) -> None:
        """From the brackets to every pool's bar."""
        items = self.importance.shape[1]
        collect_kernel[self.grid](
            self.importance, self.gains, self._lengths, self.lefts, self.state, self.listed[0], self.listed[1], items,
            items, self.cost, self.last_cost, self.heads, self.rows_per_pool, self.minimum, self.capacity,
            self.grid[0] * self.rows_per_pool, STATE=STATE, BLOCK=self.block, CLOSE=self.close, SEARCH=SEARCH,
            SEARCH_WIDE=WIDE_SEARCH, num_warps=8, **register_limit(self.importance.device, 128), **self.shape,
            **self.switches,
        )  # fmt: skip

    def choose(self, depths: torch.Tensor) -> None:
        """All passes, and the depths [rows, N] int32."""
        self.bins.zero_()
        self.state.zero_()
        self.count()
        self.resolve()
        items = self.importance.shape[1]
        depths_kernel[self.grid](
            self.importance, self.gains, self._lengths, self.state, depths, items, items, self.heads,
            self.rows_per_pool, self.minimum, STATE=STATE, BLOCK=self.block, **self.shape, **self.switches,
        )  # fmt: skip
