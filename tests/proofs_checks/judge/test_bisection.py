"""Bisection names the stage and the mistake that a failing decode step shows, and names nobody falsely."""

import os

import numpy as np
import pytest
from profiles import chosen_profile
from single_stages import SINGLE, bisection_lines, decode_only, report_on, small_cases, whole_port

from proofs_checks.bounds import locks_decode as bounds
from proofs_checks.judge.bisection import PIPELINES, hypotheses
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import judge_stage
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.matrix import LocalSession
from proofs_checks.mutants.registry import mutants
from refimpl.locks.select import locks_select_pages

UNSEEN = {
    "build-mean-over-b-minus-1": "off by 1/15 of the mean: pages move together unless their means differ much",
    "quantize-floors": "moves every code the same way: the pages of these cases keep their order",
    "dequantize-half-scales": "2^-11 of a scale, below half a step of the codes",
    "score-tf32": "2^-11 of a logit",
    "score-no-maximum": "overflows at scores of 89, beyond these cases",
    "score-half-accumulation": "2^-11 of a logit",
    "exact-score-padded-page": "never called with a padded page: the step hands over the open page alone",
    "exact-score-maximum-from-0": "underflows at logits of -104, below these cases",
    "shares-nan-on-empty-head": "no head is without scores where there are pages",
    "shares-sum-over-group": "G times the average ranks alike",
    "select-bounded-candidates": "needs more than 16,384 pages",
    "select-half-keys": "shares of these cases differ by more than 2^-11 where it matters",
    "select-highest-tie-though-declared": "no ties",
    "sparse-masks-by-zero-weight": "the values of unselected pages are finite",
}
"""Mistakes that the small decode cases cannot show."""

NAN = ("build-no-guard-on-zero-modes", "quantize-no-zero-guard")
"""Mistakes whose shares are NaN: what a selection makes of these, a hypothesis does not know."""

EVERY = hypotheses("locks_decode")
CHOSEN = EVERY if chosen_profile(os.environ) == "deep" else EVERY[::9]
SEEN = [mutant for mutant in CHOSEN if mutant.id not in UNSEEN]


@pytest.fixture(autouse=True, scope="module")
def one_enclosure_per_case():
    """Every mutant is judged on the same cases: what a right port's scores may be is computed once for each."""
    plain, known = bounds.score_enclosure, {}

    def remembered(*call):
        key = tuple((a.tobytes(), a.shape) if isinstance(a, np.ndarray) else a for a in call)
        if key not in known:
            known[key] = plain(*call)
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "score_enclosure", remembered)
        yield


def short(lines):
    return " | ".join(lines)


@pytest.mark.parametrize("mutant", SEEN, ids=lambda m: m.id)
def test_a_port_of_nothing_but_a_decode_step_is_told_its_mistake(mutant):
    report = report_on(decode_only({mutant.stage: mutant.function}))
    assert report.verdict == "FAIL"
    lines = bisection_lines(report)
    if mutant.id not in NAN:
        assert len(lines) == 1
        assert f"{mutant.stage}: {mutant.what}" in lines[0]


@pytest.mark.parametrize("mutant", [m for m in SEEN if m.stage != "locks_decode"][::2], ids=lambda m: m.id)
def test_a_port_with_single_stages_is_told_which_of_them_breaks_the_step(mutant):
    line = bisection_lines(report_on(whole_port({mutant.stage: mutant.function})))[0]
    assert mutant.stage in line.split(" the reference ")[0], line


@pytest.mark.parametrize("name", UNSEEN)
def test_what_is_said_to_be_invisible_is_a_mistake_in_a_part_of_the_step(name):
    assert name in {mutant.id for mutant in EVERY}


def test_four_fifths_and_more_of_the_visible_mistakes_are_named():
    assert len(NAN) <= (len(EVERY) - len(UNSEEN)) / 5


def test_the_line_reads_as_a_sentence_about_the_stage():
    wrong = mutants()["shares-group-maximum"]
    whole, known = bisection_lines(report_on(whole_port({wrong.stage: wrong.function})))
    assert whole.startswith("bisection: with the port's locks_page_shares and the reference before and after it, ")
    assert known.endswith("of this mistake in locks_page_shares: the largest share of the group instead of the mean")


def test_the_paged_step_is_bisected_too():
    wrong = mutants()["decode-paged-shared-length"]
    report = report_on(decode_only({wrong.stage: wrong.function}, "locks_decode_paged"), "locks_decode_paged")
    assert wrong.what in short(bisection_lines(report))
    right = whole_port({wrong.stage: wrong.function})
    joined = bisection_lines(report_on(right, "locks_decode_paged"))[0]
    assert "the fault lies in how locks_decode_paged joins them" in joined


def test_a_stale_output_of_an_empty_sequence_is_no_known_mistake():
    right = build_port({})

    def stale(*, tokens, **rest):
        answer = right.locks_decode_paged(tokens=tokens, **rest)
        for n in range(1, len(tokens)):
            if tokens[n] == 0:
                answer["output"][n] = answer["output"][n - 1]
        return answer

    report = report_on(decode_only({"locks_decode_paged": stale}, "locks_decode_paged"), "locks_decode_paged")
    assert report.verdict == "FAIL"
    assert "mistake" not in short(bisection_lines(report))


@pytest.mark.parametrize("reader", ["readkv_attention", "readkv_restricted_attention"])
@pytest.mark.parametrize(
    "name", ["rotate-unscaled", "key-importance-maximum", "choose-one-short", "value-importance-maximum"]
)
def test_a_reader_is_told_which_of_its_stages_breaks_it(name, reader):
    wrong = mutants()[name]
    cases = [c for c in cases_of(reader) if c.profile == "quick" and "capture" not in c.name and not c.sized]
    (line,) = bisection_lines(report_on(build_port({wrong.stage: wrong.function}), reader, cases))
    assert wrong.stage in line.split(" the reference ")[0]


def test_a_step_with_right_stages_and_wrong_wiring_is_told_so():
    """The port's own stages are right and its step uses other ones: sums of the group's scores."""

    def fused(**inputs):
        return build_port({**SINGLE, "locks_page_shares": lambda *, scores: scores.sum(axis=1)}).locks_decode(**inputs)

    lines = bisection_lines(report_on(whole_port({"locks_decode": fused})))
    assert "or in its own copies of them" in lines[0]


def negated_queries(*, queries, **rest):
    return SINGLE["locks_score_pages"](queries=-queries, **rest)


def second_best(*, shares, budget_tokens, page_size):
    """Leaves out the best of the free pages."""
    lowered = shares.copy()
    np.put_along_axis(lowered, 1 + shares[:, 1:-1].argmax(axis=1, keepdims=True), -1.0, axis=1)
    return locks_select_pages(shares=lowered, budget_tokens=budget_tokens, page_size=page_size)


def half_values(*, values, **rest):
    return SINGLE["sparse_attention"](values=values / 2, **rest)


@pytest.mark.parametrize(
    ("stage", "function"),
    [
        ("locks_score_pages", negated_queries),
        ("locks_select_pages", second_best),
        ("sparse_attention", half_values),
    ],
)
def test_a_mistake_that_is_not_on_the_list_is_not_given_the_name_of_another(stage, function):
    report = report_on(decode_only({stage: function}))
    assert report.verdict == "FAIL"
    assert bisection_lines(report) == []


def test_a_right_step_has_no_line_and_the_verdict_does_not_ask_bisection(monkeypatch):
    assert bisection_lines(report_on(decode_only())) == []
    wrong = mutants()["select-smallest"]
    told = report_on(decode_only({wrong.stage: wrong.function}))
    monkeypatch.setattr("proofs_checks.judge.verify.PIPELINES", {})
    untold = report_on(decode_only({wrong.stage: wrong.function}))
    assert told.as_json()["verdict"] == untold.as_json()["verdict"] == "FAIL"
    assert [f.case for f in told.failures] == [f.case for f in untold.failures]


class Dying(LocalSession):
    """Answers every case and dies when it is asked once more."""

    def call(self, prepared, dtype):
        from proofs_checks.judge.runner import PortStopped

        if not prepared.changed and prepared.case.id in self.__dict__.setdefault("asked", set()):
            raise PortStopped("ERROR", "exited with status 1")
        self.asked.add(prepared.case.id)
        return super().call(prepared, dtype)


def test_a_port_that_dies_under_bisection_keeps_its_verdict():
    wrong = mutants()["select-smallest"]
    session = Dying(decode_only({wrong.stage: wrong.function}))
    report, _ = judge_stage(session, STAGES["locks_decode"], small_cases("locks_decode")[:8])
    assert report.verdict == "FAIL"
    assert "stopped: exited with status 1" in short(bisection_lines(report))


def test_parts_are_stages():
    assert set(PIPELINES) | {name for parts in PIPELINES.values() for part in parts for name in part} <= set(STAGES)
