"""The dialect locks-kv-0.1.4: right ports pass and are told what departs, wrong ones are named.

The honest stages are float32 NumPy from the package's description; the mutants are these with one mistake.
"""

import json

import honest_dialect as honest
import numpy as np
import pytest

from proofs_checks.bounds import locks_kv as bounds
from proofs_checks.judge.case import within_profile
from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.dialects import DIALECTS, PAPER
from proofs_checks.judge.judging import judge, judge_relation, prepare
from proofs_checks.judge.locks_kv import costs
from proofs_checks.judge.locks_kv.cases import FAMILIES
from proofs_checks.judge.locks_kv.rows import ROWS
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import Precision, round_bfloat16
from refimpl.locks import dialect as reference
from refimpl.locks.dialect import LOCKS_KV_0_1_4

F = np.float32
RULES = DIALECTS[LOCKS_KV_0_1_4.name]
STAGE = "locks_decode"


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


def recent_in_peak(*, scores):
    """Mutant: the peak is over all pages."""
    values = np.exp(scores - scores.max(axis=-1, keepdims=True)).sum(axis=1)
    values[:, -1] = 0
    return values


def share_average(*, scores):
    """Mutant: the paper's rule."""
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    values = (weights / weights.sum(axis=-1, keepdims=True)).mean(axis=1)
    values[:, -1] = 0
    return values


def largest_mass(*, scores):
    """Mutant: the package's other rule, the largest score of any head."""
    values = scores.max(axis=1)
    values[:, -1] = 0
    return values


def forced_inside(*, shares, budget_tokens, page_size):
    """Mutant: the budget holds the forced pages, as the paper's does."""
    inside = max(budget_tokens - 2 * page_size, 1)
    return honest.select_pages(shares=shares, budget_tokens=inside, page_size=page_size)


def budget_floored(*, shares, budget_tokens, page_size):
    """Mutant: budgets are rounded down to whole pages."""
    whole = max(budget_tokens // page_size, 1) * page_size
    return honest.select_pages(shares=shares, budget_tokens=whole, page_size=page_size)


def unrounded_scales(**summary):
    """Mutant: scales stay in float32."""
    codes = honest.quantizer()(**summary)
    axes = {"centroid": ("centroid", -1, 127), "basis": ("basis", -2, 7), "coefficient": ("coefficients", -1, 127)}
    for name, (part, axis, level) in axes.items():
        level = honest.LEVELS[summary["basis_bits"]] if name == "basis" else level
        codes[f"{name}_scale"] = np.maximum(np.abs(summary[part]).max(axis=axis) / F(level), F(1e-8))
    return codes


def truncated_scales(**summary):
    """Mutant: scales cut off after bf16's digits instead of rounded."""
    codes = unrounded_scales(**summary)
    for name in ("centroid_scale", "basis_scale", "coefficient_scale"):
        codes[name] = (codes[name].view(np.uint32) & 0xFFFF0000).view(F)
    return codes


def coded_by_stored_scale(**summary):
    """Mutant: codes by the bf16 scale."""
    codes = honest.quantizer()(**summary)
    for name, part, axis, level in (
        ("centroid", "centroid", -1, 127),
        ("basis", "basis", -2, honest.LEVELS[summary["basis_bits"]]),
        ("coefficient", "coefficients", -1, 127),
    ):
        scale = np.expand_dims(codes[f"{name}_scale"], axis)
        codes[f"{name}_codes"] = np.clip(np.rint(summary[part] / scale), -level, level).astype(np.int8)
    return codes


def no_floor(**summary):
    """Mutant: scales without a floor."""
    codes = honest.quantizer()(**summary)
    for name, part, axis, level in (("centroid", "centroid", -1, 127), ("coefficient", "coefficients", -1, 127)):
        scale = np.abs(summary[part]).max(axis=axis, keepdims=True) / F(level)
        ratio = np.divide(summary[part], scale, out=np.zeros_like(summary[part]), where=scale > 0)
        codes[f"{name}_codes"] = np.rint(ratio).astype(np.int8)
        codes[f"{name}_scale"] = round_bfloat16(np.squeeze(scale, axis))
    return codes


def exact_queries(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Mutant: the paper's scores."""
    projected = np.einsum("hgd,hpdr->hgpr", queries, basis)
    logits = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
    logits = logits + np.einsum("hgd,hpd->hgp", queries, centroid)[..., None]
    return honest.log_sum_exp(logits * F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5))


def one_scale_per_group(*, queries, **rest):
    """Mutant: the query heads of a group share one scale."""
    scale = np.maximum(np.abs(queries).max(axis=(1, 2), keepdims=True), F(1e-8)) / F(127)
    return exact_queries(queries=np.rint(queries / scale) * scale, **rest)


def exact_query_for_centroid(*, queries, centroid, basis, coefficients, softmax_scale=None):
    """Mutant: only the basis meets the rounded query."""
    codes, scale = honest.rounded_queries(queries)
    projected = np.einsum("hgd,hpdr->hgpr", codes * scale, basis)
    logits = np.einsum("hgpr,hpbr->hgpb", projected, coefficients)
    logits = logits + np.einsum("hgd,hpd->hgp", queries, centroid)[..., None]
    return honest.log_sum_exp(logits * F(softmax_scale if softmax_scale is not None else queries.shape[-1] ** -0.5))


def smallest_modes(*, key_pages, rank):
    """Mutant: the first columns of an ascending eigendecomposition, the smallest modes."""
    whole = honest.by_gram(key_pages=key_pages, rank=min(key_pages.shape[2:]))
    return whole | {n: whole[n][..., :rank] for n in ("basis", "coefficients")}


MUTANTS = {
    "locks_build_summary": [smallest_modes],
    "locks_quantize_summary": [unrounded_scales, truncated_scales, coded_by_stored_scale, no_floor],
    "locks_score_pages": [exact_queries, one_scale_per_group, exact_query_for_centroid],
    "locks_page_shares": [recent_in_peak, share_average, largest_mass],
    "locks_select_pages": [forced_inside, budget_floored],
}


@pytest.mark.parametrize(("stage", "mutant"), [(s, m) for s, mutants in MUTANTS.items() for m in mutants])
def test_a_wrong_stage_is_caught(stage, mutant):
    assert failing(stage, mutant)


@pytest.mark.parametrize(
    "wrong",
    [
        {"combine": recent_in_peak},
        {"combine": share_average},
        {"combine": largest_mass},
        {"select": forced_inside},
        {"select": budget_floored},
        {"score": exact_queries},
        {"score": one_scale_per_group},
        {"score": exact_query_for_centroid},
        {"build": smallest_modes},
    ],
    ids=lambda wrong: next(iter(wrong.values())).__name__,
)
def test_a_wrong_decode_step_is_caught(wrong):
    assert failing("locks_decode", honest.decoder(**wrong))


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


def test_values_of_two_heads_by_hand():
    """Peaks 4 and 8 leave out the last page: 4/4 + 2/8, 1/4 + 8/8, 2/4 + 1/8."""
    case = RULES.find_case("locks_page_shares/sum-of-peaks")
    prepared = prepare(case, "float32", stage=RULES.stage(case.stage))
    expected = np.array([[1.25, 1.25, 0.625, 0.0]])
    bound = bounds.page_values_bound(prepared.exact, prepared.reference, Precision())["shares"]
    assert np.all(np.abs(prepared.reference["shares"] - expected) <= bound)


def test_value_enclosure_holds_every_corner():
    """All scores at either end of what is left open: 2^6 corners of two heads and three pages."""
    scores = np.array([[[0.0, 0.3, -0.4], [1.0, 0.9, 1.2]]])
    eta = np.array([[[0.1, 0.05, 0.2], [0.0, 0.3, 0.1]]])
    low, high = bounds.value_enclosure(scores, eta, Precision())
    assert low[0, -1] == high[0, -1] == 0.0
    for corner in range(64):
        signs = np.array([1.0 if corner >> i & 1 else -1.0 for i in range(6)]).reshape(1, 2, 3)
        moved = np.concatenate([scores + signs * eta, np.zeros((1, 2, 1))], axis=-1)
        values = reference.page_values(LOCKS_KV_0_1_4, scores=moved)
        assert np.all((low <= values) & (values <= high))


@pytest.mark.parametrize("case", RULES.cases_of(STAGE), ids=lambda case: case.name)
def test_the_middle_of_the_enclosure_is_the_dialect(case):
    """The reference, which keeps zero modes, lies inside the bounds of its own arithmetic."""
    x = prepare(case, "float32", stage=RULES.stage(STAGE)).exact
    if x["keys"].shape[1] <= x["page_size"]:
        return
    settings = {n: x[n] for n in ("rank", "basis_bits", "page_size")}
    low, high = bounds.decode_enclosure(x["queries"], x["keys"], *settings.values(), None, Precision())
    P = low.shape[1]
    pages = x["keys"][:, : (P - 1) * x["page_size"]].reshape(len(low), P - 1, x["page_size"], -1)
    built = reference.build_summary(LOCKS_KV_0_1_4, key_pages=pages, rank=x["rank"])
    codes = reference.quantize_summary(LOCKS_KV_0_1_4, **built, basis_bits=x["basis_bits"])
    scores = reference.score_pages(
        LOCKS_KV_0_1_4, queries=x["queries"], **reference.locks_dequantize_summary(**codes)
    )
    last = np.zeros((*scores.shape[:2], 1))
    values = reference.page_values(LOCKS_KV_0_1_4, scores=np.concatenate([scores, last], axis=-1))
    assert np.all((low <= values) & (values <= high))
