"""The adapter of the public package locks-kv 0.1.4: it fails where, and only where, the package departs on purpose.

What is expected follows from the package's documented behaviour, never from a report: it keeps budget // page_size
pages beside the sink and the most recent page, floors eigenvalues at 1e-10 instead of dropping zero modes, stores
modes in ascending order and scales in bf16, and scores a coded summary with an int8 query.
"""

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from proofs_checks.bounds.locks_score import score_bound
from proofs_checks.judge.case import within_profile
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.session import live_session
from proofs_checks.judge.suite import cases_of, find_case
from proofs_checks.judge.verify import verify
from refimpl.locks.quantize import locks_dequantize_summary
from refimpl.locks.score import locks_score_pages

PORT = Path(__file__).parents[2] / "examples" / "ports" / "locks_kv_port.py"
INT4_PARTS = ("centroid_scale", "basis_scale", "coefficient_scale")


def needs_package():
    """Skip where the package, or what it needs, is not installed."""
    for name in ("torch", "triton", "locks"):
        pytest.importorskip(name)


@pytest.fixture(scope="module")
def report():
    needs_package()
    return verify(str(PORT))


@pytest.fixture(scope="module")
def session():
    needs_package()
    with live_session(str(PORT), timeout=60.0) as session:
        yield session


def stage(report, name):
    return next(row for row in report.stages if row.stage == name)


def failing(report, name):
    """Names of the stage's failing cases, without the dtype."""
    return {failure.case.split("/")[1].split("@")[0] for failure in stage(report, name).failures}


def geometry_fits(page_size, d, G=1):
    return page_size in (16, 32, 64) and d in (64, 128, 256) and G <= 8


def judged_cases(name):
    """The cases that `report` judges a stage on, geometry aside: of the default profile, with bf16 inputs."""
    return [case for case in cases_of(name) if within_profile(case, "default") and "bfloat16" in case.dtypes]


def test_without_the_package_the_import_says_how_to_install_it():
    code = f"import runpy, sys; sys.modules['locks'] = None; runpy.run_path({str(PORT)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install --no-deps locks-kv==0.1.4" in done.stderr


def test_verdicts(report):
    judged = {row.stage: row.verdict for row in report.stages if row.verdict != "NOT_PROVIDED"}
    assert report.verdict == "FAIL"
    assert judged == {
        "sparse_attention": "PASS",
        "paged_sparse_attention": "PASS",
        "locks_build_summary": "FAIL",
        "locks_quantize_summary": "PASS",
        "locks_pack_basis": "PASS",
        "locks_unpack_basis": "PASS",
        "locks_score_pages": "FAIL",
        "locks_select_pages": "FAIL",
        "locks_decode": "FAIL",
        "locks_decode_paged": "FAIL",
    }


def test_bf16_scales_are_the_only_departure_of_the_codes(report):
    assert {d.id for d in report.departures} == {"AMB-08"}
    assert {d.what for d in report.departures} == {f"{part} is stored in bfloat16" for part in INT4_PARTS}


def test_build_fails_only_where_a_floored_zero_mode_is_no_mode_of_the_page(report):
    """A page of zeros: coefficients of size 1e-5 stand on modes that do not exist. Elsewhere the band hides them."""
    assert failing(report, "locks_build_summary") == {"zero-page"}


def test_modes_are_stored_in_ascending_order(monkeypatch):
    """At rank 4 a zero mode is met where only the centroid is judged: the order is all there is to say."""
    needs_package()
    monkeypatch.setenv("LOCKS_RKI4_RANK", "4")
    report = verify(str(PORT), stages=["locks_build_summary"])
    inputs = [case.inputs() for case in judged_cases("locks_build_summary")]
    fitting = [x for x in inputs if x["rank"] == 4 and geometry_fits(*x["key_pages"].shape[2:])]
    assert stage(report, "locks_build_summary").cases == len(fitting)
    assert report.verdict == "PASS"
    assert [d.id for d in report.departures] == ["AMB-32"]


def test_scores_fail_wherever_codes_and_query_rounding_count(report):
    """Three cases cannot tell, at any size: no pages, a query of zeros, and a relation between two of its answers."""
    shapes = {case.name: case.inputs() for case in judged_cases("locks_score_pages")}
    fitting = {
        name
        for name, x in shapes.items()
        if geometry_fits(x["coefficients"].shape[2], x["basis"].shape[2], x["queries"].shape[1])
        and x["basis"].shape[3] <= 8
    }
    assert stage(report, "locks_score_pages").cases == len(fitting)
    alike = {f"{name}{size}" for name in ("no-pages", "natural-log") for size in ("", "-at-G8-d128")}
    assert failing(report, "locks_score_pages") == fitting - alike - {"page-order"}


def package_count(pages, budget_tokens, page_size):
    """Pages that the package keeps of ``pages``: budget // page_size beside the first and the last, or all."""
    selectable = pages - 2
    return pages if selectable <= 1 else 2 + min(max(budget_tokens // page_size, 1), selectable)


def page_counts(x, page_size):
    """Pages of every sequence of a case of the three selecting stages."""
    if "shares" in x:
        return [x["shares"].shape[1]]
    tokens = [x["keys"].shape[1]] if "keys" in x else x["tokens"].tolist()
    return [-(-t // page_size) for t in tokens]


@pytest.mark.parametrize("name", ["locks_select_pages", "locks_decode", "locks_decode_paged"])
def test_selection_fails_exactly_where_the_forced_pages_do_not_fit_the_budget(report, name):
    expected, judged = set(), 0
    for case in judged_cases(name):
        x = case.inputs()
        page_size = x["page_size"] if "page_size" in x else x["key_pool"].shape[1]
        G, d = x["queries"].shape[-2:] if "queries" in x else (1, 64)
        if not geometry_fits(page_size, d, G) or ("queries" in x and (x["basis_bits"], x["rank"]) != (4, 8)):
            continue
        judged += 1
        kept = math.ceil(x["budget_tokens"] / page_size)
        counts = page_counts(x, page_size)
        if any(package_count(P, x["budget_tokens"], page_size) != min(kept, P) for P in counts):
            expected.add(case.name)
    assert expected
    assert stage(report, name).cases == judged
    if name == "locks_select_pages":
        assert failing(report, name) == expected
    else:  # its combine and its int8 query move pages besides
        assert failing(report, name) >= expected


def test_with_the_forced_pages_added_to_the_budget_every_selection_is_right(session):
    """Ties in the order that the package declares. Whole steps rank pages by another rule than the paper's."""
    for case in cases_of("locks_select_pages"):
        prepared = prepare(case, "bfloat16")
        reply = session.call(prepared, "bfloat16")
        if reply["status"] == "not_provided":
            continue
        page_size = prepared.sent["page_size"]
        budget = (prepared.carried["budget_tokens"] // page_size + 2) * page_size
        widened = prepare(case, "bfloat16", {**prepared.carried, "budget_tokens": budget})
        verdict = judge(widened, reply["results"], session.declared.precision("bfloat16"), lowest_index=True)
        assert not verdict.faults, case.id


def test_score_of_a_hand_computed_page(session):
    """16 logits of 1, from a code of 7 and a code of 127 whose scales 1/7 and 1/127 are rounded to bf16.

    bf16(1/7) = 146/1024 and bf16(1/127) = 129/16384, so each logit is 7 * 146/1024 * 127 * 129/16384; the query
    (8, 0, ...) is exact in int8 up to float32 rounding. The bound of the case's own logits, which are larger, holds.
    """
    prepared = prepare(find_case("locks_score_pages/sum-not-maximum"), "bfloat16")
    scores = session.call(prepared, "bfloat16")["results"]["scores"]
    logit = 7 * 146 / 1024 * 127 * 129 / 16384
    bound = score_bound(prepared.exact, prepared.reference, session.declared.precision("bfloat16"))["scores"]
    assert np.all(np.abs(scores[0, :, 0] - (math.log(16) + logit)) <= bound[0, :, 0])
    assert abs(logit - 1) > np.max(bound)


@pytest.mark.parametrize("name", ["head-map", "scale-inside", "G8-d128", "logits-of-60000", "capture-needle"])
def test_scores_are_those_of_its_coded_summary_and_int8_query(session, name):
    """Nothing but the coded summary and the rounded query separates its scores from Eq. (1)."""
    prepared = prepare(find_case(f"locks_score_pages/{name}"), "bfloat16")
    scores = session.call(prepared, "bfloat16")["results"]["scores"]
    reference = locks_score_pages(**(inputs := rounded_inputs(session, prepared)))
    bound = score_bound(inputs, {"scores": reference}, session.declared.precision("bfloat16"))["scores"]
    assert np.all(np.abs(scores - reference) <= bound)


def rounded_inputs(session, prepared):
    """The case's inputs after the package's roundings: codes times their bf16 scales, int8 query per query head.

    The query is rounded in float32 as it says: absmax / 127, half to even, times the scale: the same bits.
    """
    parts = {n: prepared.carried[n] for n in ("centroid", "basis", "coefficients")}
    missing = 8 - parts["basis"].shape[-1]
    for part in ("basis", "coefficients"):
        parts[part] = np.pad(parts[part], [(0, 0)] * 3 + [(0, missing)])
    coded = prepare(find_case("locks_quantize_summary/int4"), "bfloat16", {**parts, "basis_bits": 4})
    codes = session.call(coded, "bfloat16")["results"]
    summary = locks_dequantize_summary(**{k: v.astype(np.float64 if "scale" in k else int) for k, v in codes.items()})
    queries = prepared.carried["queries"].astype(np.float32)
    scale = np.maximum(np.abs(queries).max(axis=-1, keepdims=True), np.float32(1e-8)) / np.float32(127)
    rest = {"softmax_scale": prepared.exact["softmax_scale"]} if "softmax_scale" in prepared.exact else {}
    return {"queries": (np.rint(queries / scale) * scale).astype(np.float64), **summary, **rest}
