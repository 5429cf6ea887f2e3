"""What attention is, whatever the inputs: means, invariances, splits and merges, pages and pools."""

import draws
import numpy as np
from derived import answer, assert_same, assert_within, bounds
from draws import Draw, a_few_shapes
from hypothesis import example
from stage_inputs import merge_attention as merge_inputs
from stage_inputs import paged_sparse_attention as paged_sparse_inputs
from stage_inputs import sparse_attention as sparse_inputs

from refimpl.attention import attention, merge_attention, page_coverage, sparse_attention
from refimpl.locks.combine import head_shares
from refimpl.locks.score import exact_page_scores
from refimpl.paging import gather_sequence, paged_attention, paged_sparse_attention


@a_few_shapes
def test_an_output_lies_between_its_values(drawn):
    inputs = draws.qkv(drawn)
    output, bound = attention(**inputs)["output"], bounds("attention", inputs)["output"]
    assert (output <= inputs["values"].max(axis=1)[:, None] + bound).all()
    assert (output >= inputs["values"].min(axis=1)[:, None] - bound).all()


@a_few_shapes
def test_the_lse_is_at_most_the_log_of_the_count_above_the_largest_logit(drawn):
    inputs = draws.qkv(drawn)
    lse, bound = attention(**inputs)["lse"], bounds("attention", inputs)["lse"]
    largest = np.max(inputs["queries"] @ np.swapaxes(inputs["keys"], -1, -2), axis=-1) / np.sqrt(drawn.d)
    # the largest logit is computed too: its error is one of those that the bound of the lse is made of
    assert (lse >= largest - 2 * bound).all()
    assert (lse <= largest + np.log(drawn.tokens) + 2 * bound).all()


@a_few_shapes
def test_equal_logits_average_the_values(drawn):
    inputs = draws.qkv(drawn) | {"queries": np.zeros((drawn.H, drawn.G, drawn.d))}
    result, bound = attention(**inputs), bounds("attention", inputs)
    mean = np.broadcast_to(inputs["values"].mean(axis=1)[:, None], result["output"].shape)
    rounding = drawn.tokens * 2.0**-52 * np.abs(inputs["values"]).mean(axis=1)[:, None]  # gamma_T of the test's mean
    assert_within(result["output"], mean, bound["output"] + rounding)
    assert_within(result["lse"], np.full(result["lse"].shape, np.log(drawn.tokens)), bound["lse"])


@a_few_shapes
def test_the_order_of_tokens_does_not_matter(drawn):
    inputs = draws.qkv(drawn)
    order = drawn.rng.permutation(drawn.tokens)
    assert_same("attention", inputs, inputs | {n: inputs[n][:, order] for n in ("keys", "values")})


@a_few_shapes
def test_query_heads_read_their_own_kv_head_only(drawn):
    inputs = draws.qkv(drawn)
    whole, bound = attention(**inputs), bounds("attention", inputs)
    for h, g in np.ndindex(drawn.H, drawn.G):
        alone = attention(
            queries=inputs["queries"][h, g][None, None], keys=inputs["keys"][h, None], values=inputs["values"][h, None]
        )
        for name in whole:
            assert_within(alone[name][0, 0], whole[name][h, g], 2 * bound[name][h, g])


@a_few_shapes
def test_splits_merge_to_the_whole(drawn):
    inputs = draws.qkv(drawn)
    cut = int(drawn.rng.integers(0, drawn.tokens + 1))
    parts = [inputs | {n: inputs[n][:, s] for n in ("keys", "values")} for s in (slice(None, cut), slice(cut, None))]
    states = [attention(**part) for part in parts]
    errors = [bounds("attention", part) for part in parts]
    call = {"outputs": np.stack([s["output"] for s in states]), "lses": np.stack([s["lse"] for s in states])}
    merged, whole = merge_attention(**call), attention(**inputs)
    own, direct = bounds("merge_attention", call), bounds("attention", inputs)
    # Log-masses off by e move weights by at most expm1(2 e): |do| <= expm1(2 e) times the splits' distance, which is at
    # most twice the largest value; outputs off by their bounds move a weighted mean by no more than the largest.
    moved = np.max([e["lse"] for e in errors], axis=0)
    assert_within(merged["lse"], whole["lse"], own["lse"] + direct["lse"] + moved)
    reach = 2 * np.abs(inputs["values"]).max(axis=1, initial=0.0)[:, None]
    allowed = np.expm1(2 * moved)[..., None] * reach + np.max([e["output"] for e in errors], axis=0)
    assert_within(merged["output"], whole["output"], own["output"] + direct["output"] + allowed)


@a_few_shapes
@example(drawn=Draw(1, 64, 8, seed=3, content="plus-60000"))
def test_merging_ignores_order_and_empty_splits(drawn):
    inputs = merge_inputs(drawn)
    order = drawn.rng.permutation(len(inputs["lses"]))
    assert_same("merge_attention", inputs, {n: a[order] for n, a in inputs.items()})
    junk = {
        "outputs": np.full((1, *inputs["outputs"].shape[1:]), 1e30),
        "lses": np.full_like(inputs["lses"][:1], -np.inf),
    }
    assert_same("merge_attention", inputs, {n: np.concatenate([a, junk[n]]) for n, a in inputs.items()})


@a_few_shapes
def test_a_single_split_is_its_own_merge(drawn):
    state = attention(**draws.qkv(drawn))
    merged = merge_attention(outputs=state["output"][None], lses=state["lse"][None])
    assert np.array_equal(merged["output"], state["output"])
    assert np.array_equal(merged["lse"], state["lse"])


@a_few_shapes
def test_all_pages_are_the_whole_and_their_order_is_free(drawn):
    inputs = draws.qkv(drawn) | {"page_size": drawn.B}
    pages = np.stack([drawn.rng.permutation(drawn.pages) for _ in range(drawn.H)])
    sparse = sparse_attention(**inputs, pages=pages)
    dense = {n: inputs[n] for n in ("queries", "keys", "values")}
    whole, bound = attention(**dense), bounds("attention", dense)
    for name in whole:
        assert_within(sparse[name], whole[name], 2 * bound[name])


@a_few_shapes
def test_sparse_attention_never_reads_other_pages(drawn):
    inputs = sparse_inputs(drawn)
    kept = np.zeros((drawn.H, drawn.tokens), dtype=bool)
    for h, row in enumerate(inputs["pages"]):
        for page in row:
            kept[h, page * drawn.B : (page + 1) * drawn.B] = True
    spoiled = {n: np.where(kept[..., None], inputs[n], np.nan) for n in ("keys", "values")}
    clean, dirty = sparse_attention(**inputs), sparse_attention(**(inputs | spoiled))
    assert all(np.array_equal(clean[n], dirty[n]) for n in clean)


@a_few_shapes
def test_kept_mass_is_the_coverage(drawn):
    """lse over kept pages minus lse over all = log of the share of mass that the pages hold (Locks Sec. 2)."""
    inputs = sparse_inputs(drawn)
    pages, complete = inputs["pages"], drawn.complete * drawn.B
    dense = {n: inputs[n] for n in ("queries", "keys", "values")}
    scores = [exact_page_scores(queries=dense["queries"], key_pages=draws.key_pages(drawn))]
    if drawn.opened:
        scores.append(exact_page_scores(queries=dense["queries"], key_pages=dense["keys"][:, None, complete:]))
    shares = head_shares(np.concatenate(scores, axis=-1))  # [H, G, P]
    sparse, whole = sparse_attention(**inputs)["lse"], attention(**dense)["lse"]
    slack = bounds("sparse_attention", inputs)["lse"] + 3 * bounds("attention", dense)["lse"]  # lse, shares' two lses
    for h in range(drawn.H):
        with np.errstate(divide="ignore"):
            coverage = np.log(page_coverage(shares[h], pages[h]))
        deep = coverage > -700  # below, a share underflows
        assert_within((sparse - whole)[h][deep], coverage[deep], (slack[h] + drawn.pages * 2.0**-52)[deep])
        assert not np.isneginf(sparse[h]).any() or len(pages[h]) == 0


@a_few_shapes
def test_pools_hold_the_same_sequences(drawn):
    cache = draws.pool(drawn)
    paged = paged_attention(**cache)
    for n, length in enumerate(cache["tokens"]):
        gathered = {
            "queries": cache["queries"][n],
            "keys": gather_sequence(cache["key_pool"], cache["block_table"][n], int(length)),
            "values": gather_sequence(cache["value_pool"], cache["block_table"][n], int(length)),
        }
        want, bound = attention(**gathered), bounds("attention", gathered)
        for name in want:
            assert_within(paged[name][n], want[name], 2 * bound[name])
    assert np.isneginf(paged["lse"][1]).all()  # the empty sequence
    assert not paged["output"][1].any()


@a_few_shapes
def test_blocks_may_lie_anywhere_in_the_pool(drawn):
    inputs = paged_sparse_inputs(drawn)
    blocks = len(inputs["key_pool"])
    order = drawn.rng.permutation(blocks)
    table = np.where(inputs["block_table"] >= 0, np.argsort(order)[inputs["block_table"]], inputs["block_table"])
    moved = inputs | {n: inputs[n][order] for n in ("key_pool", "value_pool")} | {"block_table": table}
    for stage, names in (("paged_attention", set(inputs) - {"pages"}), ("paged_sparse_attention", set(inputs))):
        first, second = (answer(stage, {n: call[n] for n in names}) for call in (inputs, moved))
        assert all(np.array_equal(first[n], second[n]) for n in first)


@a_few_shapes
def test_padding_of_page_rows_is_skipped(drawn):
    inputs = paged_sparse_inputs(drawn)
    padded = np.concatenate([np.full_like(inputs["pages"][..., :1], -1), inputs["pages"]], axis=-1)
    first, second = paged_sparse_attention(**inputs), paged_sparse_attention(**(inputs | {"pages": padded}))
    assert all(np.array_equal(first[n], second[n]) for n in first)
