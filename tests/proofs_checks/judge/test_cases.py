"""The cases themselves: legal, representable, telling, and complete."""

import numpy as np
import pytest

from proofs_checks.judge.classes import CLASSES
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import FAMILIES, cases_of, find_case
from proofs_checks.numbers import Precision

ALL = [case for stage in STAGES for case in cases_of(stage)]
QUICK = [case for case in ALL if case.profile == "quick" and not case.must_raise]


def test_every_stage_has_cases_and_every_family_a_stage():
    assert set(FAMILIES) == set(STAGES)
    assert all(cases_of(stage) for stage in STAGES)


def test_case_ids_are_unique_and_found():
    ids = [case.id for case in ALL]
    assert len(set(ids)) == len(ids)
    assert all(find_case(i).id == i for i in ids)
    with pytest.raises(KeyError):
        find_case("attention/no-such-case")


@pytest.mark.parametrize("case", ALL, ids=lambda c: c.id)
def test_a_case_is_described(case):
    assert set(case.suspect.split("/")) <= set(CLASSES)
    assert case.why
    assert set(case.judged or ()) <= set(STAGES[case.stage].results)


@pytest.mark.parametrize("stage", STAGES)
def test_every_result_of_a_stage_is_judged_by_some_case(stage):
    judged = set()
    for case in cases_of(stage):
        judged |= set(case.judged or STAGES[stage].results)
    assert judged == set(STAGES[stage].results)


@pytest.mark.parametrize("case", [c for c in QUICK if c.kind == "exact"], ids=lambda c: c.id)
def test_inputs_of_an_exact_case_are_representable_in_every_dtype_it_is_used_in(case):
    raw = case.inputs()
    for dtype in case.dtypes:
        for name, value in prepare(case, dtype).exact.items():
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, np.asarray(raw[name], dtype=np.float64)), (dtype, name)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("case", [c for c in QUICK if c.kind == "bounded"], ids=lambda c: c.id)
def test_no_bounded_case_lets_zeros_pass(case, dtype):
    if dtype not in case.dtypes:
        return
    prepared = prepare(case, dtype)
    own = {name: _typed(STAGES[case.stage].results[name], value) for name, value in prepared.reference.items()}
    judgement = judge(prepared, own, Precision(dtype, "float32", dtype))
    assert judgement.refused is None
    assert judgement.faults == []


@pytest.mark.parametrize("case", [c for c in QUICK if c.kind in ("bounded", "exact", "set")], ids=lambda c: c.id)
def test_zeros_fail_every_case_whose_answer_is_not_zero(case):
    prepared = prepare(case, "float32")
    zeros = {name: _zeros(role, prepared.reference[name]) for name, role in STAGES[case.stage].results.items()}
    names = case.judged or tuple(zeros)
    if all(_equal(prepared.reference[n], zeros[n]) for n in names):
        return
    if _zeros_are_right(case):
        return
    assert judge(prepared, zeros, Precision()).faults, case.why


def _zeros_are_right(case) -> bool:
    """Selections of a single page, and nothing to keep: page 0 is the answer."""
    return case.id in ("locks_select_pages/one-page",)


def _typed(role: str, value):
    if role == "floats":
        return [np.asarray(part, dtype=np.float64) for part in value]
    kinds = {"int8": np.int8, "uint8": np.uint8, "index": np.int64}
    return np.asarray(value).astype(kinds.get(role, np.float64))


def _zeros(role: str, value):
    if role == "floats":
        return [np.zeros(np.shape(part)) for part in value]
    return _typed(role, np.zeros(np.shape(value)))


def _equal(left, right) -> bool:
    if isinstance(left, list):
        return all(np.array_equal(a, b) for a, b in zip(left, right, strict=True))
    return np.array_equal(left, right)
