"""What selects tokens and chunks, against plain loops over the papers' sentences, and by hand where a sentence ends."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from refimpl.baselines.expected_attention import expected_attention_scores
from refimpl.baselines.lazyeviction import lazyeviction_track
from refimpl.baselines.loki import loki_kept, loki_rank
from refimpl.baselines.quest import quest_pages, quest_scores
from refimpl.baselines.rkv import column_means, rkv_scores
from refimpl.baselines.rocketkv import (
    RocketBudgets,
    chunk_scores,
    max_pool,
    rocketkv_budgets,
    rocketkv_snap,
    rocketkv_tokens,
    window_weights,
)
from refimpl.baselines.rope import rope_rotate
from refimpl.baselines.shadowkv import shadowkv_chunks, shadowkv_landmarks, worst_cosines
from refimpl.baselines.sparq import norm_factor, probe_scores, ranked_tokens, sparq_attention
from refimpl.baselines.sparq_nested import sparq_nested_attention
from refimpl.checks import ArgumentError

EPS = np.finfo(float).eps
seeds = st.integers(0, 2**32 - 1)


def close(left, right, size=1.0):
    """Equal up to a hundred roundings of the size."""
    assert np.abs(np.asarray(left) - right).max() <= 100 * EPS * size


def refusal(function, **arguments):
    with pytest.raises(ArgumentError) as caught:
        function(**arguments)
    return str(caught.value)


def factor_of(query, channels):
    return math.sqrt(sum(abs(q) for q in query) / sum(abs(query[c]) for c in channels))


@given(seeds, st.integers(1, 5))
def test_rocketkv_scores_a_chunk_by_its_extreme_keys(seed, size):
    """The maximum of a channel where the group's queries sum to more than 0, else the minimum."""
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(size=(1, 2, 6)), rng.normal(size=(1, 7, 6))
    channels = np.array([[0, 2, 3]])
    queries[0, 1, 3] = -queries[0, 0, 3]  # a sum of 0
    scores = chunk_scores(queries, keys, channels, size, 0.5)
    assert scores.shape == (1, 2, math.ceil(7 / size))
    for g in range(2):
        for chunk in range(math.ceil(7 / size)):
            held = keys[0, chunk * size : (chunk + 1) * size]
            extreme = {c: held[:, c].max() if queries[0, :, c].sum() > 0 else held[:, c].min() for c in (0, 2, 3)}
            expected = 0.5 * factor_of(queries[0, g], (0, 2, 3)) * sum(queries[0, g, c] * extreme[c] for c in (0, 2, 3))
            close(scores[0, g, chunk], expected, 10)


@given(seeds)
def test_sparqs_probe_is_the_scaled_product_on_its_channels(seed):
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(size=(1, 2, 6)), rng.normal(size=(1, 4, 6))
    scores = probe_scores(queries, keys, np.array([[1, 4]]), 0.5)
    for g in range(2):
        for t in range(4):
            product = sum(queries[0, g, c] * keys[0, t, c] for c in (1, 4))
            close(scores[0, g, t], 0.5 * factor_of(queries[0, g], (1, 4)) * product, 10)


def test_a_query_of_zeros_on_the_channels_has_the_factor_one():
    queries = np.zeros((1, 40, 64))
    queries[..., 1:] = 3.0
    assert (norm_factor(queries, np.array([[0]])) == 1.0).all()


def test_sparq_ranks_by_summed_scores_or_by_summed_weights():
    """Sums 3, 0, 0 prefer token 0; the weights are about 1 for token 1 in one head and .91 for token 0 in the other."""
    scores = np.array([[[0.0, 30.0, 0.0, 0.0], [3.0, -30.0, 0.0, 0.0]]])
    assert ranked_tokens(scores, 1, "scores", 0).tolist() == [[0, 3]]
    assert ranked_tokens(scores, 1, "weights", 0).tolist() == [[1, 3]]
    assert ranked_tokens(scores, 1, "scores", 1).tolist() == [[2, 3]]
    assert ranked_tokens(np.zeros((1, 1, 1)), 3, "scores", 0).tolist() == [[0]]


def test_sparq_names_its_results_and_forces_no_local_token_unasked():
    keys = np.array([[[5.0], [4.0], [0.0], [0.0]]])
    call = {"queries": np.ones((1, 1, 1)), "keys": keys, "values": keys, "rank": 1, "kept_tokens": 2}
    step = sparq_attention(**call)
    assert (step["channels"].tolist(), step["tokens"].tolist()) == ([[0]], [[0, 1, 3]])
    assert set(step) == {"output", "channels", "tokens", "mass"}
    state = {"key_mean": [[0.0]], "key_scale": [[1.0]], "value_mean": [[0.0]], "value_scale": [[1.0]]}
    codes = {"key_codes": [[[255], [0], [128]]], "value_codes": [[[0], [0], [0]]], "key_signs": [1], "value_signs": [1]}
    nested = sparq_nested_attention(queries=np.ones((1, 1, 1)), **codes, **state, rank=1, kept_tokens=1)
    assert set(nested) == set(step)
    assert (nested["channels"].tolist(), nested["tokens"].tolist()) == ([[0]], [[0, 2]])
    assert nested["mass"].shape == (1, 1)


@given(seeds, st.sampled_from([1, 3, 5, 7]))
def test_pooling_is_the_maximum_of_the_neighbours(seed, kernel):
    x = np.random.default_rng(seed).normal(size=(2, 9))
    pooled, half = max_pool(x, kernel), (kernel - 1) // 2
    for row in range(2):
        for i in range(9):
            assert pooled[row, i] == max(x[row, max(0, i - half) : i + half + 1])


@given(seeds)
def test_window_weights_are_causal_softmax(seed):
    rng = np.random.default_rng(seed)
    queries, keys = rng.normal(size=(1, 2, 3, 4)), rng.normal(size=(1, 7, 4))
    weights = window_weights(queries, keys, 0.5)
    for g in range(2):
        for i in range(3):
            masses = [math.exp(0.5 * float(queries[0, g, i] @ keys[0, t])) for t in range(7 - 3 + i + 1)]
            close(weights[0, g, i], np.array([*masses, *[0.0] * (2 - i)]) / sum(masses))


def test_a_window_that_looks_at_itself_does_not_vote_for_itself():
    keys = np.array([[[0.0], [1.0], [0.0], [9.0], [9.0]]])
    call = {"queries": np.ones((1, 1, 2, 1)), "keys": keys, "kernel": 1}
    assert rocketkv_snap(**call, budget_tokens=3).tolist() == [[1, 3, 4]]
    assert rocketkv_snap(**call, budget_tokens=9).tolist() == [[0, 1, 2, 3, 4]]
    short = {"queries": np.ones((1, 1, 2, 1)), "keys": keys[:, :2], "budget_tokens": 2}
    assert rocketkv_snap(**short).tolist() == [[0, 1]], "a prompt of the window alone"
    assert refusal(rocketkv_snap, **short | {"keys": keys[:, :1]}) == (
        "queries: expected a window of at most T=1 queries, got w=2"
    )


def test_rocketkv_budgets_by_hand():
    """alpha ends at 0.8: ratio 2^21 gives int(2^25 / 2^16.8) = 294, and 294 / 16 = 18.375 asks for chunks of 5."""
    assert rocketkv_budgets(length=2**25, budget_tokens=16, new_tokens=0, head_size=128) == RocketBudgets(294, 8, 5, 34)
    # 32 tokens left of a budget of 16: chunks of ceil(sqrt 2) = 2, which is not more than what is left
    assert rocketkv_budgets(length=32, budget_tokens=16, new_tokens=16, head_size=128) == RocketBudgets(16, 8, 2, 128)


def test_rkv_counts_a_cosine_of_one_half_as_unlike():
    """Row 0 has no cosine above 1/2, so its first column goes; so does row 1's only alike key."""
    assert column_means(np.array([[[0.0, 0.5], [0.9, 0.0]]])).tolist() == [[0.0, 0.25]]


def test_rkv_needs_a_token_before_its_window():
    keys = np.ones((1, 3, 2))
    message = "queries: expected 1..T-1 queries of a group, got w=3, T=3, G=1"
    assert refusal(rkv_scores, queries=np.ones((1, 1, 3, 2)), keys=keys) == message


def test_quest_keeps_its_recent_pages_inside_the_budget():
    scores = np.array([[[5.0, 4.0, 3.0, 2.0, 1.0]]])
    call = {"scores": scores, "budget_tokens": 48, "page_size": 16}
    assert [quest_pages(**call, recent_pages=n)["pages"].tolist() for n in (0, 1, 2)] == [
        [[[0, 1, 2]]], [[[0, 1, 4]]], [[[0, 3, 4]]],
    ]  # fmt: skip


def test_quest_shows_where_an_envelope_is_turned_over():
    message = refusal(quest_scores, queries=[[[1.0, 1.0]]], minimum=[[[2.0, 3.0]]], maximum=[[[2.0, 1.0]]])
    assert message == "minimum: expected values up to maximum, got 3.0 at [0, 0, 1]"


def test_a_weight_at_the_threshold_was_not_looked_at():
    state = {"last": [[[1, 1]]], "interval": [[[0, 0]]], "threshold": 0.25, "step": 4}
    assert lazyeviction_track(**state, weights=[[[0.25, 0.5]]])["last"].tolist() == [[[1, 4]]]


def test_lokis_rank_and_number_of_tokens_at_their_ends():
    assert loki_rank([[0.9, 0.1], [0.75, 0.25]], 0.5) == 0
    assert loki_rank([[0.9, 0.1], [0.25, 0.75]], 0.5) == 1
    assert [loki_kept(50, share) for share in (0.5, 1, 1.5, 2)] == [25, 50, 1, 2]


def test_shadowkvs_cosines_by_hand():
    """Chunk 0: landmark (1, 1) to (2, 0) and (0, 2); chunk 1: its keys are multiples of the landmark."""
    chunks = np.array([[[[2.0, 0.0], [0.0, 2.0]], [[1.0, 0.0], [5.0, 0.0]]]])
    close(worst_cosines(chunks, chunks.mean(axis=2)), np.array([[math.sqrt(0.5), 1.0]]))
    state = shadowkv_landmarks(keys=chunks[:, 0], chunk_size=2, local_chunks=5)
    assert (state["landmarks"].shape, state["outliers"].shape) == ((1, 0, 2), (1, 0))


def test_shadowkvs_scale_decides_between_a_shared_and_a_single_wish():
    """One head halves its wish at any scale; the other's share e^s / (e^s + 2) of chunk 1 is below 1/2 at s = 1/2."""
    call = {"queries": [[[10.0, -20.0, 10.0, 0.0], [0.0, 1.0, 0.0, 0.0]]], "landmarks": np.eye(4)[None, :3]}
    assert shadowkv_chunks(**call, kept_chunks=1).tolist() == [[0]]
    assert shadowkv_chunks(**call, kept_chunks=1, softmax_scale=1.0).tolist() == [[1]]


def test_rocketkv_takes_chunks_whole():
    keys = np.array([[[0.0], [1.0], [9.0], [0.0], [2.0], [3.0]]])
    call = {"queries": np.ones((1, 1, 1)), "keys": keys, "chunk_size": 2, "rank": 1}
    assert rocketkv_tokens(**call, kept_tokens=2)["tokens"].tolist() == [[2, 3]]
    assert rocketkv_tokens(**call, kept_tokens=3)["tokens"].tolist() == [[2, 3, 4]]


def test_expected_attention_keeps_four_sinks_unasked():
    rng = np.random.default_rng(0)
    call = {"keys": rng.normal(size=(1, 7, 2)), "values": rng.normal(size=(1, 7, 2))}
    call |= {"query_mean": rng.normal(size=(1, 1, 2)), "query_covariance": np.eye(2)[None, None]}
    usual = expected_attention_scores(**call)
    assert np.array_equal(usual, expected_attention_scores(**call, sinks=4))
    assert len(set(usual[0, :4])) == 1
    assert len(set(usual[0])) == 4


def test_rotary_frequencies_of_another_width():
    x = np.zeros((1, 2, 8))
    assert refusal(rope_rotate, x=x, positions=[0, 1], frequencies=np.ones(5)) == (
        "frequencies: expected shape [F] with F=4, got [5]"
    )
