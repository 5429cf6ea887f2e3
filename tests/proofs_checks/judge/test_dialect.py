"""The dialect locks-kv-0.1.4: right ports pass and are told what departs, wrong ones are named.

The honest stages are float32 NumPy from the package's description; the mutants are these with one mistake.
"""

import json
from pathlib import Path

import dialect_mutants as wrong
import honest_dialect as honest
import jsonschema
import numpy as np
import pytest
from answering_files import answer, verdict

import proofs_checks.judge
from proofs_checks.cli import main
from proofs_checks.judge.case import within_profile
from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.dialects import DIALECTS, PAPER
from proofs_checks.judge.judging import judge, judge_relation, prepare
from proofs_checks.judge.locks_kv import costs
from proofs_checks.judge.locks_kv.cases import FAMILIES
from proofs_checks.judge.locks_kv.rows import ROWS
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.verify import verify
from proofs_checks.numbers import Precision, round_bfloat16
from refimpl.locks import dialect as reference
from refimpl.locks.dialect import LOCKS_KV_0_1_4

F = np.float32
RULES = DIALECTS[LOCKS_KV_0_1_4.name]
SUPPORT = Path(honest.__file__).parent
SCHEMAS = Path(proofs_checks.judge.__file__).parent / "schemas"


def answered(case, function, dtype):
    """The judgement of a function on one case of the dialect, called in this process."""
    stage = RULES.stage(case.stage)
    precision = Precision(dtype, "float32", dtype)
    prepared = [prepare(case, dtype, stage=stage)]
    if case.relation:
        prepared.append(prepare(case, dtype, case.relation.change(prepared[0].carried), stage))
    answers = []
    for one in prepared:
        given = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in one.sent.items()}
        with np.errstate(all="ignore"):  # a float32 port may overflow on its way to a right answer
            answer = stage.named(function(**given))
        if "output" in answer:
            rounding = round_bfloat16 if dtype == "bfloat16" else F
            answer["output"] = rounding(answer["output"])
        answers.append(answer)
    if case.relation:
        return judge_relation(prepared[0], answers[0], prepared[1], answers[1], precision)
    return judge(prepared[0], answers[0], precision)


def failing(stage, function, dtype="float32", profile="quick"):
    """Names of the plain cases of a stage that a function fails, with the first message of each."""
    cases = [c for c in RULES.cases_of(stage) if within_profile(c, profile) and c.delivery == "plain"]
    faults = {c.name: answered(c, function, dtype).faults for c in cases if dtype in c.dtypes}
    return {name: found[0].message for name, found in faults.items() if found}


HONEST = {
    "locks_build_summary": {"gram": honest.by_gram, "svd": honest.by_svd},
    "locks_quantize_summary": {
        "divided": honest.quantizer(),
        "reciprocal": honest.quantizer(honest.by_reciprocal),
    },
    "locks_score_pages": {
        "integers": honest.scorer(),
        "reciprocal": honest.scorer(honest.by_reciprocal),
        "rebuilt": honest.rebuilt,
    },
    "locks_page_shares": {"plain": honest.page_values},
    "locks_select_pages": {"stable": honest.select_pages},
    "locks_decode": {
        "gram": honest.decoder(),
        "svd": honest.decoder(honest.by_svd, honest.quantizer(honest.by_reciprocal), honest.rebuilt),
    },
    "locks_decode_paged": {"gram": honest.paged(honest.decoder())},
}
PAIRS = [(stage, name) for stage, ways in HONEST.items() for name in ways]


def test_the_paper_is_the_table_itself():
    for stage in STAGES:
        assert DIALECTS[PAPER].stage(stage) is STAGES[stage]
    assert DIALECTS[PAPER].departures() == []


def test_rows_and_cases_belong_together():
    assert set(FAMILIES) <= set(ROWS) <= set(STAGES)
    for stage, row in ROWS.items():
        assert (row.name, row.arguments, row.results) == (stage, STAGES[stage].arguments, STAGES[stage].results)
    for stage in FAMILIES:
        cases = RULES.cases_of(stage)
        assert len({c.id for c in cases}) == len(cases)
        assert all(c.stage == stage and set(c.suspect.split("/")) <= set(CLASSES) for c in cases)
        assert {c.delivery for c in cases} >= {"plain", "strided", "reuse"}


@pytest.mark.parametrize(("stage", "name"), PAIRS)
def test_honest_float32_stages_raise_no_alarm(stage, name):
    assert failing(stage, HONEST[stage][name]) == {}


@pytest.mark.parametrize("stage", ["locks_decode", "locks_decode_paged"])
def test_float16_weights_and_values_are_allowed_for_bf16_inputs(stage):
    decode = honest.decoder(half=True)
    assert failing(stage, decode if stage == "locks_decode" else honest.paged(decode), "bfloat16") == {}


MUTANTS = {
    "locks_build_summary": [(wrong.smallest_modes, "one-strong-mode")],
    "locks_quantize_summary": [
        (wrong.unrounded_scales, "bf16-scales"),
        (wrong.truncated_scales, "bf16-scales"),
        (wrong.coded_by_stored_scale, "codes-before-rounding"),
        (wrong.no_floor, "scale-floor"),
    ],
    "locks_score_pages": [
        (wrong.exact_queries, "int8-query"),
        (wrong.one_scale_per_group, "scale-per-query-head"),
        (wrong.exact_query_for_centroid, "same-query-for-both"),
    ],
    "locks_page_shares": [
        (wrong.recent_in_peak, "peak-without-recent"),
        (wrong.share_average, "sum-of-peaks"),
        (wrong.largest_mass, "sum-of-peaks"),
    ],
    "locks_select_pages": [(wrong.forced_inside, "forced-besides"), (wrong.budget_floored, "ceil-budget")],
    "locks_decode": [
        (honest.decoder(combine=wrong.recent_in_peak), "peak-not-share"),
        (honest.decoder(combine=wrong.recent_in_peak), "peak-without-open-page"),
        (honest.decoder(combine=wrong.share_average), "peak-not-share"),
        (honest.decoder(combine=wrong.largest_mass), "sum-not-max-of-heads"),
        (honest.decoder(select=wrong.forced_inside), "odd-budget"),
        (honest.decoder(select=wrong.budget_floored), "odd-budget"),
        (honest.decoder(score=wrong.exact_queries), "int8-query"),
        (honest.decoder(score=wrong.one_scale_per_group), "scale-per-query-head"),
        (honest.decoder(score=wrong.exact_query_for_centroid), "int8-query"),
        (honest.decoder(build=wrong.smallest_modes), "largest-modes"),
    ],
}
CAUGHT = [(stage, probe, mutant) for stage, mutants in MUTANTS.items() for mutant, probe in mutants]


@pytest.mark.parametrize(("stage", "probe", "mutant"), CAUGHT)
def test_the_probe_of_a_mistake_catches_it(stage, probe, mutant):
    assert answered(RULES.find_case(f"{stage}/{probe}"), mutant, "float32").faults


def port(folder, change=""):
    """A port file of the honest stages, the last lines changed."""
    stages = (
        "locks_build_summary, locks_quantize_summary = h.by_gram, h.quantizer()\n"
        "locks_score_pages, locks_page_shares, locks_select_pages = h.scorer(), h.page_values, h.select_pages\n"
    )
    steps = "locks_decode = h.decoder(**changed)\nlocks_decode_paged = h.paged(locks_decode)\n"
    path = folder / "port.py"
    path.write_text(
        f"import sys\nsys.path.insert(0, {str(SUPPORT)!r})\nimport honest_dialect as h, dialect_mutants as wrong\n"
        f"DIALECT = {RULES.name!r}\nchanged = {{}}\n{stages}{change}\n{steps}"
    )
    return str(path)


def test_a_right_port_passes_with_every_departure_listed(tmp_path, capsys):
    target = tmp_path / "report.json"
    assert main(["verify", port(tmp_path), "--profile", "quick", "--json", str(target)]) == 0
    report = json.loads(target.read_text())
    jsonschema.validate(report, json.loads((SCHEMAS / "verify.schema.json").read_text()))
    assert (report["dialect"], report["verdict"]) == (RULES.name, "PASS")
    assert {d["id"] for d in report["departures"]} == {name for name, _ in costs.WHAT.values()}
    assert "departure AMB-01/combine" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("change", "first"),
    [
        ("locks_page_shares = wrong.recent_in_peak; changed['combine'] = wrong.recent_in_peak", "locks_page_shares"),
        ("locks_select_pages = wrong.forced_inside; changed['select'] = wrong.forced_inside", "locks_select_pages"),
        ("locks_quantize_summary = wrong.unrounded_scales", "locks_quantize_summary"),
        ("changed['combine'] = wrong.share_average", "locks_decode"),
    ],
)
def test_a_wrong_port_fails_and_its_first_wrong_stage_is_named(change, first, tmp_path):
    stages = ["locks_quantize_summary", "locks_page_shares", "locks_select_pages", "locks_decode"]
    report = verify(port(tmp_path, change), stages, "quick")
    assert (report.verdict, report.first_failing_stage) == ("FAIL", first)


def test_the_same_port_fails_in_the_paper_dialect(tmp_path):
    report = verify(port(tmp_path, f"DIALECT = {PAPER!r}"), ["locks_select_pages"], "quick")
    assert (report.dialect, report.verdict, report.departures) == (PAPER, "FAIL", [])


def test_one_case_can_be_explained_and_made_again(tmp_path, capsys):
    case = "locks_page_shares/peak-without-recent"
    assert main(["repro", case, "--port", port(tmp_path, "locks_page_shares = wrong.recent_in_peak")]) == 1
    assert main(["repro", case, "--port", port(tmp_path)]) == 0
    assert main(["repro", case, "--port", port(tmp_path, f"DIALECT = {PAPER!r}")]) == 2, "no case of the paper"
    capsys.readouterr()
    assert main(["explain", case]) == 0
    assert f"{RULES.name} dialect" in capsys.readouterr().out
    assert main(["explain", "locks_select_pages/ceil-budget", "--dialect", RULES.name]) == 0
    assert "int64 [1, 7]" in capsys.readouterr().out, "65 tokens are five pages, and the forced ones"
    assert main(["list", "--cases", "--dialect", RULES.name]) == 0
    assert case in capsys.readouterr().out


def test_files_are_written_and_judged_in_a_dialect(tmp_path):
    folder = tmp_path / "cases"
    options = ["--stages", "locks_select_pages", "--profile", "quick", "--dialect", RULES.name]
    assert main(["cases", str(folder), *options]) == 0
    answer(folder, {"locks_select_pages": honest.select_pages})
    code, report = verdict(folder)
    assert (code, report["dialect"], report["verdict"]) == (0, RULES.name, "PASS")
    (folder / "port.json").write_text(json.dumps({"DIALECT": PAPER}))
    code, report = verdict(folder)
    assert code == 3
    assert "written for locks-kv-0.1.4" in report["notes"][0]


def test_a_falling_order_of_modes_is_a_departure_here():
    def falling(*, key_pages, rank):
        built = honest.by_gram(key_pages=key_pages, rank=rank)
        return built | {n: built[n][..., ::-1] for n in ("basis", "coefficients")}

    case = RULES.find_case("locks_build_summary/B16-d128-r8")
    assert [d.id for d in answered(case, falling, "float32").departures] == ["AMB-32"]
    assert answered(case, honest.by_gram, "float32").departures == []


def test_zero_modes_are_free():
    """Dropped, as the paper has it, or raised to the floor."""

    def dropped(*, key_pages, rank):
        built = honest.by_gram(key_pages=key_pages, rank=rank)
        live = (built["coefficients"] ** 2).sum(axis=2, keepdims=True) > 1e-6
        return built | {n: np.where(live, built[n], F(0)) for n in ("basis", "coefficients")}

    for name in ("zero-page", "rank-deficient", "identical-keys"):
        assert not answered(RULES.find_case(f"locks_build_summary/{name}"), dropped, "float32").faults


def test_summaries_to_score_lie_on_the_code_grid():
    """Coding in float32 and decoding gives them back bit for bit, so that a scorer of codes can be judged."""
    for case in RULES.cases_of("locks_score_pages"):
        x = prepare(case, "float32", stage=RULES.stage(case.stage)).carried
        summary = {n: x[n] for n in ("centroid", "basis", "coefficients")}
        again = honest.values_of(honest.quantizer()(**summary, basis_bits=4))
        assert all(np.array_equal(again[n], summary[n]) for n in summary), case.name


def test_every_switch_of_the_profile_is_listed_with_its_cost():
    assert set(costs.WHAT) == set(reference.departures(LOCKS_KV_0_1_4))
    listed = RULES.departures()
    assert len({d.id for d in listed}) == len(listed) == len(costs.WHAT)
    assert all(d.what and "needle-2k" in d.cost and "text-8k" in d.cost for d in listed)


def test_stored_costs_are_those_that_the_shipped_capture_gives():
    assert costs.measured() == json.loads(costs.FILE.read_text())
