"""The NVIDIA branch of selection and attention, without a GPU: its PTX runs in our own machine inside the interpreter.

Both branches must choose the same pages and, since they attend in the same blocks, give the same bits.
"""

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from ptx_machine import Machine, OwnMemory  # noqa: E402

from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.locks import decode, select  # noqa: E402

pytestmark = [
    pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported"),
    # scores past a row's end are read, never used: whatever memory holds there goes through exp2
    pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning"),
]


class Asm:
    """Stands for `tl.inline_asm_elementwise`: one machine per text, whose shared memory later words are read from."""

    def __init__(self):
        self.runs, self.last = 0, None

    def __call__(self, text, operands, args, dtype, **_):
        from triton.runtime.interpreter import TensorHandle

        text = getattr(text, "value", text)
        data = [x.handle.data for x in args]
        if text.startswith("ld.shared"):
            result = self.last.shared[data[0] // 4].view(np.int32)
        else:
            given = {i + 1: x.astype(np.int64) if x.dtype.itemsize == 8 else x for i, x in enumerate(data)}
            self.last = Machine(text, given, OwnMemory(), data[0].shape[0])
            self.last.run()
            self.runs, result = self.runs + 1, self.last.values["$0"].view(np.int32)
        return tl.tensor(TensorHandle(result.copy(), tl.int32), tl.block_type(tl.int32, list(result.shape)))


@pytest.fixture
def asm(monkeypatch):
    stand_in = Asm()
    monkeypatch.setattr(tl, "inline_asm_elementwise", stand_in)
    monkeypatch.setattr(select, "chunk_of_scores", lambda pages: 16)
    monkeypatch.setattr(decode, "MOST_PAGES", 16)
    return stand_in


def both(asm, monkeypatch, call):
    plain = call()
    assert asm.runs == 0
    monkeypatch.setattr(select, "takes_ptx", lambda device: True)
    lanes = call()
    assert asm.runs > 0
    assert torch.equal(plain["pages"], lanes["pages"])
    assert torch.equal(plain["output"], lanes["output"])
    return lanes


@pytest.mark.parametrize(
    ("T", "d", "B", "budget"), [(37, 64, 16, 64), (16 * 9, 64, 16, 48), (16 * 40 + 3, 64, 16, 112), (8 * 37, 80, 8, 80)]
)
def test_a_contiguous_step_is_the_same_in_both_branches(T, d, B, budget, asm, monkeypatch):
    draw = torch.Generator().manual_seed(T)
    keys, values = (torch.randn(2, T, d, generator=draw) for _ in range(2))
    queries = torch.randn(2, 3, d, generator=draw)
    result = both(
        asm, monkeypatch, lambda: decode.locks_decode(
            queries=queries, keys=keys, values=values, rank=2, basis_bits=8, budget_tokens=budget, page_size=B
        ),
    )  # fmt: skip
    assert (result["pages"][:, -1] == -(-T // B) - 1).all(), "the most recent page is kept, last"


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("lengths", [[130, 0, 33], [16 * 30 + 7, 5, 16 * 20]])
def test_a_batch_through_a_block_table_is_the_same_in_both_branches(lengths, kind, asm, monkeypatch):
    draw = torch.Generator().manual_seed(len(lengths))
    pages = -(-max(lengths) // 16)
    blocks = 3 * pages
    pools = [torch.randn(blocks, 16, 2, 64, generator=draw) for _ in range(2)]
    queries = torch.randn(3, 2, 3, 64, generator=draw)
    table = torch.randperm(blocks, generator=draw).view(3, pages).to(kind)
    for n, length in enumerate(lengths):
        table[n, -(-length // 16) :] = -1
        if length % 16:
            for pool in pools:
                pool[table[n, length // 16], length % 16 :] = float("nan")
    result = both(
        asm, monkeypatch, lambda: decode.locks_decode_paged(
            queries=queries, key_pool=pools[0], value_pool=pools[1], block_table=table, tokens=torch.tensor(lengths),
            rank=2, basis_bits=8, budget_tokens=96,
        ),
    )  # fmt: skip
    assert torch.isfinite(result["output"]).all(), "slots past a sequence's end hold NaN"
