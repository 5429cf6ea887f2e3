"""ReadKV's kernels in Triton's interpreter: what the stage contract does not reach."""

import math
import os

import numpy as np
import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from ptx_machine import Machine  # noqa: E402

from fastimpl.checks import ArgumentError  # noqa: E402
from fastimpl.device import INTERPRETED  # noqa: E402
from fastimpl.readkv import lanes_ptx, threshold, value_ptx  # noqa: E402
from fastimpl.readkv.cache import append, empty_cache, encode  # noqa: E402
from fastimpl.readkv.calibration import calibrate  # noqa: E402
from fastimpl.readkv.chain import FLEXIBLE, ReadChain  # noqa: E402
from fastimpl.readkv.choose import choose_in_registers, few  # noqa: E402
from fastimpl.readkv.entropy import cube_error  # noqa: E402
from fastimpl.readkv.reader import full_reader, refinements, restricted_lefts, restricted_reader  # noqa: E402
from fastimpl.readkv.slots import prefix_tables, slot_tables, subset_of  # noqa: E402
from fastimpl.readkv.tree import lloyd_tree  # noqa: E402
from fastimpl.readkv.value_tables import pair_table  # noqa: E402
from proofs_checks.bench.readkv import payload_bytes  # noqa: E402
from refimpl.readkv.accounting import schedule_payload_bits  # noqa: E402
from refimpl.readkv.allocation import choose_group_depths  # noqa: E402
from refimpl.readkv.calibration import calibrate_samples  # noqa: E402
from refimpl.readkv.entropy import cube_mmse_bound  # noqa: E402
from refimpl.readkv.restricted import pair_costs  # noqa: E402
from refimpl.readkv.rotation import readkv_rotate  # noqa: E402
from refimpl.readkv.tree import deployed_table  # noqa: E402

pytestmark = pytest.mark.skipif(not INTERPRETED.value, reason="TRITON_INTERPRET was not 1 when triton was imported")
H, G, D = 2, 3, 16
GAINS = deployed_table().gains


def state_of(seed=0):
    draw = np.random.default_rng(seed)
    real = {name: torch.tensor(np.exp(0.3 * draw.normal(size=(H, D))), dtype=torch.float32)
            for name in ("key_mean", "key_scale", "value_mean", "value_scale")}  # fmt: skip
    signs = {
        name: torch.tensor(draw.choice([-1.0, 1.0], D), dtype=torch.float32) for name in ("key_signs", "value_signs")
    }
    return real | signs


def cache_of(lengths, room, stored_depth=8, seed=0):
    """A cache of random codes."""
    codes = torch.tensor(np.random.default_rng(seed).integers(0, 256, (2, len(lengths), H, room, D)), dtype=torch.uint8)
    cache = empty_cache(len(lengths), room, state_of(), stored_depth)
    cache.lengths.copy_(torch.tensor(lengths))
    encode(cache, codes[0], codes[1])
    return cache


def queries_of(N, seed=1):
    return 3.0 * torch.randn(N, H, G, D, generator=torch.Generator().manual_seed(seed))


def poison_beyond(cache, key_depths, value_depths):
    """Turn over every bit of a plane at or beyond its channel's or token's depth."""
    for plane in range(cache.stored_depth):
        cache.key_planes[:, plane] ^= torch.where(key_depths <= plane, -1, 0)[:, :, None].int()
        half = 0xFFFF if plane % 2 == 0 else -0x10000
        cache.value_planes[:, plane // 2] ^= torch.where(value_depths <= plane, half, 0)[:, :, None].int()


@pytest.mark.parametrize("stored_depth", [8, 3])
def test_turning_over_all_unread_bits_changes_no_bit_of_the_output(stored_depth):
    cache = cache_of([300, 77], 300, stored_depth)
    chain = restricted_reader(queries_of(2), cache, 2, 0.25)
    right = chain.run().clone()
    key_depths, value_depths = chain.key_depths.clone(), chain.value_depths.clone()
    assert 1 <= int(key_depths.min()) < int(key_depths.max()) <= stored_depth
    before = cache.value_planes.clone()
    poison_beyond(cache, key_depths, value_depths)
    assert not torch.equal(cache.value_planes, before)
    assert torch.equal(chain.run(), right)


def test_what_is_read_is_what_the_reference_counts():
    cache = cache_of([301], 301)
    chain = restricted_reader(queries_of(1), cache, 2.5, 0.25)
    chain.run()
    depths = {"key_depths": chain.key_depths.tolist(), "value_depths": chain.value_depths[:, :301].tolist()}
    bits = schedule_payload_bits(**depths, channels=D)
    assert payload_bytes(chain) == bits // 8
    assert chain.key_depths.sum(1).tolist() == [40, 40]  # floor(2.5 * 16)
    spent = chain.value_depths[:, :301].sum(1).tolist()
    assert set(spent) <= {751, 752}  # of floor(2.5 * 301): a pair's step costs 2, so one may be left


def test_a_sequence_alone_has_the_bits_it_has_in_a_batch():
    whole = restricted_reader(queries_of(2), cache_of([300, 77], 300), 2, 0.25).run()
    second = cache_of([300, 77], 300)
    one = empty_cache(1, 300, state_of())
    one.lengths.fill_(77)
    one.key_planes.copy_(second.key_planes[H:])
    one.value_planes.copy_(second.value_planes[H:])
    assert torch.equal(restricted_reader(queries_of(2)[1:], one, 2, 0.25).run()[0], whole[1])


def test_the_scheduled_control_is_the_full_reader_bit_for_bit():
    cache, queries = cache_of([300], 300, stored_depth=4), queries_of(1)
    assert torch.equal(restricted_reader(queries, cache, 4, 0.25).run(), full_reader(queries, cache, 0.25).run())


def test_an_empty_sequence_of_a_batch_gives_zero():
    output = restricted_reader(queries_of(2), cache_of([40, 0], 40), 2, 0.25).run()
    assert not output[1].any()
    assert output[0].any()


def test_a_chain_follows_queries_lengths_and_budgets():
    cache, queries = cache_of([40], 300, seed=5), queries_of(1)
    codes = torch.tensor(np.random.default_rng(5).integers(0, 256, (2, 1, H, 300, D)), dtype=torch.uint8)
    chain = restricted_reader(queries, cache, 2, 0.25)
    chain.run()
    queries.copy_(queries_of(1, seed=9))
    cache.lengths.fill_(300)
    encode(cache, codes[0], codes[1])
    keys, values = restricted_lefts(cache, 2)
    chain.key_lefts.copy_(keys)
    chain.allocation.lefts.copy_(values)
    fresh = cache_of([300], 300, seed=5)
    assert torch.equal(chain.run(), restricted_reader(queries_of(1, seed=9), fresh, 2, 0.25).run())


def test_tokens_appended_one_by_one_are_those_encoded_at_once():
    keys, values = torch.randn(2, 1, H, 270, D, generator=torch.Generator().manual_seed(3))
    whole, grown = (empty_cache(1, 270, state_of()) for _ in range(2))
    whole.lengths.fill_(270)
    encode(whole, keys, values)
    grown.lengths.fill_(250)
    encode(grown, keys[:, :, :250], values[:, :, :250])
    for t in range(250, 270):
        append(grown, keys[:, :, t], values[:, :, t])
    assert torch.equal(grown.key_planes, whole.key_planes)
    assert torch.equal(grown.value_planes, whole.value_planes)
    assert grown.lengths.tolist() == [270]


@pytest.mark.parametrize(("stored", "rate"), [(8, 2), (8, 4), (4, 2)])
def test_pooled_budgets_are_spent_to_the_last_refinement(stored, rate):
    cache = cache_of([200, 90], 200, stored)
    lefts = [torch.tensor([rate * H * n for n in each]) for each in ((D, D), (200, 90))]
    chain = ReadChain(queries_of(2), cache, FLEXIBLE, *lefts, 0.25)
    chain.run()
    assert chain.key_depths.view(2, -1).sum(1).tolist() == lefts[0].tolist()
    spent = [int(chain.value_depths.view(2, H, -1)[n, :, :length].sum()) for n, length in enumerate((200, 90))]
    assert spent == lefts[1].tolist()


def importances(kind, count):
    draw = np.random.default_rng(count)
    return {
        "spread": draw.random(count) ** 4,
        "close": 1 + 0.05 * draw.random(count),
        "few values": draw.integers(1, 5, count) / 4.0,
        "equal": np.ones(count),
        "one live": np.eye(1, count)[0],
        "tiny": 2.0**-120 * draw.random(count),
        "large": 2.0**60 * draw.random(count),
    }[kind].astype(np.float32)


@pytest.mark.parametrize("kind", ["spread", "close", "few values", "equal", "one live", "tiny", "large"])
@pytest.mark.parametrize(("minimum", "paired"), [(0, False), (1, True)])
@pytest.mark.parametrize("search", [1 << 16, 64])
def test_both_allocations_are_the_greedy_one_to_the_last_tie(kind, minimum, paired, search, monkeypatch):
    monkeypatch.setattr(threshold, "SEARCH", search)  # 64: the list does not fit, and is gone through in pieces
    monkeypatch.setattr(threshold, "WIDE_SEARCH", search)
    importance, tokens = importances(kind, 151), 301 if paired else 151
    costs = pair_costs(tokens) if paired else np.ones(tokens, np.int64)
    worth = (importance[:, None] * GAINS[None]).astype(np.float64)  # float32 products, as the kernels take them
    for budget in (minimum * tokens, 2 * tokens + 1, 7 * tokens + 1, 8 * tokens):
        wanted = greedy(worth[:, minimum:], costs, budget - minimum * tokens) + minimum
        lefts, depths = torch.tensor([budget - minimum * tokens]), torch.empty((1, len(costs)), dtype=torch.int32)
        args = (torch.tensor(importance)[None], torch.tensor(GAINS), lefts, minimum)
        choose_in_registers(*args, depths, int(costs[0]), int(costs[-1]))
        np.testing.assert_array_equal(depths[0].numpy(), wanted)
        threshold.Allocation(*args, paired=paired, last_cost=int(costs[-1])).choose(depths)
        np.testing.assert_array_equal(depths[0].numpy(), wanted)


@pytest.mark.parametrize("kind", ["spread", "close", "few values", "equal", "one live", "tiny", "large"])
@pytest.mark.parametrize(("minimum", "count"), [(0, 100), (1, 128)])
def test_few_items_are_allocated_to_the_last_tie(kind, minimum, count):
    assert few(count, 8 - minimum, 1)  # three counts in one word
    importance, costs = importances(kind, count), np.ones(count, np.int64)
    worth = (importance[:, None] * GAINS[None]).astype(np.float64)
    for budget in (minimum * count, 2 * count + 1, 4 * count, 7 * count + 1, 8 * count):
        depths, lefts = torch.empty((1, count), dtype=torch.int32), torch.tensor([budget - minimum * count])
        choose_in_registers(torch.tensor(importance)[None], torch.tensor(GAINS), lefts, minimum, depths)
        wanted = greedy(worth[:, minimum:], costs, budget - minimum * count) + minimum
        np.testing.assert_array_equal(depths[0].numpy(), wanted)


def greedy(worth, costs, left):
    """Steps bought by falling worth, lower item first; the first that does not fit ends buying."""
    item, level = np.nonzero(worth > 0)
    order = np.argsort(-worth[item, level], kind="stable")
    taken = item[order][: np.searchsorted(np.cumsum(costs[item[order]]), left, side="right")]
    return np.bincount(taken, minlength=len(costs))


def test_the_greedy_of_this_test_is_the_reference():
    importance = importances("spread", 40)
    wanted = choose_group_depths(importance=importance.astype(float), costs=pair_costs(79), gains=GAINS.astype(float),
                                 budget=160, minimum_depth=0)  # fmt: skip
    np.testing.assert_array_equal(greedy(importance[:, None].astype(float) * GAINS, pair_costs(79), 160), wanted)


def test_slots_of_every_depth_and_path_sum_to_the_centroid():
    tables, (_, centroids, _) = slot_tables(torch.device("cpu")), lloyd_tree(8)
    members = {(block, slot): subset_of(block, slot) for block in range(16) for slot in range(8)}
    assert len(set(members.values())) == 128
    for depth in range(1, 9):
        path = torch.arange(2**depth)
        sign = {p: 2.0 * ((path >> (depth - 1 - p)) & 1) - 1.0 for p in range(depth)}
        total = torch.zeros(2**depth, dtype=torch.float64)
        for at, planes in members.items():
            factor = float(tables.coefficients[depth][at])
            if max(planes) < depth:
                total += factor * math.prod(sign[p] for p in planes)
            else:
                assert factor == 0
        # 2^(depth-1) coefficients, each rounded to float32 once
        bound = 2.0**-24 * float(tables.coefficients[depth].abs().sum())
        assert float((total - centroids[depth].double()).abs().max()) <= bound
        assert float(tables.coefficients[depth].abs().max()) == float(tables.largest[depth])


def test_prefix_tables_do_not_look_beyond_their_depth():
    tables = prefix_tables(torch.device("cpu"))
    for row, depth in enumerate(range(5, 9)):
        for code in range(256):
            assert tables[row, code] == tables[row, code & (2**depth - 1)]


def test_bits_are_the_float16_numbers_that_the_last_factors_undo():
    for index in range(32):
        bit = index // 4 + 8 * (index // 2 % 2)
        pattern = 1 << bit if bit < 15 else 0x8000 | 0x3C00
        value = float(np.array([pattern], np.uint16).view(np.float16)[0])
        wanted = 1.0 if bit == 15 else 2.0  # -1 undoes 1 - 2 bit: sum w (2 bit - 1) needs no more
        assert value * lanes_ptx.last_factor(index) == wanted


def test_running_counts_are_the_sums_up_to_a_lane():
    counts = np.random.default_rng(0).integers(0, 1 << 20, (3, 64))
    given = {3 + i: counts[i] for i in range(3)}
    machine = Machine(value_ptx.running_text(3), given, np.zeros(1, np.int32), 64)
    machine.run()
    for i in range(3):
        wanted = counts[i].reshape(2, 32).cumsum(1).reshape(-1)
        assert (machine.values[f"${i}"] == wanted).all()


def test_pairs_of_depth_4_are_the_centroids_of_both_codes():
    table, (_, centroids, _) = pair_table(torch.device("cpu")), lloyd_tree(8)
    for index in range(256):
        for token in range(2):
            code = index >> (4 * token) & 15
            prefix = int(f"{code:04b}"[::-1], 2)  # bit p is plane p, the first plane is a path's first bit
            assert table[index, token] == centroids[4][prefix].to(torch.float16)


def test_whole_codes_and_pairs_of_codes_are_the_planes_bits():
    planes = np.random.default_rng(1).integers(0, 1 << 32, (8, 32))

    def bit(plane, place):
        return (planes[plane] >> place) & 1

    machine = Machine(lanes_ptx.codes_text(), {8 + p: planes[p] for p in range(8)}, np.zeros(1, np.int32), 32)
    machine.run()
    for i in range(8):
        for j in range(4):
            code = sum(bit(p, 8 * j + i) << p for p in range(8))
            assert ((machine.values[f"${i}"] >> (8 * j) & 255) == code).all()
    machine = Machine(lanes_ptx.pair_codes_text(), {8 + p: planes[p] for p in range(4)}, np.zeros(1, np.int32), 32)
    machine.run()
    for i in range(4):
        for k in range(2):
            for j in range(2):
                place = i + 4 * k + 8 * j
                code = sum((bit(p, place) | bit(p, place + 16) << 4) << p for p in range(4))
                assert ((machine.values[f"${2 * i + k}"] >> (8 * j) & 255) == code).all()


@pytest.mark.parametrize("mean", [0.0, 1000.0])
def test_calibration_is_the_reference_s(mean):
    samples = np.random.default_rng(2).normal(size=(H, 700, D)) + mean
    signs = np.where(np.arange(D) % 3 == 0, -1.0, 1.0)
    given = samples.astype(np.float32)
    wanted = calibrate_samples(samples=readkv_rotate(x=given.astype(float), signs=signs))
    got = calibrate(torch.tensor(given), torch.tensor(signs, dtype=torch.float32))
    u, size = 2.0**-24, np.abs(given).sum(-1).max() / np.sqrt(D)  # of a rotated scalar before cancellation
    error = (D + 256 + 16) * u * size  # a rotation's sum, a split's sum, and the joint mean's
    np.testing.assert_allclose(got[0].numpy(), wanted.mean, rtol=0, atol=error)
    np.testing.assert_allclose(got[1].numpy(), wanted.scale, rtol=(256 + 16) * u, atol=2 * error)


def test_a_dead_channel_is_named_or_takes_the_floor():
    samples = torch.zeros(1, 4, 16)
    with pytest.raises(ArgumentError, match=r"dead channel at \[0, 0\]; pass a floor"):
        calibrate(samples, torch.ones(16))
    assert calibrate(samples, torch.ones(16), floor=0.5)[1].tolist() == [[0.5] * 16]


@pytest.mark.parametrize("bits", [(0,), (3, 3), (1, 5, 0, 2)])
def test_the_cube_s_error_is_its_cells_variance_and_above_equation_4(bits):
    found = cube_error(bits, 1 << 17, 7, torch.device("cpu"))
    exact = sum((2.0 / 2**b) ** 2 / 12.0 for b in bits)
    assert abs(found.mmse - exact) <= 6 * found.error  # six standard errors
    assert exact >= len(bits) * cube_mmse_bound(dimension=len(bits), bits=sum(bits))


def test_a_rate_is_the_decimal_that_is_written():
    assert refinements("rate", 0.29, 100, 8) == 29
    for rate in (-1, 9, float("nan"), True, "2"):
        with pytest.raises(ArgumentError, match="rate: expected"):
            refinements("rate", rate, 100, 8)
