"""Allocations, trees and codebooks are judged by what they must satisfy; a port's own tree is asked for once."""

import numpy as np
import pytest

from proofs_checks.judge.case import Case
from proofs_checks.judge.checks.allocation import Purchase, judge_purchase
from proofs_checks.judge.checks.quantiser import cells_of, stationary_splits
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import verify
from proofs_checks.numbers import Precision
from refimpl.readkv.laws import Normal, Sphere
from refimpl.readkv.tree import lloyd_tree, readkv_tree

GAINS = np.array([0.5, 0.25])


def faults(depths, low, high, budget, costs=None, minimum=0):
    costs = np.ones(len(low), dtype=int) if costs is None else np.array(costs)
    judgement = Judgement()
    problem = Purchase(np.array(low), np.array(high), GAINS, budget, minimum, costs, 0.0)
    judge_purchase(judgement, "depths", np.array(depths), problem)
    return [f.message for f in judgement.faults]


@pytest.mark.parametrize("depths", [[2, 1], [1, 2]])
def test_steps_that_rounding_may_order_either_way_are_free(depths):
    """Worths .5, .25 of both items: after the first two steps, either second step is right."""
    assert faults(depths, [1.0, 1.0], [1.0, 1.0], 3) == []
    assert faults(depths, [0.99, 1.0], [1.01, 1.02], 3) == []


@pytest.mark.parametrize(
    ("depths", "budget", "text"),
    [
        ([1, 2], 3, "next step is worth 1"),  # item 0's second step is worth 1, item 1's .25
        ([2, 0], 3, "1 refinements are left"),
        ([2, 2], 3, "the budget is 3"),
        ([3, 0], 3, "expected 0..2"),
        ([-1, 2], 3, "expected 0..2"),
    ],
)
def test_what_no_order_of_the_worths_buys_is_a_fault(depths, budget, text):
    (message,) = faults(depths, [4.0, 1.0], [4.0, 1.0], budget)
    assert text in message


def test_a_step_that_gains_nothing_is_a_fault_even_with_budget_left():
    (message,) = faults([2, 1], [1.0, 0.0], [1.0, 0.0], 4)
    assert "gains nothing" in message
    assert faults([2, 0], [1.0, 0.0], [1.0, 0.0], 4) == []
    assert faults([2, 1], [1.0, 0.0], [1.0, 0.0], 4, minimum=1) == []


def test_the_first_step_that_does_not_fit_ends_buying():
    """A pair (cost 2) worth 1 does not fit 1 refinement: it stays unspent, though the single item's step would fit."""
    assert faults([1, 0], [4.0, 1.0], [4.0, 1.0], 3, costs=[2, 1]) == []
    (message,) = faults([0, 0], [4.0, 1.0], [4.0, 1.0], 3, costs=[2, 1])
    assert "3 refinements are left" in message
    (message,) = faults([1, 0], [4.0, 9.0], [4.0, 9.0], 3, costs=[2, 1])
    assert "next step is worth 4.5" in message


SUMS = 4 * 64 * 2.0**-53
"""Two halves of two 64-term quadrature sums each, of terms whose magnitudes add up to about 1."""


def test_cells_across_zero_have_the_moments_of_their_halves():
    whole = cells_of(Normal(), np.array([-np.inf, np.inf]))
    assert abs(whole.mass[0] - 1) < SUMS
    assert abs(whole.variance[0] - 1) < SUMS
    sphere = cells_of(Sphere(5), np.array([-np.sqrt(5), 0.3, np.sqrt(5)]))
    assert abs(sphere.mass.sum() - 1) < SUMS
    assert abs(float(sphere.mass @ sphere.mean)) < SUMS


def test_stationary_splits_of_the_exact_tree_are_its_own():
    tree = lloyd_tree(4)
    edges = np.sort(np.concatenate([[-np.inf, np.inf], *tree.thresholds[:3]]))
    assert np.abs(stationary_splits(edges) - tree.thresholds[3]).max() < 2.0**-45  # both are solved to 1e-14


def tree_faults(change):
    prepared = prepare(Case("readkv_tree", "drawn", "bounded", "F", "drawn", dict), "float32", {"depth": 3})
    answer = readkv_tree(depth=3)
    change(answer)
    return [f.message for f in judge(prepared, answer, Precision()).faults]


def test_a_split_may_move_by_a_thousandth_of_its_gap_and_no_more():
    """The last split of depth 2 has children 1.2217 and 2.1520 apart by .93: .0009 may pass, .002 may not."""

    def move(by):
        def change(tree):
            tree["thresholds"][2][3] += by
            low, high = tree["centroids"][3][6:]
            assert 0.8 < high - low < 1.0

        return change

    assert tree_faults(move(0.0)) == []
    assert tree_faults(move(0.0004)) == []
    assert "thresholds[2]" in tree_faults(move(0.002))[0]


def test_lists_of_another_form_are_named():
    assert "list of 4 arrays, got 3" in tree_faults(lambda t: t["centroids"].pop())[0]
    assert "centroids[1]" in tree_faults(lambda t: t["centroids"].__setitem__(1, np.zeros(3)))[0]
    assert "got ndarray" in tree_faults(lambda t: t.__setitem__("thresholds", np.zeros(7)))[0]
    assert "finite" in tree_faults(lambda t: t["thresholds"].__setitem__(0, np.array([np.nan])))[0]


PORT = """
import numpy as np
from refimpl import port as right
{constants}

def readkv_tree(*, depth):
    print("tree", depth)
    {tree}

def readkv_encode(*, z):
    node = np.zeros(z.shape, np.int64)
    for thresholds in TREE["thresholds"]:
        node = 2 * node + (z >= thresholds[node])
    return node.astype(np.uint8)

def lloyd_max_codebook(*, bits, law, d):
    if law == "sphere":
        raise RuntimeError("the sphere must not be asked for")
    return right.lloyd_max_codebook(bits=bits, law=law, d=d)

def readkv_rotate(*, x, signs):
    return {rotate}
"""


def verdicts(tmp_path, source=PORT, **parts):
    defaults = {
        "constants": 'LAWS = ("normal",)\nTREE = right.readkv_tree(depth=8)',
        "tree": "return right.readkv_tree(depth=depth)",
        "rotate": "right.readkv_rotate(x=x, signs=signs)",
    }
    path = tmp_path / "port_of_parts.py"
    path.write_text(source.format(**{**defaults, **parts}))
    report = verify(str(path), stage_timeout=10)
    return {row.stage: row for row in report.stages if row.verdict != "NOT_PROVIDED"}


def test_an_encoder_is_judged_by_the_ports_own_tree(tmp_path):
    """Splits moved by 1e-5 pass the tree's 1/1000 of a gap; codes must follow them."""
    shifted = 'TREE = right.readkv_tree(depth=8)\nTREE["thresholds"][1][1] += np.float32(1e-5)'
    own = verdicts(tmp_path, constants=shifted, tree="return TREE if depth == 8 else right.readkv_tree(depth=depth)")
    assert own["readkv_tree"].verdict == "PASS"
    assert own["readkv_encode"].verdict == "PASS"
    other = verdicts(tmp_path, constants=shifted)
    assert other["readkv_encode"].verdict == "FAIL"


def test_a_tree_that_cannot_be_had_leaves_the_reference_tree(tmp_path):
    rows = verdicts(tmp_path, tree="import os; os._exit(7)")
    assert rows["readkv_tree"].verdict == "ERROR"
    assert rows["readkv_encode"].verdict == "PASS"


FILLS = """for name, value in right.readkv_tree(depth=depth).items():
        if name == "gains":
            out[name][...] = value
        else:
            for part, level in zip(out[name], value, strict=True):
                part[...] = level"""


@pytest.mark.parametrize(("fills", "verdict"), [(FILLS, "PASS"), (FILLS.replace("part[...] = level", "pass"), "FAIL")])
def test_lists_of_results_are_prepared_and_poisoned_for_a_port_that_fills_them(fills, verdict, tmp_path):
    source = PORT.replace("def readkv_tree(*, depth)", "def readkv_tree(*, depth, out)")
    row = verdicts(tmp_path, source, tree=fills)["readkv_tree"]
    assert row.verdict == verdict, row.failures


def test_only_declared_laws_are_asked_for(tmp_path):
    rows = verdicts(tmp_path)
    assert rows["lloyd_max_codebook"].verdict == "PASS"
    normal = [c for c in cases_of("lloyd_max_codebook") if c.inputs()["law"] == "normal"]
    assert rows["lloyd_max_codebook"].cases == len(normal) >= 4
    assert any("LAWS has normal, not sphere" in note for note in rows["lloyd_max_codebook"].notes)


def test_an_illegal_width_that_is_answered_is_a_fault(tmp_path):
    answered = "right.readkv_rotate(x=x, signs=signs) if x.shape[-1] not in (12, 80, 96) else x + 1"
    rows = verdicts(tmp_path, rotate=answered)
    assert rows["readkv_rotate"].verdict == "FAIL"
    assert {f.case for f in rows["readkv_rotate"].failures} == {f"readkv_rotate/d{d}" for d in (12, 80, 96)}
    assert "expected an error" in rows["readkv_rotate"].failures[0].message
