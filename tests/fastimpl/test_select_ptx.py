"""The PTX of the selection, run in a small machine of our own: no GPU."""

import numpy as np
import pytest
from ptx_machine import Machine

pytest.importorskip("triton")
from fastimpl.locks.select_ptx import ABSENT, FORCED, Choice

POISON = 113


def shares(rng, n, spread):
    return np.exp(rng.normal(size=n) * spread - 12).astype(np.float32).view(np.int32)


def largest(keys, kept):
    """The first ``kept`` of a stable descending sort, in item order; negative keys are never kept."""
    order = np.argsort(-keys.astype(np.int64), kind="stable")[:kept]
    return np.sort(order[keys[order] >= 0])


def with_tail(found, kept, absent):
    return np.concatenate([found, np.full(kept - len(found), absent)])


CASES = {
    "spread": (lambda rng: shares(rng, 512, 2.0), 128),
    "narrow": (lambda rng: shares(rng, 512, 1e-6), 17),
    "ties at the threshold": (lambda rng: rng.integers(5, 9, 300).astype(np.int32), 40),
    "all equal": (lambda rng: np.full(130, 77, np.int32), 9),
    "zeros": (lambda rng: np.where(rng.random(300) < 0.9, 0, shares(rng, 300, 1)).astype(np.int32), 128),
    "fewer than are kept": (lambda rng: np.where(np.arange(200) < 60, shares(rng, 200, 1), ABSENT), 128),
    "forced pages alone": (lambda rng: np.where(np.arange(90) % 89, ABSENT, FORCED), 2),
    "nothing": (lambda rng: np.full(64, ABSENT, np.int32), 3),
    "the whole range": (lambda rng: rng.integers(0, FORCED, 256).astype(np.int32), 100),
    "more keys than a round of threads": (lambda rng: shares(rng, 1024, 1.5), 128),
}


def drawn(name):
    make, kept = CASES[name]
    keys = make(np.random.default_rng(len(name))).astype(np.int32)
    if "range" in name or "spread" in name:
        keys[[0, -1]] = FORCED
    return keys, kept


@pytest.mark.parametrize("warps", [4, 8, 16])
@pytest.mark.parametrize("name", CASES)
def test_a_first_pass_hands_on_the_largest_in_order(name, warps):
    keys, kept = drawn(name)
    memory = np.concatenate([keys, np.full(2 * kept + 2, POISON, np.int32)])
    n = len(keys)
    operands = {1: 0, 2: n, 3: kept, 4: 4 * n, 5: 4 * (n + kept + 1), 6: 7000}
    machine = Machine(Choice(n, warps, last=False).text(), operands, memory, 32 * warps)
    machine.run()
    written = machine.memory.view(np.int32)[n:]
    right = largest(keys, kept)
    np.testing.assert_array_equal(written[:kept], with_tail(keys[right], kept, ABSENT))
    np.testing.assert_array_equal(written[kept + 1 : -1], with_tail(7000 + right, kept, -1))
    assert written[kept] == written[-1] == POISON
    assert (machine.values["$0"] == len(right)).all()


@pytest.mark.parametrize("own_ids", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_last_pass_writes_its_part_of_the_list_and_the_blocks(name, own_ids):
    keys, kept = drawn(name)
    n, rng = len(keys), np.random.default_rng(1)
    ids, table = rng.permutation(3 * n)[:n].astype(np.int32), rng.integers(0, 10**6, 3 * n).astype(np.int32)
    memory = np.concatenate([keys, ids, table, np.full(2 * kept, POISON, np.int32)])
    lists = 4 * (n + n + 3 * n)
    first, last = kept // 3, kept - kept // 4
    operands = {1: 0, 2: n, 3: kept, 4: 4 * n, 5: 8 * n, 6: lists, 7: lists + 4 * kept, 8: first, 9: last}
    machine = Machine(Choice(n, 4, last=True, own_ids=own_ids, table_bytes=4).text(), operands, memory, 128)
    machine.run()
    pages, blocks = machine.memory.view(np.int32)[5 * n :].reshape(2, kept)
    right = largest(keys, kept)
    chosen = right if own_ids else ids[right]
    np.testing.assert_array_equal(pages[first:last], with_tail(chosen, kept, -1)[first:last])
    part = slice(first, min(last, len(right)))
    np.testing.assert_array_equal(blocks[part], table[chosen[part]])
    assert (pages[:first] == POISON).all()
    assert (pages[last:] == POISON).all()
