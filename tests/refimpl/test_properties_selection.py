"""What scores, shares, selections and decode steps are, whatever the inputs (Locks Lemma 1, Sec. 2, Sec. 4)."""

import draws
import numpy as np
from derived import answer, assert_same, assert_within, bounds
from draws import Draw, a_few_shapes, every_shape, key_pages
from hypothesis import example
from stage_inputs import locks_decode as decode_inputs
from stage_inputs import locks_decode_paged as decode_paged_inputs
from stage_inputs import locks_page_shares as share_inputs
from stage_inputs import locks_score_pages as score_inputs
from stage_inputs import locks_select_pages as select_inputs

from refimpl.attention import attention, log_sum_exp
from refimpl.locks.combine import COMBINES, locks_page_shares
from refimpl.locks.decode import locks_decode, locks_decode_paged
from refimpl.locks.score import exact_page_scores, locks_score_pages
from refimpl.locks.select import locks_select_pages
from refimpl.locks.summary import locks_build_summary, reconstruct
from refimpl.paging import gather_sequence


@a_few_shapes
def test_estimated_scores_are_exact_scores_of_the_rebuilt_keys(drawn):
    inputs = score_inputs(drawn)
    rebuilt = reconstruct(inputs["centroid"], inputs["basis"], inputs["coefficients"])
    # each rebuilt key is rounded r + 1 times: the bound of the estimate holds the same roundings
    exact = {"queries": inputs["queries"], "key_pages": rebuilt}
    slack = 2 * bounds("locks_score_pages", inputs)["scores"] + bounds("exact_page_scores", exact)["scores"]
    assert_within(locks_score_pages(**inputs), exact_page_scores(**exact), slack)


@a_few_shapes
def test_scores_of_all_pages_add_up_to_the_lse(drawn):
    inputs = draws.qkv(drawn)
    tokens = drawn.complete * drawn.B
    dense = {n: a[:, :tokens] if n != "queries" else a for n, a in inputs.items()}
    call = {"queries": inputs["queries"], "key_pages": key_pages(drawn)}
    total = log_sum_exp(exact_page_scores(**call))
    slack = bounds("exact_page_scores", call)["scores"].max(axis=-1, initial=0.0)
    final = (drawn.complete + 4) * 2.0**-52 * (1 + np.abs(np.where(np.isneginf(total), 0.0, total)))  # the last sum
    assert_within(total, attention(**dense)["lse"], slack + bounds("attention", dense)["lse"] + final)


@a_few_shapes
def test_a_pages_score_does_not_depend_on_its_place_or_its_tokens_order(drawn):
    call = {"queries": draws.qkv(drawn)["queries"], "key_pages": key_pages(drawn)}
    mixed = call["key_pages"][:, :, drawn.rng.permutation(drawn.B)]
    assert_same("exact_page_scores", call, call | {"key_pages": mixed})
    order = drawn.rng.permutation(drawn.complete)
    moved = exact_page_scores(queries=call["queries"], key_pages=call["key_pages"][:, order])
    slack = 2 * bounds("exact_page_scores", call)["scores"][..., order]
    assert_within(moved, exact_page_scores(**call)[..., order], slack)


@every_shape
@example(drawn=Draw(2, 64, 8, complete=0, opened=1))  # P = 0: once a crash of the bound
def test_shares_are_shares(drawn):
    scores = share_inputs(drawn)["scores"]
    results = {rule: locks_page_shares(scores=scores, combine=rule) for rule in COMBINES}
    errors = {rule: bounds("locks_page_shares", {"scores": scores, "combine": rule})["shares"] for rule in COMBINES}
    for rule, shares in results.items():
        assert (shares >= 0).all()
        assert (shares <= 1 + errors[rule]).all()
        assert not shares[np.isneginf(scores).all(axis=1)].any()
    live = np.isfinite(scores).any(axis=-1)  # [H, G]
    sums = results["share_average"].sum(axis=-1)
    slack = errors["share_average"].sum(axis=-1) + drawn.complete * 2.0**-52
    assert_within(sums, live.mean(axis=1), slack)
    mass = results["group_mass"].sum(axis=-1)
    assert_within(mass, live.any(axis=1) * 1.0, errors["group_mass"].sum(axis=-1) + drawn.complete * 2.0**-52)
    above = results["group_max"] + errors["group_max"] + errors["share_average"]
    assert (results["share_average"] <= above).all()


@every_shape
def test_one_query_head_makes_every_rule_the_same(drawn):
    scores = share_inputs(drawn)["scores"][:, :1]
    calls = [{"scores": scores, "combine": rule} for rule in COMBINES]
    for other in calls[1:]:
        assert_same("locks_page_shares", calls[0], other)


@every_shape
def test_a_shift_of_one_heads_scores_changes_no_share_of_it(drawn):
    """Shares are of each head's own mass. Shifts by 4 round scores; the allowance is the rounding's own effect."""
    scores = share_inputs(drawn)["scores"]
    shifted = scores + 4.0
    finite = np.abs(shifted[np.isfinite(shifted)])
    moved = 2.0**-53 * finite.max(initial=0.0)  # rounding of the shifted scores
    slack = sum(bounds("locks_page_shares", {"scores": s})["shares"] for s in (scores, shifted)) + np.expm1(2 * moved)
    assert_within(locks_page_shares(scores=shifted), locks_page_shares(scores=scores), slack)


@every_shape
def test_a_selection_is_forced_sorted_distinct_and_the_largest(drawn):
    inputs = select_inputs(drawn)
    shares, kept = inputs["shares"], -(-inputs["budget_tokens"] // inputs["page_size"])
    pages, P = locks_select_pages(**inputs), shares.shape[1]
    assert pages.shape == (drawn.H, min(kept, P))
    for row, share in zip(pages.tolist(), shares, strict=True):
        assert row == sorted(set(row))
        assert row[0] == 0
        assert row[-1] == P - 1
        free = [p for p in row if p not in (0, P - 1)]
        left = [p for p in range(1, P - 1) if p not in row]
        assert all((share[a], -a) > (share[b], -b) for a in free for b in left), "ties go to the lower page"


@every_shape
def test_a_larger_budget_keeps_all_that_a_smaller_one_kept(drawn):
    inputs = select_inputs(drawn)
    small = locks_select_pages(**inputs)
    large = locks_select_pages(**(inputs | {"budget_tokens": inputs["budget_tokens"] + drawn.B}))
    for a, b in zip(small.tolist(), large.tolist(), strict=True):
        assert set(a) <= set(b)


@every_shape
def test_only_the_order_of_shares_matters(drawn):
    inputs = select_inputs(drawn)
    monotone = inputs | {"shares": 8.0 * inputs["shares"] - 3.0 * (inputs["shares"] < 0)}
    assert np.array_equal(locks_select_pages(**inputs), locks_select_pages(**monotone))


@a_few_shapes
def test_a_budget_for_every_page_gives_dense_attention(drawn):
    inputs = decode_inputs(drawn) | {"budget_tokens": max(2, drawn.pages) * drawn.B}
    step = locks_decode(**inputs)
    dense = {n: inputs[n] for n in ("queries", "keys", "values")}
    assert np.array_equal(step["pages"], np.tile(np.arange(drawn.pages), (drawn.H, 1)))
    assert_within(step["output"], attention(**dense)["output"], 2 * bounds("attention", dense)["output"])


@a_few_shapes
def test_full_rank_unquantised_summaries_rank_pages_by_their_exact_shares(drawn):
    """At rank B nothing is lost: every page kept has an exact share not below a page left out, up to the errors."""
    queries, pages = draws.qkv(drawn)["queries"], key_pages(drawn)
    if drawn.complete < 3:
        return
    keys = pages.reshape(drawn.H, -1, drawn.d)
    call = {"queries": queries, "keys": keys, "values": keys, "rank": drawn.B, "basis_bits": None}
    step = locks_decode(**call, budget_tokens=3 * drawn.B - drawn.B // 2, page_size=drawn.B)
    scores = {"scores": exact_page_scores(queries=queries, key_pages=pages)}
    shares = locks_page_shares(**scores)
    exact = {"queries": queries, "key_pages": pages}
    summary = locks_build_summary(key_pages=pages, rank=drawn.B)
    lost = np.linalg.norm(pages - reconstruct(**summary), axis=-1).max(axis=(0, 1, 2))
    off = lost * np.linalg.norm(queries, axis=-1).max() / np.sqrt(drawn.d)  # |q.(k - k^)| / sqrt(d)
    eta = off + bounds("exact_page_scores", exact)["scores"].max()
    eta += bounds("locks_score_pages", {"queries": queries, **summary})["scores"].max()
    slack = np.expm1(4 * eta) + 2 * bounds("locks_page_shares", scores)["shares"].max()
    for h, row in enumerate(step["pages"].tolist()):
        left = [p for p in range(drawn.complete) if p not in row]
        worst = min((shares[h, p] for p in row if p not in (0, drawn.complete - 1)), default=1.0)
        assert all(shares[h, p] <= worst + slack for p in left)


@a_few_shapes
def test_paged_steps_are_the_steps_of_the_gathered_sequences(drawn):
    inputs = decode_paged_inputs(drawn)
    paged = locks_decode_paged(**inputs)
    settings = {n: inputs[n] for n in ("rank", "basis_bits", "budget_tokens")}
    for n, length in enumerate(inputs["tokens"]):
        keys, values = (
            gather_sequence(inputs[p], inputs["block_table"][n], int(length)) for p in ("key_pool", "value_pool")
        )
        call = {"queries": inputs["queries"][n], "keys": keys, "values": values, "page_size": drawn.B, **settings}
        alone = locks_decode(**call)
        kept = alone["pages"].shape[1]
        assert np.array_equal(paged["pages"][n, :, :kept], alone["pages"])
        assert (paged["pages"][n, :, kept:] == -1).all()
        assert np.array_equal(paged["output"][n], alone["output"])


@a_few_shapes
def test_a_step_attends_exactly_the_pages_it_names(drawn):
    inputs = decode_inputs(drawn)
    step = locks_decode(**inputs)
    call = {n: inputs[n] for n in ("queries", "keys", "values", "page_size")} | {"pages": step["pages"]}
    assert np.array_equal(step["output"], answer("sparse_attention", call)["output"])
