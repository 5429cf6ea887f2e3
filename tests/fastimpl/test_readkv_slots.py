"""The fast reader's slots: what its key pass is given, read back as that pass reads it."""

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import triton.language as tl  # noqa: E402
from ptx_kernels import Inline, MatrixMachine  # noqa: E402
from ptx_machine import Machine  # noqa: E402

from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.readkv import keys_ptx  # noqa: E402
from fastimpl.readkv.bar import STATE  # noqa: E402
from fastimpl.readkv.choose import choose_in_registers  # noqa: E402
from fastimpl.readkv.merge import query_kernel  # noqa: E402
from fastimpl.readkv.prepare import prepare_kernel  # noqa: E402
from fastimpl.readkv.slots import (  # noqa: E402
    PARTS,
    block_capacity,
    group_capacity,
    slot_tables,
    slots_kernel,
    subset_of,
)
from fastimpl.readkv.threshold import BINS  # noqa: E402
from fastimpl.readkv.tree import lloyd_tree, tables  # noqa: E402
from proofs_checks.bounds.common import gamma  # noqa: E402

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported")
G, U = 3, 2.0**-24


def slots_of(depths, queries, scales, W=8):
    """Members, weights (integers), counts, sums and units of one row, from stale buffers."""
    d = len(depths)
    groups, blocks = group_capacity(d), block_capacity(d, W)
    members = torch.full((1, groups, 32), 7, dtype=torch.int32)
    weights = torch.full((1, blocks * 512), 77, dtype=torch.int8)
    counts, sums = torch.zeros(1, 8, dtype=torch.int32), torch.zeros(1, 8, PARTS, dtype=torch.int32)
    units = torch.zeros(1, 8)
    slots_kernel[(PARTS, 1)](
        queries, scales, torch.tensor(depths, dtype=torch.int32)[None], *slot_tables(torch.device("cpu")), members,
        weights, counts, sums, units, 1, 1, G=G, D=d, D_PAD=max(16, d), PARTS=PARTS, GROUPS=groups, BLOCKS=blocks,
        DEPENDENT=False,
    )  # fmt: skip
    at = weights.numpy().astype(int).reshape(blocks, 8, 4, 2, 8)
    return members[0].numpy(), 256 * at[:, :, :, 0] + at[:, :, :, 1], counts[0].tolist(), sums[0].numpy(), units[0]


def planes_of_group(group, counts):
    """Which slots a lane makes of its eight rows, block by block: lists of the rows of each slot."""
    fours, eights, _, _ = counts[:4]
    if group < fours:
        reached = sum(group < counts[i] for i in range(4, 8))
        return [[list(subset_of(k, i)) for i in range(8)] for k in range(2**reached)]
    if group < fours + eights:
        return [[[0], [1], [2], [0, 1, 2], [4], [5], [6], [4, 5, 6]]]
    return [[[i] for i in range(8)]]


def logits(slots, bits):
    """Sums over slots of weight times sign [G] of one token, bits [W * d] by row of planes."""
    members, weights, counts, sums, units = slots
    block, total = 0, np.zeros(8, np.int64)
    for group in range(sum(counts[:4])):
        for slot_rows in planes_of_group(group, counts):
            for quad in range(4):
                rows = members[group, 8 * quad : 8 * quad + 8]
                word = np.where(rows < 0, 0, bits[rows])
                for slot, own in enumerate(slot_rows):
                    total += weights[block, :, quad, slot] * (word[own].sum() % 2)
            block += 1
    return (2 * total - sums.sum(1)) * units.numpy()


CASES = {
    "mixed": lambda draw, d: draw.integers(0, 9, d),
    "shallow": lambda draw, d: draw.integers(0, 4, d),
    "real": lambda draw, d: draw.choice(6, d, p=[0.05, 0.2, 0.4, 0.25, 0.07, 0.03]),
    "one": lambda draw, d: np.ones(d, int),
    "deepest": lambda draw, d: np.full(d, 8),
    "none": lambda draw, d: np.zeros(d, int),
    "a deep one": lambda draw, d: np.eye(1, d, dtype=int)[0] * 8,
}


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("d", [64, 128])
def test_slots_give_the_centroids_of_every_prefix(kind, d):
    draw = np.random.default_rng(d)
    depths = CASES[kind](draw, d)
    queries = torch.tensor(draw.normal(size=(G, d)), dtype=torch.float32)
    scales = torch.tensor(np.exp(0.3 * draw.normal(size=d)), dtype=torch.float32)
    bits = draw.integers(0, 2, 8 * d)
    slots = slots_of(depths, queries, scales)
    _, centroids, _ = lloyd_tree(8)
    index = [int("".join(str(bits[p * d + c]) for p in range(t)) or "0", 2) for c, t in enumerate(depths)]
    value = np.array([float(centroids[t][i]) for t, i in zip(depths, index, strict=True)])
    wanted = (queries.numpy() * scales.numpy()).astype(np.float64) @ value
    # half a unit per slot; and float32 products of query, scale, coefficient and 1 / unit
    terms = sum(2 ** (t - 1) for t in depths if t > 0)
    size = np.abs(queries.numpy() * scales.numpy()).max(1) * float(slot_tables(torch.device("cpu")).largest.max())
    bound = terms * (0.5001 * slots[4][:G].numpy() + 8 * 2.0**-24 * size)
    assert (np.abs(logits(slots, bits)[:G] - wanted) <= bound).all()
    members, groups = slots[0], sum(slots[2][:4])
    assert (members[groups : groups + PARTS] == -1).all()  # what is copied ahead
    members = members[:groups]
    wanted_rows = sorted(p * d + c for c, t in enumerate(depths) for p in range(t))
    assert sorted(members[members >= 0].tolist()) == wanted_rows  # every plane that is bought, once; no other


QUERIES = {
    "normal": lambda draw, shape: draw.normal(size=shape),
    "ties": lambda draw, shape: draw.choice([-1.0, 1.0], shape) * (np.arange(shape[-1]) == 5),  # all of one size
    "zeros": lambda draw, shape: np.zeros(shape),
    "few": lambda draw, shape: np.broadcast_to(np.tile(draw.choice([-2.0, 1.0], shape[-1] // 4), 4), shape),
}
RATES = {"none": 0.0, "two": 2.0, "odd": 2.99, "four": 4.0, "all": 8.0, "more": 9.0}


def prepared(kind, d, minimum, rate, rows=2):
    """What `prepare_kernel` and the kernels that it stands for make of the same rows; sums by head."""
    draw = np.random.default_rng(3)
    queries = torch.tensor(QUERIES[kind](draw, (1, rows, G, d)), dtype=torch.bfloat16)
    signs = torch.tensor(draw.choice([-1.0, 1.0], d), dtype=torch.float32)
    scales = torch.tensor(np.exp(0.3 * draw.normal(size=(rows, d))) if kind == "normal" else np.ones((rows, d)))
    scales, gains = scales.to(torch.float32), tables(queries.device).gains
    lefts = torch.tensor([max(0, int((rate - minimum) * d))] * rows)
    shape = {"G": G, "D": d, "DEPENDENT": False}
    room = {"PARTS": PARTS, "GROUPS": group_capacity(d), "BLOCKS": block_capacity(d, 8)}

    def buffers():
        return {"rotated": torch.zeros(rows, G, d), "importance": torch.zeros(rows, d),
                "depths": torch.zeros(rows, d, dtype=torch.int32),
                "bins": torch.ones(rows, BINS.value, dtype=torch.int32),
                "state": torch.ones(rows, STATE, dtype=torch.int64),
                "members": torch.zeros(rows, room["GROUPS"], 32, dtype=torch.int32),
                "weights": torch.zeros(rows, room["BLOCKS"] * 512, dtype=torch.int8),
                "counts": torch.zeros(rows, 8, dtype=torch.int32),
                "sums": torch.zeros(rows, 8, PARTS, dtype=torch.int32),
                "units": torch.zeros(rows, 8)}  # fmt: skip

    one, three = buffers(), buffers()
    at, slots = list(queries.stride()[:3]), ("members", "weights", "counts", "sums", "units")
    prepare_kernel[(PARTS, rows)](
        queries, signs, scales, gains, lefts, *slot_tables(queries.device), *one.values(), rows, 5, *at, minimum,
        d**-0.5, BINS=BINS.value, STATE=STATE, LEVELS=8, W_PAD=8, **shape, **room,
    )  # fmt: skip
    query_kernel[(rows,)](
        queries, signs, scales, three["rotated"], three["importance"], three["bins"], three["state"], rows, 1, *at,
        d**-0.5, BINS=BINS.value, STATE=STATE, G_PAD=16, D_PAD=d, **shape,
    )  # fmt: skip
    # sums of d products in two orders, a factor, a rounded root; then a scale, and sums of squares in two orders
    far = 2 * gamma(d + 3, U) * queries[0].float().abs().sum(-1, keepdim=True) * d**-0.5  # [rows, G, 1]
    assert ((one["rotated"] - three["rotated"]).abs() <= far).all()
    size, far = three["rotated"].abs() * scales[:, None], far * scales[:, None]
    bound = (far * (2 * size + far) + 2 * gamma(G + 3, U) * (size + far) ** 2).sum(1)
    assert ((one["importance"] - three["importance"]).abs() <= bound).all()
    choose_in_registers(one["importance"], gains, lefts, minimum, three["depths"])
    slots_kernel[(PARTS, rows)](
        one["rotated"], scales, three["depths"], *slot_tables(queries.device), *(three[name] for name in slots),
        rows, 5, D_PAD=d, **shape, **room,
    )  # fmt: skip
    for found in (one, three):
        found["sums"] = found["sums"].sum(2)
        del found["rotated"], found["importance"]
    return one, three, lefts


@pytest.mark.parametrize("kind", QUERIES)
@pytest.mark.parametrize(("d", "minimum", "rate"), [(64, 0, "odd"), (64, 1, "two"), (128, 1, "two"), (128, 0, "four")])
def test_one_kernel_prepares_what_three_do(kind, d, minimum, rate, monkeypatch):
    monkeypatch.setattr(tl, "inline_asm_elementwise", Inline())
    one, three, _ = prepared(kind, d, minimum, RATES[rate])
    for name, value in one.items():
        assert torch.equal(value, three[name]), name


@pytest.mark.parametrize("kind", ["normal", "ties"])
@pytest.mark.parametrize("rate", ["none", "odd", "all", "more"])
def test_budgets_at_their_ends(kind, rate, monkeypatch):
    monkeypatch.setattr(tl, "inline_asm_elementwise", Inline())
    one, three, lefts = prepared(kind, 64, 0, RATES[rate], rows=1)
    for name, value in one.items():
        assert torch.equal(value, three[name]), name
    assert one["depths"].sum() == min(int(lefts[0]), 8 * 64)


def test_two_bytes_of_eight_words_become_four_operands():
    draw = np.random.default_rng(0)
    words = draw.integers(0, 2**32, 8, dtype=np.uint32)
    text = keys_ptx.block_text().split(keys_ptx.MMA)[0]
    for selector, first in ((0x5140, 0), (0x7362, 2)):
        registers = {64 + i: np.full(32, word) for i, word in enumerate(words)} | {72: np.full(32, selector)}
        machine = Machine(text.rsplit(";", 1)[0] + ";}", registers, np.zeros(1, np.int32), 32)
        machine.run()
        for k in range(2):
            for byte in range(2):
                wanted = sum(int(words[4 * k + i] >> (8 * (first + byte)) & 255) << (8 * i) for i in range(4))
                assert (np.asarray(machine.values[f"t{2 * k + byte}"], np.int64) & 0xFFFFFFFF == wanted).all()


def test_sums_of_a_block_are_those_of_its_bits():
    """High and low weights times every bit of two bytes; the last sum is of the whole byte."""
    draw = np.random.default_rng(1)
    words, weights = draw.integers(0, 2**32, (8, 32), np.uint32), draw.integers(0, 2**32, (4, 32), np.uint32)
    given = [*words, np.full(32, 0x7362), *weights, *np.full((64, 32), 5)]
    registers = {64 + i: np.asarray(value, np.uint32) for i, value in enumerate(given)}
    machine = MatrixMachine(keys_ptx.block_text(), registers, np.zeros(1, np.int32), 32)
    machine.run()
    assert len(given) + 64 == len(keys_ptx.block_constraints().split(","))
    found = np.stack([machine.values[f"${i}"].astype(np.uint32).view(np.int32) - 5 for i in range(64)])
    bytes_of = words.view(np.uint8).reshape(8, 8, 4, 4)[..., 2:]  # slot i of a lane: word i of group, quad
    factors = weights.view(np.int8).reshape(2, 2, 8, 4, 4)  # high, low; slots 0-3, 4-7; head, quad, slot
    for part in range(2):
        for bit in range(8):
            taken = bytes_of.astype(np.int64) & (1 << bit if bit < 7 else 255)
            for half in range(2):
                for column in range(2):
                    at = found[32 * part + 4 * bit + 2 * half + column].reshape(8, 4)  # token group, pair of heads
                    for pair in range(4):
                        head = 2 * pair + column
                        own = np.concatenate([factors[part, 0, head], factors[part, 1, head]], 1)  # quad, slot
                        wanted = np.einsum("sgq,qs->g", taken[..., half], own.astype(np.int64))
                        assert (at[:, pair] == wanted).all()
