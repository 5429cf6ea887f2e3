"""The fast reader's slots: what its key pass is given, read back as that pass reads it."""

import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from ptx_machine import Machine  # noqa: E402

from fastimpl.device import INTERPRETED, padded  # noqa: E402
from fastimpl.readkv import keys_ptx  # noqa: E402
from fastimpl.readkv.bar import STATE  # noqa: E402
from fastimpl.readkv.choose import choose_in_registers, few  # noqa: E402
from fastimpl.readkv.merge import query_kernel  # noqa: E402
from fastimpl.readkv.prepare import prepare_kernel  # noqa: E402
from fastimpl.readkv.rotation import hadamard_matrix  # noqa: E402
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

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported")
G = 3


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


@pytest.mark.parametrize("minimum", [0, 1])
def test_one_kernel_prepares_what_three_do(minimum):
    draw, d, rows = np.random.default_rng(3), 64, 2
    queries = torch.tensor(draw.normal(size=(1, rows, G, d)), dtype=torch.bfloat16)
    signs = torch.tensor(draw.choice([-1.0, 1.0], d), dtype=torch.float32)
    scales = torch.tensor(np.exp(0.3 * draw.normal(size=(rows, d))), dtype=torch.float32)
    gains, lefts = tables(queries.device).gains, torch.tensor([(3 - minimum) * d - 1] * rows)
    shape = {"G": G, "G_PAD": 16, "D": d, "D_PAD": d, "DEPENDENT": False}
    bought = {"LEVELS": 8, "W_PAD": padded(8 - minimum, 2), "FEW": few(d, 8 - minimum, 1)}
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
        queries, hadamard_matrix(d, queries.device), signs, scales, gains, lefts, *slot_tables(queries.device),
        *one.values(), rows, 5, *at, minimum, d**-0.5, BINS=BINS.value, STATE=STATE, **shape, **bought, **room,
    )  # fmt: skip
    query_kernel[(rows,)](
        queries, signs, scales, three["rotated"], three["importance"], three["bins"], three["state"], rows, 1, *at,
        d**-0.5, BINS=BINS.value, STATE=STATE, **shape,
    )  # fmt: skip
    choose_in_registers(three["importance"], gains, lefts, minimum, three["depths"])
    del shape["G_PAD"]
    slots_kernel[(PARTS, rows)](
        three["rotated"], scales, three["depths"], *slot_tables(queries.device), *(three[name] for name in slots),
        rows, 5, **shape, **room,
    )  # fmt: skip
    for name, value in one.items():
        assert torch.equal(value, three[name]), name


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
