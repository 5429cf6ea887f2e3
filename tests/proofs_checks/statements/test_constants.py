"""Certified constants: the float32 table in balls, Lemma 7 in exact rationals, printed numbers by two engines."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from proofs_checks.statements import constants, readkv_lemma_7
from proofs_checks.statements.certified_tree import Cells, CertifiedTable, certified_table, nearest_float32
from proofs_checks.statements.nested_codes import worst_point
from proofs_checks.statements.rigorous import precision
from refimpl.readkv.tree import deployed_table, lloyd_tree

flint = pytest.importorskip("flint")


@pytest.fixture(scope="module")
def table() -> CertifiedTable:
    return certified_table()


def test_reference_table_is_the_certified_rounding_entry_by_entry(table):
    mine = deployed_table()
    for depth in range(1, 9):
        upper = mine.centroids[depth][2 ** (depth - 1) :]
        assert upper.astype(np.float64).tolist() == list(table.centroids[depth - 1])
        assert (mine.centroids[depth] == -mine.centroids[depth][::-1]).all()
    for level in range(1, 8):
        assert mine.thresholds[level][2 ** (level - 1) :].astype(np.float64).tolist() == list(
            table.thresholds[level - 1]
        )
    assert mine.gains.astype(np.float64).tolist() == list(table.gains)
    assert mine.thresholds[0].tolist() == [0.0]


def test_enclosures_are_narrow_and_no_entry_is_near_a_rounding_tie(table):
    """The study found the nearest tie 2.6e-3 ulp away; enclosures of 1e-78 leave no doubt."""
    assert table.widest < 1e-78
    assert 2.5e-3 < table.closest_tie < 2.7e-3


def test_a_ball_over_a_tie_is_refused():
    with precision(100), pytest.raises(ArithmeticError, match="does not round to one"):
        nearest_float32(flint.arb(1 + 2.0**-24, 1e-20))  # halfway between 1 and the next float32


def test_first_split_and_means_have_their_closed_forms():
    """c_1 = sqrt(2/pi); the positive cell (0, inf) has mass 1/2."""
    with precision(200):
        cells = Cells()
        mean = cells.mean(flint.arb(0), None)
        assert abs(mean - (2 / flint.arb.pi()).sqrt()) < 1e-50
        assert abs(cells.mass(flint.arb(0), None) - flint.arb(1) / 2) < 1e-50


def test_lemma_7_in_exact_rationals():
    pairs = zip(readkv_lemma_7.LOWER, readkv_lemma_7.values(), readkv_lemma_7.UPPER, strict=True)
    for low, value, high in pairs:
        assert Fraction(low) < value < Fraction(high)


def test_lemma_7_fails_for_the_unrounded_tree():
    """Delta_1, Delta_2 and c_1 of the exact tree lie outside the printed intervals: the lemma is about float32."""
    exact = lloyd_tree(8)
    inside = [
        Fraction(low) < Fraction(float(value)) < Fraction(high)
        for low, value, high in zip(readkv_lemma_7.LOWER, exact.gains, readkv_lemma_7.UPPER, strict=False)
    ]
    assert inside == [False, False, True, True, True, True, True, True]
    assert not Fraction("0.7978845834") < Fraction(float(exact.centroids[1][1])) < Fraction("0.7978845835")


def test_eps_8_is_attained_where_the_paper_says():
    """The endpoint -0.981598794460... beside the centroid -0.991253137588..."""
    point, size = worst_point("lloyd", 8)
    assert f"{abs(point):.12f}" == "0.981598794460"
    assert str(float(size)).startswith("0.009654343128")


def test_a_flat_nearest_centroid_decoder_is_another_quantiser():
    """Midpoints of adjacent leaves give eps = .0091, not .0097: the path through the tree matters."""
    leaves = deployed_table().centroids[8].astype(np.float64)
    middles = (leaves[1:] + leaves[:-1]) / 2
    inside = np.abs(middles) <= 1
    gap = float(np.max((np.diff(leaves) / 2)[inside]))
    assert f"{gap:.4f}" == "0.0091"


@pytest.mark.parametrize("index", range(len(constants.CONSTANTS)))
def test_printed_constant_is_certified(index):
    name, value, relation, printed = constants.CONSTANTS[index]
    with precision(320):
        assert constants.holds(value(), relation, printed), f"{name} {relation} {printed}"


def test_printed_constants_are_not_vacuous():
    """Every bound moved past the value by a tenth is refuted by the same comparison."""
    with precision(320):
        for _, value, relation, printed in constants.CONSTANTS:
            tenth = Fraction(9, 10) if relation == "<" else Fraction(10, 9)
            moved = Fraction(printed) * tenth
            assert not constants.holds(value(), relation, str(moved))


def test_second_engine_agrees():
    pytest.importorskip("mpmath")
    found = constants.second_engine()
    with precision(200):
        first = {
            "kappa_int": constants.kappa_int(),
            "separation_1": constants.separation_1(),
            "theorem_2_upper": constants.theorem_2_upper(constants.eps_8()),
            "theorem_2_converse_1": constants.theorem_2_converse(1),
        }
        for name, (low, high) in found.items():
            middle = float(first[name].mid())
            assert low * (1 - 2.0**-52) <= middle <= high * (1 + 2.0**-52), name


def test_large_m_limit_of_theorem_2_is_9_63():
    with precision(200):
        limit = constants.theorem_2_converse(None) / constants.theorem_2_upper(constants.EPS_ABOVE)
    assert f"{float(limit.mid()):.2f}" == "9.63"
