"""The Locks chain on a GPU, where inline PTX, graphs and large memory are: bits depend on nothing that they may not."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
if not torch.cuda.is_available():
    pytest.skip("no CUDA device", allow_module_level=True)

from dataclasses import replace  # noqa: E402

import numpy as np  # noqa: E402

from fastimpl import port  # noqa: E402
from fastimpl.locks.decode import LocksChain, locks_decode, locks_decode_paged  # noqa: E402
from fastimpl.locks.oracle import oracle_decode  # noqa: E402
from fastimpl.locks.record import Layout  # noqa: E402
from fastimpl.locks.score_records import RecordScores, RingShape  # noqa: E402
from fastimpl.locks.summary import build_records  # noqa: E402
from fastimpl.paging import Cache  # noqa: E402
from proofs_checks.bounds.locks_score import score_bound  # noqa: E402
from proofs_checks.numbers import Precision  # noqa: E402
from refimpl.locks.score import locks_score_pages  # noqa: E402

pytestmark = pytest.mark.gpu
H, G, D, B, KEPT, SCALE = 2, 8, 128, 16, 64, 128**-0.5
LENGTHS = [20000, 0, 333, 4096]  # two passes of selection: 1250 pages; an empty row; an open page; complete pages


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator("cuda").manual_seed(seed), device="cuda").bfloat16()


def cache_of(lengths, pools=None, room=None):
    """A paged cache in shuffled blocks; table entries past a row's end are stale."""
    longest = room or max(lengths)
    pages = -(-longest // B)
    blocks = len(lengths) * pages + 3
    keys, values = pools or (draw(blocks, B, H, D, seed=1), draw(blocks, B, H, D, seed=2))
    order = torch.randperm(blocks, generator=torch.Generator().manual_seed(3))[: len(lengths) * pages]
    table = order.view(len(lengths), pages).to("cuda", torch.int32)
    tokens = torch.tensor(lengths, device="cuda", dtype=torch.int32)
    for n, length in enumerate(lengths):
        table[n, -(-length // B) :] = 2**30
    strides = [(x.stride(0), x.stride(1), x.stride(2)) for x in (keys, values)]
    return Cache(keys, values, *strides, B, H, D, blocks, tokens, table, longest)


def chain_of(cache, queries=None, scales="float32", splits=8):
    """A chain over freshly built records; its workspaces hold NaN."""
    layout = Layout(B, D, 8, 4, scales)
    records = layout.empty(H, cache.blocks, "cuda")
    records.fill_(0xFF)
    build_records(cache, layout, records)
    queries = draw(cache.sequences, H, G, D, seed=4) if queries is None else queries
    chain = LocksChain(queries, cache, records, layout, KEPT, SCALE, splits)
    for buffer in (chain.scoring.scores, chain.attention.parts, chain.attention.masses):
        buffer.fill_(float("nan"))
    chain.selection.pages.fill_(7)
    return chain


def bits(result):
    torch.cuda.synchronize()
    return result["pages"].clone(), result["output"].view(torch.int16).clone()


def same(first, second):
    return all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_nan_in_every_page_that_was_not_chosen_changes_no_bit():
    cache = cache_of(LENGTHS)
    chain = chain_of(cache)
    right = bits(chain.run())
    touched = torch.zeros(cache.blocks, H, dtype=torch.bool, device="cuda")
    for n, length in enumerate(LENGTHS):
        for h in range(H):
            pages = right[0][n, h]
            touched[cache.block_table[n][pages[pages >= 0].long()].long(), h] = True
        if length % B:
            touched[cache.block_table[n, length // B]] = True
    for pool in (cache.keys, cache.values):
        pool.masked_fill_(~touched[:, None, :, None], float("nan"))
    assert same(bits(chain.run()), right)
    assert torch.isfinite(chain.attention.output[[0, 2, 3]]).all()


def test_a_replayed_graph_follows_content_and_lengths():
    cache, queries = cache_of([4096, 900], room=6400), draw(2, H, G, D, seed=4)
    chain = chain_of(cache, queries)
    chain.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = chain.run()
    later = cache_of([3001, 6400], room=6400)
    for mine, new in ((cache.block_table, later.block_table), (cache.tokens, later.tokens)):
        mine.copy_(new)
    build_records(cache, chain.layout, chain.summary)
    queries.copy_(draw(2, H, G, D, seed=5))
    graph.replay()
    replayed = bits(result)
    assert same(replayed, bits(chain_of(later, draw(2, H, G, D, seed=5)).run()))
    graph.replay()
    assert same(replayed, bits(result))


def test_a_row_alone_has_the_bits_it_has_in_a_batch():
    whole = bits(chain_of(cache_of(LENGTHS)).run())
    cache, queries = cache_of(LENGTHS), draw(len(LENGTHS), H, G, D, seed=4)
    for n in (0, 2, 3):
        alone = replace(cache, block_table=cache.block_table[n : n + 1], tokens=cache.tokens[n : n + 1])
        pages, output = bits(chain_of(alone, queries[n : n + 1]).run())
        assert torch.equal(pages[0], whole[0][n])
        assert torch.equal(output[0], whole[1][n])


def test_strides_of_the_pools_and_of_the_queries_change_no_bit():
    cache = cache_of(LENGTHS)
    right = bits(chain_of(cache).run())
    both = torch.full((cache.blocks, H, 2, B, D + 8), float("nan"), device="cuda").bfloat16()
    halves = [both[:, :, i, :, :D].transpose(1, 2) for i in range(2)]
    for half, pool in zip(halves, (cache.keys, cache.values), strict=True):
        half.copy_(pool)
    queries = torch.full((len(LENGTHS), G, H, D + 8), float("nan"), device="cuda").bfloat16()[..., :D].transpose(1, 2)
    queries.copy_(draw(len(LENGTHS), H, G, D, seed=4))
    assert same(bits(chain_of(cache_of(LENGTHS, tuple(halves)), queries).run()), right)


def test_blocks_and_records_beyond_2_to_the_31_change_no_bit():
    small = cache_of([1500])
    right = bits(chain_of(small).run())
    blocks = 2**31 // (832 * H) + small.blocks + 1  # records of 896 bytes, keys of 8192 a block: both pass 2^31
    pools = [torch.empty(blocks, B, H, D, dtype=torch.bfloat16, device="cuda") for _ in range(2)]
    far = blocks - small.blocks
    for pool, source in zip(pools, (small.keys, small.values), strict=True):
        pool[far:].copy_(source)
    cache = replace(small, keys=pools[0], values=pools[1], blocks=blocks, block_table=small.block_table.long() + far)
    assert same(bits(chain_of(cache).run()), right)


@pytest.mark.parametrize("splits", [1, 3, 16])
def test_any_number_of_splits_gives_the_same_pages_and_nearly_the_same_output(splits):
    first, second = (chain_of(cache_of(LENGTHS), splits=n).run() for n in (8, splits))
    assert torch.equal(first["pages"], second["pages"])
    # weights and outputs are bfloat16: each output is within 2^-7 of the largest value of its head
    assert (first["output"].float() - second["output"].float()).abs().max() < 2 * 2.0**-7 * 5


@pytest.mark.parametrize("copy", ["bulk", "async"])
@pytest.mark.parametrize("scales", ["float32", "float16"])
def test_both_branches_score_records_within_the_bound(scales, copy):
    keys, queries = draw(H, 1600, D, seed=1), draw(H, G, D, seed=4)
    pages = keys.view(H, 100, B, D)
    summary = port.locks_build_summary(key_pages=pages, rank=8)
    codes = port.locks_quantize_summary(**summary, basis_bits=4)
    if scales == "float16":
        codes |= {n: codes[n].half().float() for n in ("basis_scale", "coefficient_scale")}
    exact = {n: v.double().cpu().numpy() for n, v in port.locks_dequantize_summary(**codes).items()}
    inputs = {"queries": queries.double().cpu().numpy(), **exact}
    right = locks_score_pages(**inputs)
    bound = score_bound(inputs, {"scores": right}, Precision("bfloat16", "float32", "bfloat16"))["scores"]
    cache = Cache(keys, keys, *[(B * D, D, 1600 * D)] * 2, B, H, D, 100, 1600, None, 1600)
    layout = Layout(B, D, 8, 4, scales)
    records = layout.empty(H, 100, "cuda")
    build_records(cache, layout, records)
    for branch in ("plain", "auto"):
        scoring = RecordScores(queries[None], records, layout, cache, SCALE, branch, RingShape(copy=copy))
        assert scoring.ptx == (branch == "auto")
        scores = scoring.run()[0].double().cpu().numpy()
        np.testing.assert_array_less(np.abs(scores - right), bound)


def test_nan_keys_poison_their_own_page_alone():
    keys, values, queries = draw(H, 3200, D, seed=1), draw(H, 3200, D, seed=2), draw(H, G, D, seed=4)
    settings = {"rank": 8, "basis_bits": 4, "budget_tokens": 512, "page_size": B}
    keys[:, 5 * B : 6 * B] = float("nan")
    result = locks_decode(queries=queries, keys=keys, values=values, **settings)
    assert result["pages"].shape == (H, 32)
    assert ((result["pages"] >= -1) & (result["pages"] < 200)).all()


def test_auto_attends_densely_at_8k():
    keys, values, queries = (draw(*s, seed=i) for i, s in enumerate([(4, 8192, D), (4, 8192, D), (4, G, D)]))
    settings = {"rank": 8, "basis_bits": 4, "budget_tokens": 2048, "page_size": B}
    auto = locks_decode(queries=queries, keys=keys, values=values, mode="auto", **settings)
    dense = port.attention(queries=queries, keys=keys, values=values)
    assert torch.equal(auto["output"], dense["output"])
    assert auto["pages"].shape == (4, 0)


def test_the_oracle_keeps_the_pages_of_the_summary_that_loses_nothing():
    keys, values, queries = draw(H, 1605, D, seed=1), draw(H, 1605, D, seed=2), draw(H, G, D, seed=4)
    oracle = oracle_decode(queries=queries, keys=keys, values=values, budget_tokens=512, page_size=B)
    full = locks_decode(
        queries=queries, keys=keys, values=values, rank=16, basis_bits=None, budget_tokens=512, page_size=B
    )
    agree = [len(set(a.tolist()) & set(b.tolist())) for a, b in zip(oracle["pages"], full["pages"], strict=True)]
    assert min(agree) >= 32, "sixteen modes of sixteen tokens are all there is"


def test_a_paged_step_is_the_contiguous_step():
    keys, values, queries = draw(H, 3333, D, seed=1), draw(H, 3333, D, seed=2), draw(H, G, D, seed=4)
    settings = {"rank": 8, "basis_bits": 4, "budget_tokens": 1024}
    one = locks_decode(queries=queries, keys=keys, values=values, page_size=B, **settings)
    pages = 209
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).cuda()
    pools = []
    for x in (keys, values):
        padded = torch.full((H, pages * B, D), float("nan"), device="cuda").bfloat16()
        padded[:, :3333] = x
        pool = torch.empty(pages, B, H, D, dtype=torch.bfloat16, device="cuda")
        pool[order] = padded.view(H, pages, B, D).permute(1, 2, 0, 3)
        pools.append(pool)
    two = locks_decode_paged(
        queries=queries[None], key_pool=pools[0], value_pool=pools[1], block_table=order[None],
        tokens=torch.tensor([3333], device="cuda"), **settings,
    )  # fmt: skip
    assert torch.equal(one["pages"], two["pages"][0])
    assert torch.equal(one["output"], two["output"][0])
