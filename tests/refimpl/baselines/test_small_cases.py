"""Cases small enough to check by hand, at the ends of their parameters."""

import numpy as np
import pytest

from refimpl.baselines.choose import evict_tokens
from refimpl.baselines.codebook import codebook_encode, codebook_scores
from refimpl.baselines.expected_attention import expected_query_moments
from refimpl.baselines.kivi import kivi_quantize
from refimpl.baselines.kvzip import kvzip_keep
from refimpl.baselines.loki import loki_rank
from refimpl.baselines.rocketkv import RocketBudgets, max_pool, rocketkv_budgets, rocketkv_tokens
from refimpl.baselines.shadowkv import shadowkv_landmarks
from refimpl.baselines.shared_basis import shared_basis_scores
from refimpl.baselines.turboquant_slot import turboquant_pack_slots
from refimpl.checks import ArgumentError


@pytest.mark.parametrize("level", ["pair", "uniform"])
@pytest.mark.parametrize("ratio", [1, 1.0, 1.5])
def test_kvzip_keeps_all_from_a_share_of_one_on(level, ratio):
    kept = kvzip_keep(scores=[[[0.5, 0.25]]], ratio=ratio, level=level)
    assert (kept.tolist(), kept.dtype) == ([[[1, 1]]], np.uint8)


def test_lokis_rank_is_the_largest_of_the_heads_own():
    """Head 0 stays below 0.7 for one direction (0.5), head 1 for two (0.25, 0.5)."""
    assert loki_rank([[0.5, 0.25, 0.25, 0.0], [0.25, 0.25, 0.25, 0.25]], 0.7) == 2


def test_pooling_reads_nothing_beyond_the_ends():
    assert max_pool(np.array([-5.0, -7.0, -9.0]), 3).tolist() == [-5.0, -5.0, -7.0]
    assert max_pool(np.array([-5.0, -7.0]), 1).tolist() == [-5.0, -7.0]


@pytest.mark.parametrize(
    ("budget", "new", "bought"),
    [
        (1000, 0, RocketBudgets(1000, 500, 1, 8)),
        (500, 430, RocketBudgets(430, 250, 1, 4)),
        (500, 400, RocketBudgets(435, 250, 1, 4)),
    ],
)
def test_rocketkv_budgets_by_hand(budget, new, bought):
    """1000 tokens. b = L: the ratio is 1, and all is kept and probed.

    b = 500: alpha = 0.2 + 0.06 = 0.26, 2^0.26 = 1.1975, floor(1000 / 1.1975) = 835; twice 430 are 860, twice 400 less.
    left = 860 / 500 = 1.72 or 1.67; its root rounded up is 2, which is more: chunks of one; 8 / 1.72 and 8 / 1.67
    are 4 and a part.
    """
    assert rocketkv_budgets(length=1000, budget_tokens=budget, new_tokens=new, head_size=8) == bought


def test_pages_of_one_token_score_their_logit():
    scores = codebook_scores(queries=[[[2.0]]], codes=[[[1], [0]]], codewords=[[[3.0], [5.0]]], softmax_scale=1.0)
    assert scores.tolist() == [[[10.0, 6.0]]]
    basis = {"mean": [[1.0]], "basis": [[[1.0]]], "coordinates": [[[[4.0]]]]}
    assert shared_basis_scores(queries=[[[2.0]]], **basis, softmax_scale=1.0).tolist() == [[[10.0]]]


def test_pages_without_tokens_are_refused():
    with pytest.raises(ArgumentError) as caught:
        shared_basis_scores(
            queries=np.ones((1, 1, 1)), mean=[[1.0]], basis=[[[1.0]]], coordinates=np.ones((1, 2, 0, 1))
        )
    assert str(caught.value) == "coordinates: expected at least one token per page, got B=0"
    with pytest.raises(ArgumentError) as caught:
        codebook_scores(queries=np.ones((1, 1, 1)), codes=np.ones((1, 2, 0), int), codewords=[[[1.0]]])
    assert str(caught.value) == "codes: expected at least one token per page, got B=0"


def test_a_key_without_length_has_no_cosine():
    with pytest.raises(ArgumentError) as caught:
        shadowkv_landmarks(keys=np.zeros((1, 2, 2)), chunk_size=1, local_chunks=0)
    assert str(caught.value) == "keys: expected keys and landmarks of positive length, got one of length 0"


def test_nothing_is_protected_unless_asked_for():
    assert evict_tokens(scores=[[0.0, 2.0, 1.0]], budget_tokens=2).tolist() == [[1, 2]]
    assert evict_tokens(scores=[[2.0, 1.0, 0.0]], budget_tokens=2).tolist() == [[0, 1]]
    assert evict_tokens(scores=[[2.0, 1.0, 0.0]], budget_tokens=0).shape == (1, 0)


def test_one_score_is_not_above_itself():
    assert kvzip_keep(scores=[[[0.5]]], ratio=0.5).tolist() == [[[0]]]
    assert kvzip_keep(scores=np.zeros((2, 1, 0)), ratio=0.5).shape == (2, 1, 0)


def test_moments_need_a_token_after_the_skipped_ones():
    queries = np.arange(5.0).reshape(1, 1, 5, 1)
    assert expected_query_moments(queries=queries)["mean"].tolist() == [[[4.0]]]
    with pytest.raises(ArgumentError) as caught:
        expected_query_moments(queries=queries[:, :, :4])
    assert str(caught.value) == "queries: expected more than 4 tokens, got T=4"


def test_an_offset_that_float16_rounds_up_gives_no_negative_code():
    """2051 is stored as 2052, ten steps of 0.1 above the group's values."""
    rows = [[[2051.0, 2051.0], [2051.3, 2051.3]]]
    q = kivi_quantize(keys=rows, values=np.swapaxes(rows, 1, 2), bits=2, group_size=2)
    assert q["key_zero"].tolist() == [[[2052.0, 2052.0]]]
    assert q["key_codes"].tolist() == q["value_codes"].tolist() == [[[0, 0], [0, 0]]]


@pytest.mark.parametrize("name", ["key_norm", "value_scale", "value_zero"])
def test_a_number_that_float16_cannot_hold_is_named(name):
    numbers = {n: [1.0] for n in ("key_norm", "value_scale", "value_zero")}
    with pytest.raises(ArgumentError, match=f"^{name}: expected numbers within float16, got 70000"):
        turboquant_pack_slots(key_codes=[[0, 0]], value_codes=[[0, 0]], **numbers | {name: [70000.0]})


def test_a_code_without_words_is_refused():
    with pytest.raises(ArgumentError) as caught:
        codebook_encode(keys=[[[1.0]]], codewords=np.zeros((1, 0, 1)))
    assert str(caught.value) == "codewords: expected at least one, got N=0"


def test_rocketkv_of_no_tokens_keeps_none():
    chosen = rocketkv_tokens(queries=[[[1.0, 0.5]]], keys=np.zeros((1, 0, 2)), chunk_size=2, rank=1, kept_tokens=3)
    assert (chosen["channels"].tolist(), chosen["tokens"].shape) == ([[0]], (1, 0))
