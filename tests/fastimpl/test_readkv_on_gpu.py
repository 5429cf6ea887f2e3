"""The ReadKV reader on a GPU, where its matrix units and captured graphs are."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from fastimpl.readkv import cache as cache_module  # noqa: E402
from fastimpl.readkv.cache import append, by_lanes, empty_cache, encode  # noqa: E402
from fastimpl.readkv.chain import FLEXIBLE, RESTRICTED, ReadChain  # noqa: E402
from fastimpl.readkv.fast import FastChain  # noqa: E402
from fastimpl.readkv.reader import chain_for, full_reader, restricted_lefts, restricted_reader  # noqa: E402

pytestmark = pytest.mark.gpu
H, G, D, SCALE = 4, 7, 128, 128**-0.5


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda")


def state_of(d=D):
    signs = torch.where(draw(d, seed=9) < 0, -1.0, 1.0)
    return {"key_mean": draw(H, d, seed=1), "key_scale": torch.exp(0.3 * draw(H, d, seed=2)),
            "value_mean": draw(H, d, seed=3), "value_scale": torch.exp(0.3 * draw(H, d, seed=4)),
            "key_signs": signs, "value_signs": signs.flip(0)}  # fmt: skip


def cache_of(lengths, room, stored_depth=8, d=D, seed=5):
    cache = empty_cache(len(lengths), room, state_of(d), stored_depth)
    cache.lengths.copy_(torch.tensor(lengths, device="cuda"))
    codes = torch.randint(0, 256, (2, len(lengths), H, room, d), device="cuda", dtype=torch.uint8,
                          generator=torch.Generator("cuda").manual_seed(seed))  # fmt: skip
    encode(cache, codes[0], codes[1])
    return cache


def queries_of(N, d=D, seed=6, size=3.0):
    return (size * draw(N, H, G, d, seed=seed)).bfloat16()


@pytest.mark.parametrize(("stored_depth", "d"), [(8, 128), (4, 128), (8, 64)])
def test_turning_over_all_unread_bits_changes_no_bit_of_the_output(stored_depth, d):
    cache = cache_of([3001, 700], 3001, stored_depth, d)
    chain = restricted_reader(queries_of(2, d), cache, 2, d**-0.5)
    assert isinstance(chain, FastChain)
    right = chain.run().clone()
    key_depths, value_depths = chain.key_depths.clone(), chain.value_depths.clone()
    for plane in range(stored_depth):
        cache.key_planes[:, plane] ^= torch.where(key_depths <= plane, -1, 0)[:, :, None].int()
        half = 0xFFFF if plane % 2 == 0 else -0x10000
        cache.value_planes[:, plane // 2] ^= torch.where(value_depths <= plane, half, 0)[:, :, None].int()
    assert torch.equal(chain.run(), right)


@pytest.mark.parametrize("rate", [1.5, 2, 4])
def test_depths_are_the_greedy_allocation_to_the_last_tie(rate):
    lengths = [8192, 3001]
    cache = cache_of(lengths, 8192)
    chain = restricted_reader(queries_of(2), cache, rate, SCALE)
    chain.run()
    for row in range(2 * H):
        tokens = lengths[row // H]
        items = -(-tokens // 2)
        cost = torch.full((items,), 2, device="cuda")
        cost[-1] = 2 - tokens % 2
        worth = (chain.importance[row, :items, None] * chain.gains[1:]).view(torch.int32).flatten()
        order = torch.argsort(worth, descending=True, stable=True)
        item = order // (len(chain.gains) - 1)
        taken = (torch.cumsum(cost[item], 0) <= int(chain.allocation.lefts[row])) & (worth[order] > 0)
        wanted = 1 + torch.bincount(item[taken], minlength=items)
        assert torch.equal(wanted.repeat_interleave(2)[:tokens], chain.value_depths[row, :tokens].long())


@pytest.mark.parametrize(("stored_depth", "rate"), [(8, 1.25), (8, 4), (8, 6.5), (8, 8), (4, 2)])
def test_integer_products_give_the_logits_of_the_plain_pass(stored_depth, rate):
    lengths = [2049, 700]
    cache, queries = cache_of(lengths, 2049, stored_depth), queries_of(2)
    fast, plain = (
        kind(queries, cache, RESTRICTED, *restricted_lefts(cache, rate), SCALE) for kind in (FastChain, ReadChain)
    )
    fast.run()
    plain.run()
    assert torch.equal(fast.key_depths, plain.key_depths)
    for row in range(2 * H):
        tokens, depths = lengths[row // H], fast.key_depths[row]
        wanted = plain.logits[row, :tokens, :G]
        slots = float((2.0 ** (depths - 1.0))[depths > 0].sum())
        size = (fast.rotated[row] * cache.key_scale[row % H]).abs().sum(1)  # [G]; no centroid is beyond 4
        # float16 storage; half a unit per slot; float32 products and sums of at most d terms on both sides
        bound = 2.0**-11 * wanted.abs() + 1.4427 * SCALE * (0.5001 * slots * fast.slot_units[row, :G] + 2.0**-15 * size)
        assert ((fast.logits[row, :tokens, :G].float() - wanted).abs() <= bound).all()


@pytest.mark.parametrize("policy", [FLEXIBLE, RESTRICTED])
def test_the_two_chains_buy_the_same_key_depths(policy):
    cache, queries = cache_of([2000, 256], 2000), queries_of(2)
    if policy is RESTRICTED:
        lefts = restricted_lefts(cache, 2)
    else:
        lefts = tuple(torch.tensor([2 * H * n for n in each], device="cuda") for each in ((D, D), (2000, 256)))
    fast, plain = (kind(queries, cache, policy, *lefts, SCALE) for kind in (FastChain, ReadChain))
    fast.run()
    plain.run()
    assert torch.equal(fast.key_depths, plain.key_depths)
    pools = fast.rows // fast.rows_per_pool
    for chain in (fast, plain):
        live = torch.arange(cache.capacity, device="cuda") < cache.lengths.repeat_interleave(H)[:, None]
        spent = (chain.value_depths * live).view(pools, -1).long().sum(1)
        minimum = policy.minimum * cache.lengths.repeat_interleave(H).view(pools, -1).sum(1)
        assert ((spent - minimum) <= lefts[1]).all()
        assert ((spent - minimum) >= lefts[1] - (policy.paired * 1)).all()


@pytest.mark.parametrize("policy", [FLEXIBLE, RESTRICTED])
@pytest.mark.parametrize("chunk", [256, 2048])
def test_the_two_chains_give_nearly_the_same_output(policy, chunk):
    cache, queries = cache_of([2999, 256], 2999), queries_of(2)
    pools = H if policy.per_head else 1
    lefts = [torch.tensor([2 * H // pools * n for n in each for _ in range(pools)], device="cuda")
             for each in ((D, D), (2999, 256))]  # fmt: skip
    fast = FastChain(queries, cache, policy, *lefts, SCALE, chunk).run().float()
    plain = ReadChain(queries, cache, policy, *lefts, SCALE).run().float()
    # logits in float16 move weights by less than 2 per cent, and the depths of tokens on the bar
    assert (fast - plain).norm() <= 0.05 * plain.norm()


@pytest.mark.parametrize("tokens", [100, 8192])
def test_the_scheduled_control_is_the_full_reader_bit_for_bit(tokens):
    cache, queries = cache_of([tokens], tokens, stored_depth=4), queries_of(1)
    assert torch.equal(restricted_reader(queries, cache, 4, SCALE).run(), full_reader(queries, cache, SCALE).run())


def test_a_replayed_graph_follows_queries_lengths_and_budgets():
    cache, queries = cache_of([900, 2500], 4096), queries_of(2)
    keys, values = restricted_lefts(cache, 2)
    chain = chain_for(queries, cache, RESTRICTED, keys, values, SCALE)
    chain.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = chain.run()
    later = cache_of([4096, 17], 4096, seed=7)
    for mine, new in ((cache.key_planes, later.key_planes), (cache.value_planes, later.value_planes),
                      (cache.lengths, later.lengths), (queries, queries_of(2, seed=8))):  # fmt: skip
        mine.copy_(new)
    for mine, new in zip((keys, values), restricted_lefts(later, 2), strict=True):
        mine.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    fresh = restricted_reader(queries_of(2, seed=8), later, 2, SCALE).run()
    assert torch.equal(output, fresh)
    graph.replay()
    assert torch.equal(output, fresh)


def test_a_sequence_alone_has_the_bits_it_has_in_a_batch():
    whole, queries = cache_of([3001, 700], 3001), queries_of(2)
    both = FastChain(queries, whole, RESTRICTED, *restricted_lefts(whole, 2), SCALE, 256).run()
    one = empty_cache(1, 3001, state_of())
    one.lengths.fill_(700)
    one.key_planes.copy_(whole.key_planes[H:])
    one.value_planes.copy_(whole.value_planes[H:])
    alone = FastChain(queries[1:], one, RESTRICTED, *restricted_lefts(one, 2), SCALE, 256).run()
    assert torch.equal(alone[0], both[1])


def encoder_state(exact):
    """A state whose numbers are short, so that codes are exact, or not."""
    state = state_of()
    if exact:
        state |= {
            name: torch.exp2(torch.round(draw(H, D, seed=i))) for i, name in enumerate(("key_scale", "value_scale"))
        }
        state |= {name: torch.round(8 * draw(H, D, seed=i)) / 8 for i, name in enumerate(("key_mean", "value_mean"))}
    return state


def encoded(state, x, lengths, stored_depth):
    cache = empty_cache(x.shape[1], x.shape[3], state, stored_depth)
    cache.lengths.copy_(torch.tensor(lengths, device="cuda"))
    encode(cache, x[0], x[1])
    return cache


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    ("lengths", "room", "stored_depth"), [([2049, 777], 2049, 8), ([513, 0], 513, 3), ([9000], 700, 4)]
)
def test_the_encoder_on_matrix_units_writes_the_plain_branch_s_words(lengths, room, stored_depth, dtype, monkeypatch):
    x = torch.round(8 * draw(2, len(lengths), H, room, D, seed=11)).to(dtype)
    assert by_lanes(x[0])
    lanes = encoded(encoder_state(True), x, lengths, stored_depth)
    monkeypatch.setattr(cache_module, "by_lanes", lambda x: False)
    plain = encoded(encoder_state(True), x, lengths, stored_depth)
    assert torch.equal(lanes.key_planes, plain.key_planes)
    assert torch.equal(lanes.value_planes, plain.value_planes)


@pytest.mark.parametrize("stored_depth", [8, 3])
def test_appended_tokens_are_those_encoded_at_once(stored_depth):
    x, first = draw(2, 2, H, 270, D, seed=12).bfloat16(), [260, 250]
    whole = encoded(encoder_state(False), x, [n + 9 for n in first], stored_depth)
    grown = encoded(encoder_state(False), x, first, stored_depth)
    for i in range(9):
        append(grown, *(torch.stack([part[n, :, first[n] + i] for n in range(2)]) for part in x))
    assert torch.equal(grown.lengths, whole.lengths)
    assert torch.equal(grown.key_planes, whole.key_planes)
    assert torch.equal(grown.value_planes, whole.value_planes)
    before = whole.key_planes.clone(), whole.value_planes.clone()
    whole.lengths.fill_(whole.capacity)
    append(whole, x[0, :, :, 0], x[1, :, :, 0])  # full: nothing is written
    assert torch.equal(whole.key_planes, before[0])
    assert torch.equal(whole.value_planes, before[1])
    assert whole.lengths.tolist() == [whole.capacity] * 2


@pytest.mark.parametrize("many", [2, 3, 8])
@pytest.mark.parametrize("rate", [1, 2, 6.5])
def test_tiles_of_one_program_have_the_bits_that_they_have_alone(many, rate):
    cache = cache_of([8000, 700, 0], 8192)
    chain = restricted_reader(queries_of(3), cache, rate, SCALE)
    assert chain.tiles_of_program == 1
    for _ in range(20):
        chain.tiles_of_program = 1
        chain.run()
        alone = chain.logits.clone(), chain.largests.clone()
        for left in (chain.logits, chain.largests):
            left.zero_()
        chain.tiles_of_program = many
        chain.run()
        for row in range(3 * H):
            tokens = int(cache.lengths[row // H])
            assert torch.equal(chain.logits[row, :tokens], alone[0][row, :tokens])
        assert torch.equal(chain.largests, alone[1])


@pytest.mark.parametrize("policy", [FLEXIBLE, RESTRICTED])
@pytest.mark.parametrize("size", [0.0, 1.0, 3.0])
@pytest.mark.parametrize("share", [0, 1, 2, 7])
def test_one_kernel_between_the_passes_buys_what_two_buy(policy, size, share):
    """Equal importances (size 0) among them, and budgets from nothing to everything."""
    lengths = [16384, 3001]
    cache, queries = cache_of(lengths, 16384), queries_of(2, size=size)
    pools = H if policy.per_head else 1
    lefts = [torch.tensor([share * H // pools * n for n in each for _ in range(pools)], device="cuda")
             for each in ((D, D), lengths)]  # fmt: skip
    chain = FastChain(queries, cache, policy, *lefts, SCALE)
    assert chain.items_per_thread is not None
    chain.run()
    found = chain.value_depths.clone(), chain.output.clone()
    chain.items_per_thread = None
    chain.run()
    for row in range(2 * H):
        tokens = lengths[row // H]
        assert torch.equal(chain.value_depths[row, :tokens], found[0][row, :tokens])
    assert torch.equal(chain.output, found[1])


def test_chains_on_several_streams_do_not_keep_each_other_out():
    """Programs that wait for others are launched all at once; every one of these chains fills the device."""
    made = []
    for seed in range(3):
        queries = queries_of(1, seed=seed)
        chain = restricted_reader(queries, cache_of([131072], 131072, seed=seed), 2, SCALE)
        wanted = chain.run().clone()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            chain.run()
        made.append((chain, graph, torch.cuda.Stream(), wanted))
    for _ in range(50):
        for _chain, graph, stream, _wanted in made:
            with torch.cuda.stream(stream):
                graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(chain.output, wanted) for chain, _, _, wanted in made)
