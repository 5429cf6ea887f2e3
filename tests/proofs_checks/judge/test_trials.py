"""Cases of several calls: repetitions, batches of one, splits, and relations of a million tokens on faulty ports."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from judged import port_from

from proofs_checks.judge.cases import million, planted
from proofs_checks.judge.cases.million import carried_state, carriers
from proofs_checks.judge.declared import CONSTANTS, Declared, PortError
from proofs_checks.judge.files import layout
from proofs_checks.judge.suite import cases_of, find_case
from proofs_checks.judge.verify import run_case
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.numbers import Precision

PORT = port_from("numpy_port")
REPEATED = ("attention", "locks_build_summary", "locks_select_pages", "locks_decode", "readkv_rotate")
PAGED = ("paged_attention", "paged_sparse_attention", "locks_decode_paged")


def run(case_id, function, dtype="float32", **constants):
    stage = case_id.partition("/")[0]
    return run_case(LocalSession(SimpleNamespace(**{stage: function}, **constants)), find_case(case_id), dtype)


@pytest.mark.parametrize("stage", REPEATED + PAGED)
@pytest.mark.parametrize("declared", [False, True])
def test_a_right_port_gives_the_same_bits_again(stage, declared):
    assert run(f"{stage}/called-again", getattr(PORT, stage), REPRODUCIBLE=declared).verdict == "PASS"


@pytest.mark.parametrize("stage", PAGED)
@pytest.mark.parametrize("declared", [False, True])
def test_a_right_port_answers_a_batch_as_it_answers_each_sequence(stage, declared):
    assert run(f"{stage}/batch-of-one", getattr(PORT, stage), REPRODUCIBLE=declared).verdict == "PASS"


def wandering():
    """The last bit of every output changes from call to call, as sums in a changing order do."""
    calls = iter(range(100))

    def attention(**inputs):
        state = PORT.attention(**inputs)
        step = np.float32(next(calls))
        return state | {"output": np.nextafter(state["output"], state["output"] + step)}

    return attention


def test_bits_that_change_are_a_fault_only_where_reproducible_is_declared():
    assert run("attention/called-again", wandering()).verdict == "PASS"
    outcome = run("attention/called-again", wandering(), REPRODUCIBLE=True)
    assert outcome.verdict == "FAIL"
    assert "differ in their bits" in outcome.text


def test_sums_that_go_on_from_the_last_call_are_found():
    total = np.zeros((2, 3, 64), np.float32)

    def attention(**inputs):
        state = PORT.attention(**inputs)
        nonlocal total
        if total.shape != state["output"].shape:
            total = np.zeros_like(state["output"])
        total = total + state["output"]
        return state | {"output": total}

    outcome = run("attention/called-again", attention)
    assert outcome.verdict == "FAIL"
    assert outcome.text.startswith("call 2: ")


def test_a_batch_whose_answer_depends_on_its_size_is_found():
    """Right for three sequences; alone, the split count changes and the last block is lost."""

    def paged_attention(*, tokens, **inputs):
        return PORT.paged_attention(tokens=tokens if len(tokens) > 1 else tokens // 16 * 16, **inputs)

    outcome = run("paged_attention/batch-of-one", paged_attention)
    assert outcome.verdict == "FAIL"
    assert "alone: " in outcome.text


def test_another_order_of_sums_alone_is_a_fault_only_where_reproducible_is_declared():
    def paged_attention(*, queries, **inputs):
        state = PORT.paged_attention(queries=queries, **inputs)
        grown = np.nextafter(state["output"], np.float32(np.inf)) if len(queries) == 1 else state["output"]
        return state | {"output": np.where(state["output"] == 0, state["output"], grown)}

    assert run("paged_attention/batch-of-one", paged_attention).verdict == "PASS"
    outcome = run("paged_attention/batch-of-one", paged_attention, REPRODUCIBLE=True)
    assert outcome.verdict == "FAIL"
    assert "in the batch and alone differ in their bits" in outcome.text


def test_only_a_boolean_declares_reproducibility():
    constants = {**CONSTANTS, "REPRODUCIBLE": "yes"}
    with pytest.raises(PortError, match="REPRODUCIBLE: expected True or False, got 'yes'"):
        Declared.read({"constants": constants, "functions": []})


def test_seventeen_tokens_at_once_are_sixteen_and_one():
    case = "attention/split-and-merge"
    assert run(case, PORT.attention).verdict == "PASS"

    def base_2(**inputs):
        state = PORT.attention(**inputs)
        return state | {"lse": state["lse"] / np.float32(np.log(2))}

    assert run(case, base_2).verdict == "FAIL"


def test_trials_are_left_out_of_files_and_answer_not_provided():
    case = find_case("attention/split-and-merge")
    assert not layout.in_files(case)

    def attention(**inputs):
        raise NotImplementedError("17 tokens")

    assert run(case.id, attention).verdict == "NOT_PROVIDED"
    assert run(case.id, lambda **_: 1 / 0).verdict == "ERROR"
    assert run(case.id, lambda **_: {"output": np.zeros(3), "lse": np.zeros(3)}).verdict == "FAIL"


@pytest.fixture
def few(monkeypatch):
    """The relations of the deep profile at sizes that a quick run can pay; the tokens stand as in the large ones."""
    monkeypatch.setattr(million, "TOKENS", 2**13 + 5)
    monkeypatch.setattr(million, "PAGES", 2**10)
    monkeypatch.setattr(million, "CHUNK", 2**8)
    at = np.unique([0, 1, 15, 16, 17, 4095, 4096, 4097, 2**13, 2**13 + 4, *range(50, 4000, 37)])
    monkeypatch.setattr(million, "carriers", lambda: at)


def small_trial(stage, port, trial, inputs, **constants):
    from proofs_checks.judge.case import Family

    case = Family(stage, "B").general("small", "a small one", inputs, kind="metamorphic", trial=trial)
    return run_case(LocalSession(SimpleNamespace(**port, **constants)), case, "float32")


SPLIT = partial(million.split_and_merged, cuts=(0, 1, 17, 4097, 2**13 + 5), state=carried_state)
ATTENTION, SPARSE = {"attention": PORT.attention}, {"sparse_attention": PORT.sparse_attention}


@pytest.mark.usefixtures("few")
def test_large_relations_hold_for_a_right_port():
    assert small_trial("attention", ATTENTION, SPLIT, million.a_million_tokens).verdict == "PASS"
    assert small_trial("attention", ATTENTION, million.shifted_logits, million.a_million_tokens).verdict == "PASS"
    both = ATTENTION | SPARSE
    assert small_trial("sparse_attention", both, million.every_page, million.with_every_page).verdict == "PASS"
    scores = {"locks_score_pages": PORT.locks_score_pages}
    assert small_trial("locks_score_pages", scores, million.pages_permuted, million.many_summaries).verdict == "PASS"


def fails(outcome):
    return outcome.verdict == "FAIL" and bool(outcome.text)


def test_planted_pages_are_found_and_a_stale_ring_is_told(monkeypatch):
    monkeypatch.setattr(planted, "PAGES", 2**8)
    inputs = planted.many_pages()
    sizes = [np.linalg.norm(inputs[name][..., 1:], axis=-1).max() for name in ("queries", "keys")]
    assert np.prod(sizes) / np.sqrt(planted.CHANNELS) < 18

    def stale(*, keys, **rest):
        """Scores the pages of the second turn as those of the first."""
        turned = keys.copy()
        turned[:, 2048:4096] = keys[:, :2048]
        pages = PORT.locks_decode(keys=turned, **rest)["pages"]
        return {"pages": pages, **PORT.sparse_attention(keys=keys, pages=pages, **kept(rest))}

    def kept(rest):
        return {name: rest[name] for name in ("queries", "values", "page_size")}

    for port, verdict in ((PORT.locks_decode, "PASS"), (stale, "FAIL")):
        found = small_trial("locks_decode", {"locks_decode": port}, planted.planted_pages, planted.many_pages)
        assert (found.verdict, bool(found.text)) == (verdict, verdict == "FAIL")


@pytest.mark.usefixtures("few")
def test_faults_of_large_inputs_are_found():
    def lost_tail(*, keys, values, **rest):
        return PORT.attention(
            keys=keys[:, : len(keys[0]) // 16 * 16], values=values[:, : len(keys[0]) // 16 * 16], **rest
        )

    def wrapped(*, keys, values, **rest):
        """Addresses that wrap after 2^12 tokens."""
        at = np.arange(keys.shape[1]) % 2**12
        return PORT.attention(keys=keys[:, at], values=values[:, at], **rest)

    def zeros(*, queries, **_):
        return {"output": np.zeros_like(queries), "lse": np.zeros(queries.shape[:2], np.float32)}

    for fault in (lost_tail, wrapped, zeros):
        assert fails(small_trial("attention", {"attention": fault}, SPLIT, million.a_million_tokens)), fault.__name__

    def frozen_lse(**inputs):
        return PORT.attention(**inputs) | {"lse": np.full((1, 2), 7.0, np.float32)}

    shifted = million.shifted_logits
    assert fails(small_trial("attention", {"attention": frozen_lse}, shifted, million.a_million_tokens))

    def in_order(*, pages, **rest):
        """Reads the first page twice instead of the open one."""
        return PORT.sparse_attention(pages=np.where(pages == pages.max(), 0, pages), **rest)

    every = million.every_page
    assert fails(small_trial("sparse_attention", {"sparse_attention": in_order}, every, million.with_every_page))

    def by_place(**inputs):
        scores = PORT.locks_score_pages(**inputs)
        return scores + np.arange(scores.shape[-1], dtype=np.float32) / 16

    moved = million.pages_permuted
    assert fails(small_trial("locks_score_pages", {"locks_score_pages": by_place}, moved, million.many_summaries))


def first_candidates(*, shares, budget_tokens, page_size):
    seen = shares.copy()
    seen[:, 2**19 : -1] = -1
    return PORT.locks_select_pages(shares=seen, budget_tokens=budget_tokens, page_size=page_size)


def test_a_million_pages_and_many_splits():
    assert run("locks_select_pages/million-pages", PORT.locks_select_pages).verdict == "PASS"
    assert run("locks_select_pages/million-pages", first_candidates).verdict == "FAIL"
    assert run("merge_attention/65536-splits", PORT.merge_attention).verdict == "PASS"

    def first_thousand(*, outputs, lses):
        return PORT.merge_attention(outputs=outputs[:1024], lses=lses[:1024])

    assert run("merge_attention/65536-splits", first_thousand).verdict == "FAIL"


def test_the_tokens_that_carry_nothing_weigh_nothing_in_any_format():
    for dtype in (np.float32, np.float64):
        assert np.exp(dtype(million.LOW + 100)) == 0
    assert len(carriers()) > 400
    assert {0, 2**20, million.TOKENS - 1} <= set(carriers().tolist())


def test_the_bound_of_a_million_tokens_is_that_of_the_carriers_and_says_something(few):
    inputs = million.a_million_tokens()
    right, bounds = carried_state(inputs, Precision())
    assert (bounds["output"] < np.abs(right["output"]) / 100).all()
    logits = np.einsum("hgd,htd->hgt", inputs["queries"], inputs["keys"]) / 8
    away = np.delete(logits, million.carriers(), axis=-1)
    assert logits[..., million.carriers()].min() - away.max() > 900


def test_deep_cases_exist_for_every_relation():
    deep = {c.id for s in million.TRIALS for c in cases_of(s) if c.profile == "deep"}
    assert {
        "attention/million-tokens-split",
        "attention/million-tokens-shifted",
        "sparse_attention/every-page",
        "locks_score_pages/65536-pages-permuted",
        "locks_select_pages/million-pages",
        "merge_attention/65536-splits",
    } <= deep
