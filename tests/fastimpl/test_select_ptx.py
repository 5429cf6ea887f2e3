"""The PTX of the selection, run in a small machine of our own: no GPU."""

import numpy as np
import pytest
from ptx_machine import Machine, Words

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
@pytest.mark.parametrize("block_bytes", [0, 4, 8])
@pytest.mark.parametrize("name", CASES)
def test_a_first_pass_hands_on_the_largest_in_order(name, block_bytes, warps):
    keys, kept = drawn(name)
    n, first_id = len(keys), 40
    table = np.random.default_rng(2).integers(0, 10**6, first_id + n).astype(f"<i{max(block_bytes, 4)}")
    memory = np.concatenate([keys, table.view(np.int32), np.full(3 * kept + 3, POISON, np.int32)])
    out = len(memory) - 3 * kept - 3
    operands = {1: 0, 2: n, 3: kept, 4: 4 * out, 5: 4 * (out + kept + 1), 6: 4 * (out + 2 * kept + 2), 7: 4 * n}
    machine = Machine(Choice(n, warps, block_bytes).text(), operands | {8: first_id}, Words(memory), 32 * warps)
    machine.run()
    written_keys, ids, blocks = machine.memory.words.view(np.int32)[out:].reshape(3, kept + 1)
    right = largest(keys, kept)
    np.testing.assert_array_equal(written_keys[:kept], with_tail(keys[right], kept, ABSENT))
    np.testing.assert_array_equal(ids[:kept], with_tail(first_id + right, kept, -1))
    np.testing.assert_array_equal(blocks[: len(right)], table[first_id + right] if block_bytes else first_id + right)
    assert written_keys[kept] == ids[kept] == blocks[kept] == POISON
    assert (machine.values["$0"] == len(right)).all()


@pytest.mark.parametrize(("own_ids", "block_bytes"), [(False, 0), (False, 4), (True, 0), (True, 4), (True, 8)])
@pytest.mark.parametrize("name", CASES)
def test_the_last_pass_writes_its_part_of_the_list_and_the_blocks(name, own_ids, block_bytes):
    keys, kept = drawn(name)
    n, rng = len(keys), np.random.default_rng(1)
    ids = rng.permutation(3 * n)[:n].astype(np.int32)
    blocks = rng.integers(0, 10**6, n).astype(f"<i{max(block_bytes, 4)}")  # of item or page i, here the same
    memory = np.concatenate([keys, ids, blocks.view(np.int32), np.full(kept, POISON, np.int32)])
    pages_at = len(memory) - kept
    first, last = kept // 3, kept - kept // 4
    operands = {1: 0, 2: n, 3: kept, 4: 4 * n, 5: 8 * n, 6: 4 * pages_at, 7: first, 8: last}
    machine = Machine(Choice(n, 4, block_bytes, last - first, own_ids).text(), operands, Words(memory), 128)
    machine.run()
    pages = machine.memory.words.view(np.int32)[pages_at:]
    right = largest(keys, kept)
    chosen = right if own_ids else ids[right]
    np.testing.assert_array_equal(pages[first:last], with_tail(chosen, kept, -1)[first:last])
    assert (pages[:first] == POISON).all()
    assert (pages[last:] == POISON).all()
    (packed,) = np.unique(machine.values["$0"])
    assert packed >> 18 == len(right)
    where = (packed & 0x3FFFF) // 4
    part = slice(first, min(last, len(right)))
    listed = machine.shared[where : where + last - first][: max(part.stop - part.start, 0)]
    np.testing.assert_array_equal(listed, blocks[right[part]] if block_bytes else chosen[part])
