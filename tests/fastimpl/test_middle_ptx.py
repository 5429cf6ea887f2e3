"""The PTX between the passes, run in a small machine of our own: no GPU."""

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
pytest.importorskip("triton")

from ptx_kernels import MatrixMachine
from ptx_machine import Words

from fastimpl.readkv import middle_ptx as ptx
from refimpl.readkv.tree import deployed_table

GAINS = deployed_table().gains.astype(np.float32)
TABLES = {
    "deployed": GAINS,
    "without the first": GAINS[1:],
    "few": GAINS[:3],
    "last 0": np.append(GAINS[:4], GAINS[:1] * 0),
}
WARPS = [4, 8, 16]


def machine_of(text, operands, memory, warps, shared=None):
    """A machine whose shared memory is as large as the kernel's, at address 0."""
    machine = MatrixMachine(text, operands, Words(np.array(memory)), 32 * warps)
    machine.shared = np.full(ptx.BYTES // 4, 0xDEADBEEF, np.uint32) if shared is None else shared
    machine.run()
    return machine


def alike(machine, name):
    """The number that all threads have."""
    values = machine.values[name].view(np.int32)
    assert (values == values[0]).all()
    return int(values[0])


def edges(j):
    return ((np.asarray(j) + ptx.FIRST_BIN) << ptx.SHIFT).astype(np.int32)


def bins_of(importance):
    return np.clip((importance.view(np.int32) >> ptx.SHIFT) - ptx.FIRST_BIN, 0, ptx.BINS - 1)


def bracket(counts, gains, left):
    """The bracket by its definition: every edge, every gain."""
    suffixes = np.append(np.cumsum(counts[::-1])[::-1], 0)
    surely, perhaps = np.zeros(ptx.BINS, np.int64), np.zeros(ptx.BINS, np.int64)
    for gain in gains[gains > 0]:
        needed = edges(np.arange(ptx.BINS)).view(np.float32) * (np.float32(1) / gain)
        above = ((needed * np.float32(1 + 2**-20)).view(np.int32) >> ptx.SHIFT) - ptx.FIRST_BIN + 1
        within = ((needed * np.float32(1 - 2**-20)).view(np.int32) >> ptx.SHIFT) - ptx.FIRST_BIN
        surely += suffixes[np.clip(above, 1, ptx.BINS)]
        perhaps += suffixes[np.clip(within, 0, ptx.BINS - 1)]
    reached, free = np.flatnonzero(surely > left), np.flatnonzero(perhaps <= left)
    low = edges(reached[-1]) if len(reached) else 1
    return int(low), int(edges(free[0])) if len(free) else ptx.INFINITY


def importances(kind, count=700):
    draw = np.random.default_rng(count)
    return {
        "spread": draw.random(count) ** 4,
        "equal": np.ones(count),
        "zeros": np.where(draw.random(count) < 0.7, 0, draw.random(count)),
        "all zero": np.zeros(count),
        "tiny": 2.0**-123 * draw.random(count),
        "large": 2.0**60 * draw.random(count),
    }[kind].astype(np.float32)


@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("kind", ["spread", "equal", "zeros", "all zero", "tiny", "large"])
def test_the_bracket_is_that_of_all_edges(kind, table, warps):
    importance, gains = importances(kind), TABLES[table]
    counts = np.zeros(ptx.BINS, np.int64)
    np.add.at(counts, bins_of(importance), 2)
    total = int(counts.sum())
    memory = np.concatenate([counts.astype(np.int32), gains.view(np.int32)])
    for left in (0, 1, 2, total // 3, total, total * len(gains) - 1, 0x7FFFFFFF):
        operands = {3: 0, 4: 0, 5: 4 * ptx.BINS, 6: len(gains), 7: left}
        machine = machine_of(ptx.Bracket(warps).text(), operands, memory, warps)
        assert (alike(machine, "$0"), alike(machine, "$1")) == bracket(counts, gains, left)
        assert alike(machine, "$2") == total


@pytest.mark.parametrize("warps", WARPS)
def test_bins_go_to_the_pool_s(warps):
    own, pool = np.random.default_rng(1).integers(0, 3, (2, ptx.BINS)).astype(np.int32)
    cleared = machine_of(ptx.clear_text(warps), {1: 0}, pool, warps)
    assert not cleared.shared[: ptx.BINS].any()
    shared = np.concatenate([own.view(np.uint32), np.zeros(65, np.uint32)])
    machine = machine_of(ptx.flush_text(warps), {1: 0, 2: np.zeros(32 * warps, np.int64)}, pool, warps, shared)
    np.testing.assert_array_equal(machine.memory.words.view(np.int32), own + pool)


@pytest.mark.parametrize("warps", WARPS)
def test_places_are_those_of_a_list_without_gaps(warps):
    draw = np.random.default_rng(2)
    here, spent = draw.integers(0, 9, 32 * warps), draw.integers(0, 99, 32 * warps)
    machine = machine_of(ptx.place_text(warps), {1: here, 2: spent, 3: 0, 4: 0}, np.array([5, 6]), warps)
    np.testing.assert_array_equal(machine.values["$0"], 5 + np.cumsum(here) - here)
    assert machine.memory.words.tolist() == [5 + here.sum(), 6 + spent.sum()]


def steps(kind, count):
    """Keys and items of a list, in no order."""
    draw = np.random.default_rng(count)
    low, high = 0x3F000000, 0x3F000000 + (4 << ptx.SHIFT)
    keys = {
        "all over": lambda: draw.integers(low, high, count),
        "close": lambda: draw.integers(low + 1000, low + 1010, count),
        "equal": lambda: np.full(count, low),
        "at the top": lambda: np.full(count, high - 1),
    }[kind]()
    return keys, draw.permutation(3 * count + 1)[:count], low, high


@pytest.mark.parametrize("warps", WARPS)
@pytest.mark.parametrize("count", [1, 2, 300, 1500, 5000])
@pytest.mark.parametrize("kind", ["all over", "close", "equal", "at the top"])
def test_the_bar_parts_what_is_bought(kind, count, warps):
    keys, items, low, high = steps(kind, count)
    row, cost, last = -(-(3 * count + 1) // 2), 2, 1  # two rows
    costs = np.where(items % row == row - 1, last, cost)
    memory = np.concatenate([keys, items]).astype(np.int32)
    order = np.lexsort((items, -keys))
    total = int(costs.sum())
    for left in sorted({0, min(1, total - 1), total // 3, total // 2, total - 1}):
        operands = {2: 0, 3: 4 * count, 4: count, 5: low, 6: high, 7: left, 8: row, 9: 2 * row, 10: cost, 11: last}
        machine = machine_of(ptx.Search(warps).text(), operands | {12: 0}, memory, warps)
        bar, cut = alike(machine, "$0"), alike(machine, "$1")
        bought = np.zeros(count, bool)
        bought[order] = np.cumsum(costs[order]) <= left
        assert bar == int(keys[order][np.cumsum(costs[order]) > left][0])
        np.testing.assert_array_equal((keys > bar) | ((keys == bar) & (items < cut)), bought)
