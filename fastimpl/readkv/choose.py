"""ChooseDepths without a heap: a threshold on the weighted gains by bit search, ties in item order.

Mirrors `refimpl.readkv.allocation.readkv_choose_depths` and, with costs, `choose_group_depths`.

    grid (pools)   importance [N] x gains [W] -> keys [N, W], float32 products as integers that order alike
                   bar = the largest key such that what reaches it costs more than is left   (two bits per round)
                   bought = keys above the bar, then its equals in item order while they fit

An item's gains fall with depth, so what is bought is a prefix. Keys of 0 are never bought. Everything stays in
registers; `threshold.py` does the same for more items. Bytes: 4 per item read, 4 written.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, Sizes, whole
from fastimpl.device import dependent_launch, follow, padded

SINGLE = (torch.float32,)
SMALL = 8192
"""Products of items and levels that one program holds."""


@triton.jit
def gain_keys(importance, gains, level, LEVELS: tl.constexpr, W_PAD: tl.constexpr):
    """Keys [N, W_PAD] of importances [N]: level ``level + w`` of the gains; 0 beyond the last."""
    w = level + tl.arange(0, W_PAD)
    gain = tl.load(gains + w, mask=w < LEVELS, other=0.0)
    return (importance[:, None] * gain[None, :]).to(tl.int32, bitcast=True)


@triton.jit
def costs_of_three(key, cost, one, two, three, FEW: tl.constexpr):
    """Costs of the keys that reach each of three; keys and their costs [N, W]. FEW: less than 1024 in all, else 2^21."""
    if FEW:
        reach = (
            tl.where(key >= one, cost, 0) + tl.where(key >= two, cost << 10, 0) + tl.where(key >= three, cost << 20, 0)
        )
        total = tl.sum(reach)
        first, second, third = total & 0x3FF, (total >> 10) & 0x3FF, total >> 20
    else:
        reach = (key >= one).to(tl.int64) + ((key >= two).to(tl.int64) << 21) + ((key >= three).to(tl.int64) << 42)
        total = tl.sum(reach * cost)
        first, second, third = total & 0x1FFFFF, (total >> 21) & 0x1FFFFF, total >> 42
    return first, second, third


@triton.jit
def bar_of(key, cost, left, bar, step, FEW: tl.constexpr):
    """A bar that parts what ``left`` buys: keys above it cost at most that, keys that reach it more (or exactly that).

    From ``bar`` on, two bits per round: three counts go through one reduction. A count of exactly ``left`` ends the
    search: then the keys above that trial less one are bought. Keys and their costs [N, W]; at most 2^21 in all.
    """
    step = bar * 0 + step
    while step > 0:
        first, second, third = costs_of_three(key, cost, bar + step, bar + 2 * step, bar + 3 * step, FEW)
        more = (first > left).to(tl.int32) + (second > left).to(tl.int32) + (third > left).to(tl.int32)
        exact = (first == left) | (second == left) | (third == left)
        # the lowest trial that costs exactly what is left is the next one above those that cost more
        bar = tl.where(exact, bar + (more + 1) * step - 1, bar + more * step)
        step = tl.where(exact, 0, step >> 2)
    return bar


@triton.jit
def bought_steps(importance, gains, cost, left, minimum, LEVELS: tl.constexpr, W_PAD: tl.constexpr, FEW: tl.constexpr):
    """Steps [N] that each item buys beyond ``minimum``: importances and costs [N] in registers."""
    key = gain_keys(importance, gains, minimum, LEVELS, W_PAD)
    each = tl.broadcast_to(cost[:, None], key.shape)
    high = tl.where(tl.sum(tl.where(key >= 1 << 30, each, 0)) > left, 1 << 30, 0)
    bar = bar_of(key, each, left, high, 1 << 28, FEW)
    above = tl.sum((key > bar).to(tl.int32), 1)
    equal = tl.where(bar > 0, tl.sum((key == bar).to(tl.int32), 1), 0)
    spent = equal * cost
    room = left.to(tl.int32) - tl.sum(above * cost, 0) - (tl.cumsum(spent, 0) - spent)
    return above + tl.minimum(tl.maximum(room, 0) // tl.maximum(cost, 1), equal)


@triton.jit
def choose_kernel(
    importance, gains, lefts, depths, items, minimum, cost, last_cost, N_PAD: tl.constexpr, LEVELS: tl.constexpr,
    W_PAD: tl.constexpr, FEW: tl.constexpr, DEPENDENT: tl.constexpr,
):  # fmt: skip
    """Depths of one pool of items."""
    follow(DEPENDENT)
    pool, item = tl.program_id(0).to(tl.int64), tl.arange(0, N_PAD)
    live = item < items
    value = tl.load(importance + pool * items + item, mask=live, other=0.0)
    each = tl.where(item == items - 1, last_cost, cost) * live.to(tl.int32)
    bought = bought_steps(value, gains, each, tl.load(lefts + pool), minimum, LEVELS, W_PAD, FEW)
    tl.store(depths + pool * items + item, minimum + bought, mask=live)


def few(items: int, levels: int, cost: int) -> bool:
    """Whether all steps together cost less than 1024: three such costs go through one 32-bit sum."""
    return items * levels * cost < 1 << 10


def choose_in_registers(
    importance: torch.Tensor, gains: torch.Tensor, lefts: torch.Tensor, minimum: int, depths: torch.Tensor,
    cost: int = 1, last_cost: int = 1,
) -> None:  # fmt: skip
    """Launch for pools of few items: importance [pools, N], lefts [pools] int64 beyond the minimum, depths int32."""
    pools, items = importance.shape
    if pools * items == 0:
        return
    block, levels = padded(items), gains.shape[0]
    choose_kernel[(pools,)](
        importance, gains, lefts, depths, items, minimum, cost, last_cost, N_PAD=block, LEVELS=levels,
        W_PAD=padded(levels - minimum, 2), FEW=few(items, levels - minimum, cost), num_warps=4 if block <= 256 else 8, **dependent_launch(importance.device),
    )  # fmt: skip


def check_budget(budget: Any, items: int, levels: int, minimum_depth: Any) -> tuple[int, int]:
    """The minimum depth and what is left beyond it. Raises ArgumentError for a range, or if the minimum does not fit.

    >>> check_budget(10, 4, 8, 1)
    (1, 6)
    """
    budget = whole("budget", budget, 0, items * levels)
    minimum = whole("minimum_depth", minimum_depth, 0, levels)
    if items * minimum > budget:
        needed = f"{items} items x {minimum} = {items * minimum}"
        raise ArgumentError(f"minimum_depth: expected one that fits the budget, got {needed} > {budget}")
    return minimum, budget - items * minimum


def readkv_choose_depths(*, importance: Any, gains: Any, budget: int, minimum_depth: int = 0) -> torch.Tensor:
    """Depths [N] int32 of least distortion within ``budget`` refinements, lower item first on ties (ReadKV Alg. 1).

    importance [N] and gains [W] float32, gains nonincreasing. Raises ArgumentError for a dtype, shape, sign, order,
    budget, or a minimum_depth that does not fit.
    """
    sizes = Sizes()
    importance = sizes.bind("importance", importance, "N", SINGLE).contiguous()
    gains = sizes.bind("gains", gains, "W", SINGLE).contiguous()
    if bool((importance < 0).any()) or not bool(importance.isfinite().all()):
        raise ArgumentError(f"importance: expected finite nonnegative weights, got {float(importance.min())}")
    if bool((gains < 0).any()) or bool((gains[1:] > gains[:-1]).any()):
        raise ArgumentError(f"gains: Proposition 8 needs nonnegative, nonincreasing gains, got {gains.tolist()}")
    minimum, left = check_budget(budget, len(importance), len(gains), minimum_depth)
    depths = torch.empty((1, len(importance)), dtype=torch.int32, device=importance.device)
    lefts = torch.tensor([left], dtype=torch.int64, device=importance.device)
    if len(gains) == minimum:
        return depths[0].fill_(minimum)
    if len(importance) * padded(len(gains) - minimum, 2) <= SMALL:
        choose_in_registers(importance[None], gains, lefts, minimum, depths)
    else:
        from fastimpl.readkv.threshold import Allocation  # it imports this module's keys

        Allocation(importance[None], gains, lefts, minimum).choose(depths)
    return depths[0]
