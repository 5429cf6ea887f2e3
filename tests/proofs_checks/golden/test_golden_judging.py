"""Judging by stored files alone: right ports pass, wrong ones are named, and every rule refuses what it should."""

import json

import numpy as np
import pytest

from proofs_checks.cli import main
from proofs_checks.golden.check import SUMS, golden_directory, inputs_of, load_case, load_manifest, read_sums
from proofs_checks.golden.judging import faults
from proofs_checks.golden.manifest import NAME
from proofs_checks.judge.stages import STAGES
from refimpl.locks.summary import locks_build_summary

PORTS = "examples/ports"


@pytest.fixture(scope="module")
def stored():
    place = golden_directory()
    sums = read_sums((place / SUMS).read_bytes())
    cases = load_manifest((place / NAME).read_bytes(), sums).cases

    def load(case):
        return cases[case], load_case((place / cases[case].file).read_bytes(), cases[case], sums)

    return load


@pytest.mark.parametrize("port", ["numpy_port.py", "numpy_port_readkv.py"])
def test_a_right_port_passes(port, tmp_path):
    target = tmp_path / "check.json"
    assert main(["golden", "check", "--port", f"{PORTS}/{port}", "--json", str(target)]) == 0
    assert json.loads(target.read_text())["checked"] > 150


@pytest.mark.parametrize(
    ("port", "case"),
    [
        ("broken_head_map.py", "attention/head-map-G6@float32"),
        ("broken_base2_merge.py", "merge_attention/masses-8-and-2@float32"),
        ("broken_nibble_sign.py", "locks_unpack_basis/all-bytes@float32"),
        ("broken_smallest_modes.py", "locks_build_summary/golden-rank-2-of-4@float32"),
        ("broken_budget.py", "locks_select_pages/ceil-budget@float32"),
    ],
)
def test_a_broken_port_is_named_by_a_stored_case(port, case, tmp_path):
    target = tmp_path / "check.json"
    assert main(["golden", "check", "--port", f"{PORTS}/{port}", "--json", str(target)]) == 1
    failures = json.loads(target.read_text())["failures"]
    assert case in {failure["case"] for failure in failures}
    stages = {failure["case"].partition("/")[0] for failure in failures}
    assert case.partition("/")[0] in stages
    assert {failure["file"].partition("/")[0] for failure in failures} == stages


def test_a_port_that_cannot_be_judged_says_so(tmp_path):
    port = tmp_path / "port.py"
    port.write_text("def nothing(*, x):\n    return x\n")
    assert main(["golden", "check", "--port", str(port)]) == 3
    port.write_text("ACCUMULATE = 'bfloat16'\n\ndef attention(*, queries, keys, values):\n    return 0\n")
    assert main(["golden", "check", "--port", str(port)]) == 3


def answer_of(entry, tensors):
    """The stored answer itself, in the result's own type."""
    answer = {}
    for name, about in entry.results.items():
        kind = {"pages": "must", "between": "low"}.get(about["rule"], "expected")
        value = tensors[f"{kind}/{name}"]
        if about["rule"] == "pages":
            value = np.array([np.flatnonzero(row) for row in value])
        whole = about["role"] in ("int8", "uint8", "index")
        answer[name] = value.astype({"index": "int64"}.get(about["role"], about["role"])) if whole else value
    return answer


SPOILS = {
    "one bound too far": (
        "locks_score_pages/d80",
        lambda a, t: a["scores"].__setitem__((0, 0, 0), a["scores"][0, 0, 0] + 1.01 * t["bound/scores"][0, 0, 0]),
    ),
    "one ulp beside": (
        "merge_attention/one-empty",
        lambda a, t: a["output"].__setitem__((0, 0, 0), np.nextafter(a["output"][0, 0, 0], 9)),
    ),
    "not a number": ("locks_score_pages/d80", lambda a, t: a["scores"].__setitem__((0, 0, 0), np.nan)),
    "minus infinity": ("locks_score_pages/d80", lambda a, t: a["scores"].__setitem__((0, 0, 0), -np.inf)),
    "infinite where free": ("affine_quantize/constant-row", lambda a, t: a["scale"].__setitem__(0, np.inf)),
    "a code too low": ("affine_quantize/nearest", lambda a, t: a["codes"].__setitem__((0, 2), 1)),
    "wrong type": ("affine_quantize/nearest", lambda a, t: a.__setitem__("codes", a["codes"].astype(np.int64))),
    "wrong shape": ("locks_score_pages/d80", lambda a, t: a.__setitem__("scores", a["scores"][:, :1])),
    "missing": ("merge_attention/masses-8-and-2", lambda a, t: a.pop("lse")),
    "a page twice": ("locks_select_pages/ceil-budget", lambda a, t: a["pages"].__setitem__((0, 1), a["pages"][0, 2])),
    "a worse page": ("locks_select_pages/forced-inside", lambda a, t: a["pages"].__setitem__((0, 1), 6)),
    "a page out of range": ("locks_select_pages/ceil-budget", lambda a, t: a["pages"].__setitem__((0, 1), 99)),
    "a step unspent": ("readkv_choose_depths/largest-first", lambda a, t: a["depths"].__setitem__(0, 1)),
}


@pytest.mark.parametrize("name", SPOILS)
def test_a_spoilt_answer_is_refused(stored, name):
    case, spoil = SPOILS[name]
    entry, tensors = stored(case)
    answer = {n: np.array(v) for n, v in answer_of(entry, tensors).items()}
    assert faults(entry, tensors, answer, "float32") == []
    spoil(answer, tensors)
    assert len(faults(entry, tensors, answer, "float32")) == 1


def test_either_of_two_tied_pages_is_right_and_both_are_not(stored):
    entry, tensors = stored("locks_select_pages/threshold-ties")
    for pages, right in (([0, 2, 1, 3, 7], 1), ([7, 5, 4, 2, 0], 1), ([0, 1, 3, 4, 7], 0), ([0, 1, 2, 6, 7], 0)):
        assert (faults(entry, tensors, {"pages": np.array([pages])}, "float32") == []) == bool(right)


def test_ties_of_steps_are_free_but_their_number_is_not(stored):
    entry, tensors = stored("readkv_choose_depths/ties")
    for depths, right in (([1, 1, 0], 1), ([0, 1, 1], 1), ([1, 1, 1], 0), ([1, 0, 0], 0), ([2, 0, 0], 0)):
        assert (faults(entry, tensors, {"depths": np.array(depths)}, "float32") == []) == bool(right)


def test_a_common_factor_on_importances_is_free_and_another_one_on_one_head_is_not(stored):
    entry, tensors = stored("readkv_key_importance/H2-G3-d64")
    right = tensors["expected/importance"]
    assert faults(entry, tensors, {"importance": right * 0.1}, "float32") == []
    assert faults(entry, tensors, {"importance": right * np.array([[1.0], [1.001]])}, "float32")


def test_turned_and_reflected_modes_are_right_and_others_are_not(stored):
    """Equal singular values: any basis of the plane, a joint sign flip; not a sign on one side, nor another mode."""
    entry, tensors = stored("locks_build_summary/equal-modes-both-kept")
    built = locks_build_summary(**inputs_of(entry, tensors))
    c, s = np.cos(0.3), np.sin(0.3)
    turn = np.array([[c, -s], [s, c]])
    turned = {**built, "basis": built["basis"] @ turn, "coefficients": built["coefficients"] @ turn}
    assert faults(entry, tensors, turned, "float32") == []
    flipped = {**built, "basis": -built["basis"], "coefficients": -built["coefficients"]}
    assert faults(entry, tensors, flipped, "float32") == []
    assert "reconstruction" in faults(entry, tensors, {**flipped, "basis": built["basis"]}, "float32")[0]
    zeros = {name: np.zeros_like(value) for name, value in built.items()}
    assert "projector" in faults(entry, tensors, {**zeros, "centroid": built["centroid"]}, "float32")[0]
    dropped = {**built, "coefficients": built["coefficients"] * np.array([1.0, 0.0])}
    assert "projector" in faults(entry, tensors, dropped, "float32")[0]


def test_noise_modes_of_a_page_without_modes_are_free(stored):
    entry, tensors = stored("locks_build_summary/constant-pages")
    built = locks_build_summary(**inputs_of(entry, tensors))
    noise = np.random.default_rng(0).normal(size=built["coefficients"].shape)
    size = np.linalg.norm(noise, axis=2, keepdims=True)
    band = tensors["band/basis"][..., None, None]
    noisy = {**built, "basis": np.ones(built["basis"].shape), "coefficients": 0.99 * band * noise / size}
    assert faults(entry, tensors, noisy, "float32") == []
    loud = {**noisy, "coefficients": 1.01 * band * noise / size}
    assert faults(entry, tensors, loud, "float32") != []


def test_no_stored_case_accepts_zeros(stored):
    """A case that zeros pass says nothing of them; those whose right answer is 0 or empty are the only ones."""
    place = golden_directory()
    cases = json.loads((place / NAME).read_bytes())["cases"]
    passing = []
    for case in cases:
        entry, tensors = stored(case["id"])
        stage = STAGES[entry.stage]
        zeros = {}
        for name, about in entry.results.items():
            kind = {"index": "int64", "output": "float64", "float": "float64"}.get(about["role"], about["role"])
            zeros[name] = np.zeros(about["shape"], kind)
        right = [t for n, t in tensors.items() if n.startswith(("expected/", "low/", "projector/")) and t.any()]
        if right and not faults(entry, tensors, zeros, entry.dtypes[-1]):
            passing.append((entry.id, stage.name))
    assert passing == []
