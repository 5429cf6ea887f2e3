"""What the other systems' own papers say must hold: limits in which they are attention, and what they never do."""

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from proofs_checks.bounds.common import gamma
from refimpl.attention import attention, log_sum_exp, sparse_attention
from refimpl.baselines.choose import evict_tokens
from refimpl.baselines.expected_attention import expected_attention_scores, expected_query_moments
from refimpl.baselines.kvzip import kvzip_keep, kvzip_scores
from refimpl.baselines.lazyeviction import lazyeviction_scores, lazyeviction_track
from refimpl.baselines.loki import loki_attention, loki_scores
from refimpl.baselines.quest import quest_envelope, quest_pages, quest_scores
from refimpl.baselines.rkv import rkv_scores
from refimpl.baselines.rocketkv import max_pool, rocketkv_budgets, rocketkv_snap, rocketkv_tokens, window_weights
from refimpl.baselines.rope import rope_frequencies, rope_rotate
from refimpl.baselines.shadowkv import shadowkv_chunks, shadowkv_keys, shadowkv_landmarks, shadowkv_low_rank
from refimpl.baselines.sparq import sparq_attention, sparq_channels
from refimpl.baselines.sparq_nested import sparq_nested_attention
from refimpl.baselines.triattention import triattention_scores
from refimpl.locks.combine import head_shares
from refimpl.readkv.policies import read_full
from refimpl.readkv.reader import check_cache

EPS = np.finfo(float).eps
seeds = st.integers(0, 2**32 - 1)


def drawn(seed, H=2, G=3, T=21, d=16):
    rng = np.random.default_rng(seed)
    return {
        "queries": rng.normal(size=(H, G, d)),
        "keys": rng.normal(size=(H, T, d)),
        "values": rng.normal(size=(H, T, d)),
    }


def close(left, right, size=1.0):
    """Equal up to a hundred roundings of the size."""
    assert np.abs(np.asarray(left) - right).max() <= 100 * EPS * size


@given(seeds)
def test_quest_bounds_the_log_mass_of_its_page_up_to_the_log_of_its_length(seed):
    call = drawn(seed)
    scores = quest_scores(queries=call["queries"], **quest_envelope(keys=call["keys"], page_size=8))
    logits = np.einsum("hgd,htd->hgt", call["queries"], call["keys"]) / 4
    slack = gamma(20, EPS) * np.abs(call["queries"]).sum() * np.abs(call["keys"]).max()
    for page, n in enumerate((8, 8, 5)):  # the open page has 5 tokens
        mass = log_sum_exp(logits[..., 8 * page : 8 * page + n])
        assert (mass <= scores[..., page] / 4 + math.log(n) + slack).all()


def test_a_quest_head_reads_between_its_budget_and_the_whole_groups():
    rng = np.random.default_rng(0)
    for seed in range(20):
        scores = rng.normal(size=(2, 4, 100)) if seed else np.broadcast_to(np.arange(100.0), (2, 4, 100))
        read = quest_pages(scores=scores, budget_tokens=256, page_size=16)["read"].sum(axis=1) * 16
        assert (read >= 256).all()
        assert (read <= 4 * 256).all()
    disjoint = -np.abs(np.arange(100) - np.array([[10], [35], [60], [85]]))[None].astype(float)
    assert quest_pages(scores=disjoint, budget_tokens=256, page_size=16)["read"].sum() * 16 == 4 * 256


@given(seeds, st.sampled_from(["scores", "weights"]))
def test_sparq_with_all_channels_and_tokens_is_attention(seed, ranking):
    call = drawn(seed)
    step = sparq_attention(**call, rank=16, kept_tokens=20, ranking=ranking)
    close(step["mass"], 1.0)
    close(step["output"], attention(**call)["output"], 10)


@given(seeds)
def test_sparq_mixes_its_own_attention_with_the_mean_value(seed):
    call = drawn(seed)
    step = sparq_attention(**call, rank=5, kept_tokens=6)
    own = sparse_attention(**call, pages=step["tokens"], page_size=1)["output"]
    mean = call["values"].mean(axis=1)[:, None]
    mass = step["mass"][..., None]
    close(step["output"], mass * own + (1 - mass) * mean, 10)
    assert (step["tokens"][:, -1] == 20).all(), "the current token"
    assert step["tokens"].shape[1] == 7
    assert ((step["mass"] > 0) & (step["mass"] <= 1 + 100 * EPS)).all()


@given(seeds)
def test_both_rankings_of_sparq_agree_for_one_query_head(seed):
    call = drawn(seed, G=1)
    first, second = (sparq_attention(**call, rank=4, kept_tokens=5, ranking=r) for r in ("scores", "weights"))
    assert np.array_equal(first["tokens"], second["tokens"])


def test_sparq_shares_its_factor_with_the_query_length_that_the_channels_hold():
    """A query on r channels only: the factor is 1 and the probe is exact."""
    call = drawn(3, G=1)
    call["queries"][..., 4:] = 0
    step = sparq_attention(**call, rank=4, kept_tokens=20)
    close(step["output"], attention(**call)["output"], 10)
    assert sparq_channels(call["queries"], 4).tolist() == [[0, 1, 2, 3]] * 2


def test_sparq_on_the_code_with_everything_read_is_the_full_reader():
    rng = np.random.default_rng(5)
    state = {
        "key_codes": rng.integers(0, 256, size=(2, 9, 16)), "value_codes": rng.integers(0, 256, size=(2, 9, 16)),
        "key_mean": rng.normal(size=(2, 16)), "key_scale": 0.2 + rng.random((2, 16)),
        "value_mean": rng.normal(size=(2, 16)), "value_scale": 0.2 + rng.random((2, 16)),
        "key_signs": rng.choice([-1.0, 1.0], size=16), "value_signs": rng.choice([-1.0, 1.0], size=16),
    }  # fmt: skip
    queries = rng.normal(size=(2, 3, 16))
    step = sparq_nested_attention(queries=queries, **state, rank=16, kept_tokens=8)
    _, cache = check_cache(queries, state, 8)
    close(step["output"], read_full(queries=queries, cache=cache)["output"], 100)


@given(seeds)
def test_loki_at_full_rank_ranks_by_the_exact_logits(seed):
    call = drawn(seed)
    rng = np.random.default_rng(seed)
    components = np.linalg.qr(rng.normal(size=(2, 16, 16)))[0]
    scores = loki_scores(call["queries"], call["keys"], components, 16, 0.25)
    close(scores, np.einsum("hgd,htd->hgt", call["queries"], call["keys"]) / 4, 10)
    everything = loki_attention(**call, components=components, rank=3, kept_tokens=21)
    close(everything["output"], attention(**call)["output"], 10)


@given(seeds)
def test_shadowkv_at_full_rank_gives_the_keys_back(seed):
    rng = np.random.default_rng(seed)
    keys = rng.normal(size=(2, 10, 6))
    factor = shadowkv_low_rank(keys=keys, rank=10)
    w = rope_frequencies(6)
    rebuilt = shadowkv_keys(**factor, tokens=np.arange(10), frequencies=w)
    close(rebuilt, rope_rotate(x=keys, positions=np.arange(10), frequencies=w), 10)


def test_shadowkv_reads_landmarks_of_whole_chunks_before_the_local_region():
    keys = np.random.default_rng(1).normal(size=(1, 8 * 60 + 7, 8))
    state = shadowkv_landmarks(keys=keys)
    assert state["landmarks"].shape == (1, 56, 8)
    assert state["outliers"].shape == (1, 48)
    assert np.array_equal(state["landmarks"][0, 55], keys[0, 440:448].mean(axis=0))


def test_shadowkv_takes_the_strongest_wish_of_the_group():
    landmarks = np.eye(4)[None]
    queries = np.array([[[40.0, 0, 0, 0], [0, 9.0, 9.5, 0]]])
    assert shadowkv_chunks(queries=queries, landmarks=landmarks, kept_chunks=2).tolist() == [[0, 2]]


@given(seeds)
def test_rocketkv_with_chunks_of_one_and_all_channels_ranks_by_attention(seed):
    call = drawn(seed)
    chosen = rocketkv_tokens(queries=call["queries"], keys=call["keys"], chunk_size=1, rank=16, kept_tokens=5)
    weights = head_shares(np.einsum("hgd,htd->hgt", call["queries"], call["keys"]) / 4).mean(axis=1)
    best = np.sort(np.argsort(-weights, axis=-1)[:, :5], axis=-1)
    assert np.array_equal(chosen["tokens"], best)


@given(seeds)
def test_rocketkv_chunk_scores_bound_their_tokens_for_one_query_head(seed):
    """One query head: the sign is its own, so the extreme key bounds every product, as an envelope does."""
    call = drawn(seed, G=1)
    one = {"queries": call["queries"], "keys": call["keys"], "kept_tokens": 21, "rank": 16}
    assert rocketkv_tokens(**one, chunk_size=4)["tokens"].shape == (2, 21)
    sign = np.where(call["queries"] > 0, 1, -1)
    extreme = np.maximum.reduceat(sign * call["keys"], np.arange(0, 21, 4), axis=1)
    bound = np.repeat(np.einsum("hgd,hcd->hgc", np.abs(call["queries"]), extreme), 4, axis=-1)[..., :21]
    room = 2 * gamma(16, EPS / 2) * np.abs(call["queries"]).sum(axis=-1).max() * np.abs(call["keys"]).max()
    assert (
        np.einsum("hgd,htd->hgt", call["queries"], call["keys"]) <= bound + room
    ).all()  # 16 channels on either side


def test_rocketkv_window_weights_are_causal_and_pooling_never_lowers_a_vote():
    rng = np.random.default_rng(2)
    queries, keys = rng.normal(size=(1, 2, 3, 8)), rng.normal(size=(1, 10, 8))
    weights = window_weights(queries, keys, 0.3)
    assert weights[0, :, 0, 8:].tolist() == [[0.0, 0.0]] * 2
    close(weights.sum(axis=-1), 1.0)
    assert (max_pool(weights, 5) >= weights).all()
    kept = rocketkv_snap(queries=queries, keys=keys, budget_tokens=5, kernel=3)
    assert kept[0, -3:].tolist() == [7, 8, 9]


def test_rocketkv_first_stage_has_nothing_to_do_for_long_answers():
    """Locks C.4: the prompt's budget approaches the prompt's length, so stage 1 is inert."""
    budgets = rocketkv_budgets(length=16384 + 300, budget_tokens=1024, new_tokens=16384, head_size=128)
    assert budgets.prompt_tokens == 300
    assert budgets.attended_tokens == 512


def test_kvzip_keeps_one_fewer_than_the_share_and_exactly_the_share_per_head():
    scores = np.random.default_rng(3).permutation(120).reshape(2, 3, 20) / 120
    assert kvzip_keep(scores=scores, ratio=0.5).sum() == 59
    assert (kvzip_keep(scores=scores, ratio=0.5, level="uniform").sum(axis=-1) == 10).all()
    assert kvzip_keep(scores=np.zeros((1, 1, 4)), ratio=0.5).sum() == 0, "ties with the threshold go"


def test_kvzip_scores_are_the_largest_weight_and_see_no_later_repetition():
    rng = np.random.default_rng(4)
    parts = {n: rng.normal(size=(1, s, 8)) for n, s in (("prefix_keys", 2), ("chunk_keys", 3), ("repeat_keys", 3))}
    queries = rng.normal(size=(1, 2, 3, 8))
    scores = kvzip_scores(queries=queries, **parts)
    best = np.zeros(3)
    for g in range(2):
        for i in range(3):
            seen = np.concatenate([parts["prefix_keys"][0], parts["chunk_keys"][0], parts["repeat_keys"][0, : i + 1]])
            best = np.maximum(best, head_shares(seen @ queries[0, g, i] / np.sqrt(8))[2:5])
    close(scores[0], best)


@given(seeds)
def test_expected_attention_of_a_fixed_query_is_its_attention_times_value_lengths(seed):
    call = drawn(seed, G=1)
    moments = expected_query_moments(queries=np.repeat(call["queries"][:, :, None], 6, axis=2), skipped=1)
    close(moments["mean"], call["queries"])
    scores = expected_attention_scores(
        keys=call["keys"], values=call["values"], query_mean=moments["mean"],
        query_covariance=moments["covariance"], sinks=0,
    )  # fmt: skip
    weights = head_shares(np.einsum("hgd,htd->hgt", call["queries"], call["keys"]) / 4)[:, 0]
    close(scores, weights * np.linalg.norm(call["values"], axis=-1), 10)


def test_rkv_alone_by_attention_or_by_likeness():
    rng = np.random.default_rng(6)
    queries, keys = rng.normal(size=(1, 1, 1, 8)), rng.normal(size=(1, 9, 8))
    attention_only = rkv_scores(queries=queries, keys=keys, mix=1.0, kernel=1)
    close(attention_only[0], head_shares(keys[0, :8] @ queries[0, 0, 0] / np.sqrt(8)))
    copies = np.eye(8)[None, [0, 1, 2, 1, 3, 1, 4, 5]]  # tokens 1, 3 and 5 are one key
    likeness = -rkv_scores(queries=queries, keys=copies, mix=0.0)[0]
    assert likeness[1] > likeness[3] > likeness[5], "of three copies the latest counts as the least like the others"


@given(seeds)
def test_triattention_scores_a_constant_query_by_its_own_future_logits(seed):
    rng = np.random.default_rng(seed)
    query, key, w = rng.normal(size=8), rng.normal(size=8), rope_frequencies(8)
    cached = rope_rotate(x=key[None, None], positions=[3], frequencies=w)
    size = np.hypot(query[:4], query[4:])
    call = {
        "keys": cached,
        "positions": [3],
        "frequencies": w,
        "centre": query[None, None],
        "magnitude": size[None, None],
    }
    for offset in (1, 8):
        scores = triattention_scores(**call, step=10, offsets=[offset])
        later = rope_rotate(x=query[None, None], positions=[10 + offset], frequencies=w)
        close(scores[0, 0, 0], later[0, 0] @ cached[0, 0], 100)
    both = triattention_scores(**call, step=10, offsets=[1, 8])
    each = [triattention_scores(**call, step=10, offsets=[o])[0, 0, 0] for o in (1, 8)]
    close(both[0, 0, 0], np.mean(each), 100)


def test_lazyeviction_keeps_what_was_seen_and_forgets_what_rests_too_long():
    state = {"last": np.array([[[0, 0]]]), "interval": np.array([[[0, 0]]])}
    for step in range(1, 9):
        weights = np.array([[[0.5 if step % 4 == 0 else 0.0, 0.5 if step == 1 else 0.0]]])
        state = lazyeviction_track(**state, weights=weights, threshold=1e-4, step=step)
    assert state["last"].tolist() == [[[8, 1]]]
    assert state["interval"].tolist() == [[[4, 1]]]
    scores = lazyeviction_scores(**state, step=8)[0, 0]
    assert scores[0] > scores[1]
    assert lazyeviction_scores(last=[[[8]]], interval=[[[5]]], step=8)[0, 0, 0] > lazyeviction_scores(
        last=[[[8]]], interval=[[[1]]], step=8
    ), "as written, the second factor grows with the interval"


@given(seeds, st.integers(0, 4), st.integers(0, 4), st.integers(8, 30))
def test_eviction_keeps_both_ends_and_nothing_worse_than_what_goes(seed, first, recent, budget):
    scores = np.random.default_rng(seed).normal(size=(2, 20))
    kept = evict_tokens(scores=scores, budget_tokens=budget, first_tokens=first, recent_tokens=recent)
    assert kept.shape == (2, min(budget, 20))
    for row, own in zip(kept, scores, strict=True):
        assert set(range(first)) | set(range(20 - recent, 20)) <= set(row)
        free = [i for i in row if first <= i < 20 - recent]
        gone = sorted(set(range(20)) - set(row))
        assert not gone or not free or min(own[free]) >= max(own[gone])


def test_a_zero_query_is_no_division_by_zero():
    call = drawn(1)
    call["queries"][:] = 0
    step = sparq_attention(**call, rank=3, kept_tokens=4)
    close(step["mass"], 5 / 21)
    assert np.isfinite(
        rocketkv_tokens(queries=call["queries"], keys=call["keys"], chunk_size=4, rank=3, kept_tokens=4)["tokens"]
    ).all()
