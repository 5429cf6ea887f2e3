"""Writing: the same bytes from stored inputs, whole or not at all, ids never reused, clear words for authors."""

import json
from dataclasses import replace

import numpy as np
import pytest

from proofs_checks.cli import main
from proofs_checks.golden import collect, fifty_digits_choices, make, write
from proofs_checks.golden.check import SUMS, check, golden_directory, read_sums
from proofs_checks.golden.collect import LEFT_OUT, golden_cases
from proofs_checks.golden.fifty_digits_choices import evict_tokens
from proofs_checks.golden.job import GoldenError, common_grid, evaluator, make_job
from proofs_checks.golden.manifest import NAME, canonical
from proofs_checks.golden.storable import storable
from proofs_checks.golden.tensors import digest
from proofs_checks.judge.case import Family
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import find_case
from proofs_checks.numbers import round_to

QUICK = ("merge_attention", "locks_build_summary", "locks_pack_basis", "readkv_choose_depths", "lloyd_max_codebook")


def test_some_stages_written_again_are_the_same_bytes(tmp_path):
    """All stages are written again by the tox environments golden-numpy126 and golden-numpy2."""
    target = tmp_path / "golden"
    count = write.write(target, golden_directory(), QUICK)
    files = {p.relative_to(target).as_posix() for p in target.rglob("*.safetensors")}
    assert len(files) == count
    stored = {p.relative_to(golden_directory()).as_posix() for s in QUICK for p in (golden_directory() / s).iterdir()}
    assert files == stored
    for name in files:
        assert (target / name).read_bytes() == (golden_directory() / name).read_bytes(), name
    checked, failures = check(target, QUICK)
    assert checked == count
    others = {stage for stage in STAGES if storable(stage)} - set(QUICK)
    assert {f.message for f in failures} == {f"stage {stage} has no case" for stage in others}


def test_the_manifest_lists_every_golden_case_in_its_present_words():
    """Cheap beside writing all again: an edited case or sentence shows without a single digit."""
    stored = json.loads((golden_directory() / NAME).read_text())["cases"]
    wanted = {case.id: (case.kind, case.why) for stage in STAGES for case in golden_cases(stage)}
    assert {entry["id"]: (entry["kind"], entry["why"]) for entry in stored} == wanted


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    """A set of one stage with one case, whose inputs are drawn anew at every call."""
    drawn = np.random.default_rng(5)

    def inputs():
        return {"outputs": drawn.integers(-9, 9, size=(2, 1, 1, 2)) / 2.0, "lses": np.array([[[0.5]], [[1.0]]])}

    case = Family("merge_attention", "B").probe("golden-test", "B", "a test", inputs)
    cases = {"merge_attention": [case]}
    monkeypatch.setattr(write, "golden_cases", lambda stage: cases[stage])
    target = tmp_path / "golden"
    assert write.write(target, None, ("merge_attention",)) == 1
    return target, cases, case


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_inputs_are_stored_not_drawn(tiny):
    target, _, case = tiny
    before = content(target)
    assert not np.array_equal(case.inputs()["outputs"], case.inputs()["outputs"])
    write.write(target, None, ("merge_attention",))
    assert content(target) == before


def test_an_id_that_was_taken_out_never_comes_back(tiny):
    target, cases, case = tiny
    cases["merge_attention"] = [replace(case, name="golden-other")]
    write.write(target, None, ("merge_attention",))
    assert json.loads((target / NAME).read_bytes())["retired"] == ["merge_attention/golden-test"]
    cases["merge_attention"] = [case, replace(case, name="golden-other")]
    before = content(target)
    with pytest.raises(GoldenError, match="merge_attention/golden-test: a retired id"):
        write.write(target, None, ("merge_attention",))
    assert content(target) == before
    assert [p.name for p in target.parent.iterdir()] == ["golden"]


def test_a_retired_id_among_the_cases_is_refused(tiny):
    target, _, _ = tiny
    value = json.loads((target / NAME).read_bytes())
    value["retired"] = ["merge_attention/golden-test"]
    text = canonical(value)
    (target / NAME).write_bytes(text)
    sums = read_sums((target / SUMS).read_bytes()) | {NAME: digest(text)}
    (target / SUMS).write_text("".join(f"{sums[name]}  {name}\n" for name in sorted(sums)))
    _, failures = check(target)
    assert [(f.file, f.case) for f in failures] == [(NAME, "merge_attention/golden-test")]
    assert "retired id is used again" in failures[0].message


def test_a_broken_set_is_no_source_of_inputs(tiny):
    target, _, _ = tiny
    file = target / "merge_attention" / "golden-test.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(GoldenError, match="the stored inputs cannot be used"):
        write.write(target, None, ("merge_attention",))


def test_a_folder_of_something_else_is_left_alone(tmp_path, capsys):
    (tmp_path / "notes.txt").write_text("mine")
    assert main(["golden", "write", str(tmp_path)]) == 2
    assert "holds something else" in capsys.readouterr().err
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_an_author_is_told_what_a_new_stage_needs(monkeypatch):
    with pytest.raises(GoldenError, match="new_stage: no evaluation in 50 digits; add a function of this name"):
        evaluator("new_stage")
    monkeypatch.setitem(collect.own_cases(), "merge_attention", [])
    monkeypatch.setattr(collect, "cases_of", lambda stage: ())
    with pytest.raises(GoldenError, match="merge_attention: no golden case"):
        golden_cases("merge_attention")


def test_a_stage_without_bound_or_rule_is_judged_by_what_its_check_lets_pass(monkeypatch):
    """Quest's pages have neither. Of pages 1, 2 and 3 two are equal, so that either may be kept, and one must be."""
    case = find_case("quest_pages/three-at-least")
    scores = np.array([[[0.0, 1.0, 2.0, 2.0, 5.0, 9.0]]])
    made = make.make(case, {**case.inputs(), "scores": scores, "budget_tokens": 48, "page_size": 16})
    assert made.results["pages"]["rule"] == "pages"
    assert np.flatnonzero(made.tensors["must/pages"][0, 0]).tolist() == [4, 5]
    assert np.flatnonzero(made.tensors["may/pages"][0, 0]).tolist() == [2, 3, 4, 5]
    assert "expected/read" not in made.tensors, "the union hangs on a page that is free"


def test_a_check_that_refuses_the_right_answer_stops_the_writer(monkeypatch):
    case = find_case("evict_tokens/both-ends")
    monkeypatch.setattr(fifty_digits_choices, "evict_tokens", lambda **inputs: {"tokens": wrong_tokens(inputs)})
    with pytest.raises(GoldenError, match="the judge refuses the right answer"):
        make.make(case, case.inputs())


def wrong_tokens(inputs):
    """The worst tokens in place of the best."""
    return evict_tokens(**{**inputs, "scores": -inputs["scores"]})["tokens"]


def test_an_id_stands_once(monkeypatch):
    monkeypatch.setitem(collect.own_cases(), "merge_attention", [find_case("merge_attention/all-empty")])
    with pytest.raises(GoldenError, match="'all-empty' stands twice"):
        golden_cases("merge_attention")


def test_what_is_left_out_exists_and_would_be_refused():
    known = {case.id for stage in STAGES for case in collect.cases_of(stage)}
    assert set(LEFT_OUT) <= known
    for case in (find_case(name) for name in LEFT_OUT if name.startswith("readkv")):
        with pytest.raises(GoldenError, match=r"leave a port of \w+ a choice"):
            make.make(case, case.inputs())


def test_inputs_are_what_every_listed_dtype_holds():
    x = np.array([1 / 3, -70000.0, 2.0**-30, 1e-6, 65504.0])
    on_grid = common_grid(x)
    assert np.array_equal(round_to(on_grid, "bfloat16"), on_grid)
    finite = np.abs(on_grid) <= 65504
    assert np.array_equal(round_to(on_grid[finite], "float16"), on_grid[finite])
    case = find_case("attention/logits-of-minus-60000")
    assert make_job(case, STAGES["attention"], case.inputs()).dtypes == ("float32", "bfloat16", "float16")
    large = {**case.inputs(), "keys": 100 * case.inputs()["keys"]}
    assert make_job(case, STAGES["attention"], large).dtypes == ("float32", "bfloat16")
