"""What the checks of the other systems accept and refuse: choices, unions, thresholds, factors, and near ties."""

import numpy as np
import pytest

from proofs_checks.bounds.baseline_reads import chunk_score_error
from proofs_checks.bounds.baseline_tokens import rkv_bound
from proofs_checks.judge.checks.choice import judge_choice
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.suite import find_case
from proofs_checks.numbers import Precision
from refimpl.baselines.quest import quest_pages
from refimpl.baselines.rkv import rkv_scores
from refimpl.baselines.sparq_nested import sparq_nested_attention


def messages(chosen, low, high, **more):
    judgement = Judgement()
    usable = judge_choice(judgement, "tokens", np.array([chosen]), (np.array([low]), np.array([high])), **more)
    return usable, [fault.message for fault in judgement.faults]


EXACT = [5.0, 4.0, 3.0, 3.0, 1.0]


@pytest.mark.parametrize("chosen", [[0, 1, 2], [3, 1, 0]])
def test_equal_scores_may_be_chosen_either_way_and_in_any_order(chosen):
    assert messages(chosen, EXACT, EXACT) == (True, [])


def test_what_is_wrongly_missing_and_wrongly_there_is_said_with_its_margin():
    usable, (missing, there) = messages([0, 2, 4], EXACT, EXACT)
    assert usable
    assert "1 is missing (it has at least 4; 4 is chosen with at most 1)" in missing
    assert "4 is chosen with at most 1; 3 others have at least 3" in there


def test_enclosures_that_overlap_leave_the_choice_free():
    low, high = [4.9, 3.9, 2.8, 2.9, 0.0], [5.1, 4.1, 3.0, 3.1, 1.0]
    assert messages([0, 1, 2], low, high) == (True, [])
    assert messages([0, 1, 4], low, high)[1]


@pytest.mark.parametrize(("chosen", "text"), [([0, 0, 1], "0 is chosen twice"), ([0, 5, 1], "5 is out of range 0..4")])
def test_what_cannot_be_read_is_a_fault_even_where_it_is_not_judged(chosen, text):
    usable, (message,) = messages(chosen, EXACT, EXACT, named=False)
    assert not usable
    assert text in message
    assert messages([0, 1, 4], EXACT, EXACT, named=False) == (True, [])


def test_forced_items_are_kept_whatever_their_score():
    assert messages([0, 1, 4], EXACT, EXACT, forced=[4]) == (True, [])
    (missing, there) = messages([0, 1, 2], EXACT, EXACT, forced=[4])[1]
    assert "4 is missing (it is always kept)" in missing
    assert "2 is chosen" in there


def test_a_declared_tie_rule_binds():
    assert messages([0, 1, 3], EXACT, EXACT, lowest=np.array([[0, 1, 2]]))[1] == [
        "tokens[0]: ties go to the lower index as declared: expected [0, 1, 2]"
    ]


def answer(case_id, **changed):
    """The reference's answer to a case with some results changed, judged."""
    prepared = prepare(find_case(case_id), "float32")
    return judge(prepared, {**prepared.reference, **changed}, Precision())


def test_quest_reads_the_union_of_the_pages_that_the_port_chose():
    case = prepare(find_case("quest_pages/union-of-heads"), "float32")
    one = quest_pages(scores=case.exact["scores"][:, :1], budget_tokens=48, page_size=16)["read"]
    (fault,) = answer("quest_pages/union-of-heads", read=one).faults
    assert fault.result == "read"


def test_kvzip_with_the_threshold_kept_is_a_departure_and_two_more_is_a_fault():
    scores = prepare(find_case("kvzip_keep/pair"), "float32").exact["scores"]
    falling = np.sort(scores, axis=None)[::-1]
    kept = scores.size // 2
    one_more = answer("kvzip_keep/pair", keep=(scores >= falling[kept - 1]).astype(np.uint8))
    assert one_more.faults == []
    assert [d.id for d in one_more.departures] == ["kvzip-AMB-63-threshold"]
    assert answer("kvzip_keep/pair", keep=(scores >= falling[kept]).astype(np.uint8)).faults
    assert answer("kvzip_keep/pair").departures == []


def test_a_factor_is_free_within_its_product():
    case = "shadowkv_low_rank/heads-side-by-side"
    right = prepare(find_case(case), "float32").reference
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(4, 4)))[0] * 3
    assert answer(case, left=right["left"] @ turn, right=np.linalg.inv(turn) @ right["right"]).faults == []
    assert answer(case, left=1.001 * right["left"]).faults


def test_a_cosine_on_the_threshold_leaves_both_columns_free():
    """Cosine of keys 0 and 1: exactly 1/2. A port may count it as alike or not; the bound covers both."""
    keys = np.array([[[1.0, 0.0, 0.0], [0.5, np.sqrt(3) / 2, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, -1.0]]])
    call = {"queries": np.ones((1, 1, 1, 3)), "keys": keys, "mix": 0.0}
    both = [rkv_scores(**{**call, "keys": keys * np.array([1.0, s, 1.0])}) for s in (1 - 1e-7, 1 + 1e-7)]
    assert np.abs(both[0] - both[1]).max() > 1e-3, "the answer jumps"
    bound = rkv_bound(call, {"scores": rkv_scores(**call)}, Precision())["scores"]
    assert (np.abs(both[0] - both[1]) <= bound).all()
    apart = keys * np.array([1.0, 2.0, 1.0])
    far = rkv_bound({**call, "keys": apart}, {"scores": rkv_scores(**{**call, "keys": apart})}, Precision())["scores"]
    assert far.max() < 1e-4, "away from the threshold nothing is free"


def test_a_group_sum_of_zero_leaves_the_sign_free():
    keys = np.array([[[3.0, 1.0], [-2.0, 1.0]]])
    channels = np.array([[0, 1]])
    for sums, free in ((0.0, True), (1.0, False)):
        queries = np.array([[[2.0 + sums, 1.0], [-2.0, 1.0]]])
        error = chunk_score_error(queries, keys, channels, 2, 1.0, Precision())
        assert (error > 1).any() == free


def test_a_permuted_rotation_is_judged_in_its_own_coordinates():
    """Codes, means and scales are given in the port's order; channels come back in it (AMB-16)."""
    prepared = prepare(find_case("sparq_nested_attention/H2-G3-T40-d64"), "float32")
    order = np.random.default_rng(1).permutation(64)
    names = ("key_codes", "value_codes", "key_mean", "key_scale", "value_mean", "value_scale")
    inverse = np.argsort(order)
    own = sparq_nested_attention(**{n: v[..., inverse] if n in names else v for n, v in prepared.exact.items()})
    back = {**own, "channels": inverse[own["channels"]]}

    def ask(case):
        if str(case).startswith("readkv_rotate/basis-64"):
            from refimpl.readkv.rotation import readkv_rotate

            return {"rotated": readkv_rotate(x=np.eye(64), signs=np.ones(64))[:, order]}
        return None

    judgement = judge(prepared, back, Precision(), ask=ask)
    assert judgement.faults == []
    assert judge(prepared, back, Precision()).faults
