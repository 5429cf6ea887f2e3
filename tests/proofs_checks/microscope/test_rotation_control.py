"""Rotary embedding undone exactly, and what each scope loses by it."""

import numpy as np
import pytest

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.frontier import measure_frontier
from proofs_checks.microscope.rotation_control import RotationRow, rotate, rotation_rows
from proofs_checks.microscope.selectors import PageContext
from proofs_checks.microscope.source import Rope
from proofs_checks.microscope.steps import page_context
from refimpl.checks import ArgumentError

EPS = np.finfo(float).eps


@pytest.mark.parametrize("pairing", ["half-split", "interleaved"])
def test_inverse_rotation_is_exact(pairing):
    rng = np.random.default_rng(0)
    x, positions, rope = rng.standard_normal((5, 8)), np.array([0, 1, 17, 4096, 100_000]), Rope(100_000.0, pairing)
    back = rotate(rotate(x, positions, rope), positions, rope, inverse=True)
    # the same cos and sin both ways: four products, two sums
    assert np.abs(back - x).max() <= 8 * EPS * np.abs(x).max()


@pytest.mark.parametrize("pairing", ["half-split", "interleaved"])
def test_dot_products_depend_on_the_distance_alone(pairing):
    rng = np.random.default_rng(1)
    q, k, rope = rng.standard_normal(8), rng.standard_normal(8), Rope(100.0, pairing)
    dots = [rotate(q[None], np.array([m + 3]), rope)[0] @ rotate(k[None], np.array([m]), rope)[0] for m in (0, 5, 40)]
    # of two dot products, two angles each of up to 43 radians, rounded once; cos and sin to an ulp, then two products
    # and a sum on either side, and eight terms
    assert np.ptp(dots) <= 2 * (2 * 43 + 2 * (2 + 3) + 8) * EPS / 2 * np.linalg.norm(q) * np.linalg.norm(k)


def test_pairings_turn_other_channels():
    x, positions = np.array([[1.0, 0.0, 0.0, 0.0]]), np.array([1])
    assert np.flatnonzero(rotate(x, positions, Rope(100.0, "half-split"))[0]).tolist() == [0, 2]
    assert np.flatnonzero(rotate(x, positions, Rope(100.0, "interleaved"))[0]).tolist() == [0, 1]


def test_another_pairing_is_refused():
    with pytest.raises(ArgumentError, match="pairing"):
        rotate(np.zeros((1, 4)), np.zeros(1, int), Rope(100.0, "other"))
    with pytest.raises(ArgumentError, match="even d"):
        rotate(np.zeros((1, 3)), np.zeros(1, int), Rope(100.0))


def test_full_rank_scores_are_the_exact_ones_in_both_regimes(trace):
    """At rank d nothing is lost, so a fit before rotation, rotated again, ranks as the keys themselves."""
    context, results = page_context(trace, 8), Results()
    full = [RotationRow(scope, 8, before) for scope in ("page", "sequence", "global") for before in (True, False)]
    measure_frontier(trace, context, [row.selector() for row in full], [24], results, "rotation")
    for row in full:
        key = ("rotation", "synthetic", "share_average", 24, 8, row.name, "recall")
        assert results[key].value == 1.0
        assert np.abs(row.energy(context) - 1).max() <= 1e4 * EPS  # squares of the rounding of 8-term sums and an eigh


def test_rows_are_those_of_the_table_that_the_capture_allows(trace):
    context = page_context(trace, 8)
    assert len(rotation_rows(2, context)) == 6 + 3
    context.first_head_keys = None
    assert {row.scope for row in rotation_rows(2, context)} == {
        "sequence",
        "page",
        "bucket-4",
        "bucket-16",
        "bucket-64",
    }
    context.rope = None
    assert not any(row.before for row in rotation_rows(2, context))


def test_rotation_never_helps_a_page_on_keys_that_were_low_rank_before_it():
    """Pages whose unrotated keys lie on one line: rank 1 holds all of them before rotation, not after."""
    rng, rope = np.random.default_rng(2), Rope(10.0)
    line = np.outer(rng.standard_normal(32), rng.standard_normal(8))
    positions = np.arange(32)
    context = PageContext(rotate(line, positions, rope).reshape(4, 8, 8), positions.reshape(4, 8), rope)
    before, after = (RotationRow("page", 1, regime).energy(context) for regime in (True, False))
    assert np.abs(before - 1).max() <= 1e3 * EPS
    assert after.max() < 0.999
