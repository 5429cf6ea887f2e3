"""The batched solvers and models behind the statements, against independent ones."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from proofs_checks.statements import allocation, box_trees, readkv_theorem_1, readkv_theorem_2
from proofs_checks.statements.attention_error import AttentionError, coherence
from proofs_checks.statements.nested_codes import reconstruct, worst_point
from proofs_checks.statements.readers import class_partitions, risk
from refimpl.readkv.access_instances import attention_family, attention_protocol, key_score_protocol
from refimpl.readkv.access_model import run_protocol
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.entropy import HIGH_WEIGHT, LOW_WEIGHT, observe_boxes
from refimpl.readkv.optimum import optimum_by_programming
from refimpl.readkv.rotation import rotation_matrix
from refimpl.readkv.tree import deployed_table
from refimpl.readkv.waterfilling import continuous_depths

weights_and_budget = st.tuples(
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.lists(st.integers(0, 9), min_size=1, max_size=4),
    st.integers(0, 20),
)


@settings(max_examples=60, deadline=None)
@given(weights_and_budget)
def test_greedy_and_programme_agree_with_the_reference_on_integers(drawn):
    weights, steps, budget = drawn
    gains = np.sort(np.array(steps, dtype=np.float64))[::-1]
    budget = min(budget, len(weights) * len(gains))
    table = np.array(weights, dtype=np.float64)[None, :, None] * gains
    depths = allocation.greedy(table, budget)[0]
    assert depths.tolist() == readkv_choose_depths(importance=weights, gains=gains, budget=budget).tolist()
    total = sum(weights) * Fraction(1)
    exact = total - optimum_by_programming(importance=weights, gains=gains, budget=budget)
    assert Fraction(float(allocation.best_gain(table, budget)[0])) == exact  # sums of small integers are exact


def test_programme_needs_no_monotone_gains():
    """E.2.1's lists: 100 behind a 0."""
    table = np.array([[[0.0, 100.0], [1.0, 1.0]]])
    assert allocation.best_gain(table, 2).tolist() == [100.0]
    assert allocation.gained(table, allocation.greedy(table, 2)).tolist() == [2.0]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=6), st.integers(1, 6), st.integers(0, 40))
def test_continuous_optimum_agrees_with_the_reference(weights, cap, budget):
    array = np.array([weights])
    mine = allocation.continuous_lower(array, cap, budget)[0]
    depths = continuous_depths(importance=weights, depth_cap=cap, budget=float(budget))
    theirs = float(np.sum(array[0] * 4.0**-depths))
    # both are a sum of at most 6 terms at depths good to an ulp of 6 + log4(100): 100 roundings of the larger
    assert mine <= theirs * (1 + 100 * 2.0**-53)
    assert mine >= theirs * (1 - 200 * 2.0**-53)


def test_theorem_1_estimate_is_the_access_models():
    rng = np.random.default_rng(3)
    instance = readkv_theorem_1.sample(rng, 1)
    width = instance["z"].shape[1]
    while width > 8 or instance["depth"] != 8:
        instance = readkv_theorem_1.sample(rng, 1)
        width = instance["z"].shape[1]
    transform = rotation_matrix(instance["signs"])
    protocol = key_score_protocol(transform=transform, depth=8, budget=8 * instance["k"])
    x = transform.T @ instance["z"][0] / np.sqrt(width)
    run = run_protocol(protocol, x, transform.T @ instance["q"][0])
    mine = readkv_theorem_1.estimate(instance)[0]
    # two sums of at most 8 products of numbers below 3, behind rotations of 8 terms: 64 roundings
    assert abs(run.answer - mine) <= 64 * 2.0**-53 * 3
    assert run.probes <= 8 * instance["k"]


@pytest.mark.parametrize(("b", "eta"), [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_theorem_2_error_is_the_access_models(b, eta):
    rng = np.random.default_rng(5)
    values = rng.uniform(-1, 1, (2, 3))
    run = run_protocol(attention_protocol(dimension=3), (b, values), eta)
    query, keys, _ = attention_family(sign=b, values=values, query_sign=eta)
    logits = keys @ query / np.sqrt(3)
    exact = np.exp(logits) / np.exp(logits).sum() @ values
    c_1 = float(deployed_table().centroids[1][1])
    instance = {"values": values[None], "b": np.array([float(b)]), "eta": np.array([float(eta)]), "c_1": c_1}
    mine = readkv_theorem_2.left(instance)[0]
    # errors of about .01 formed from numbers below 1 with some 30 roundings, squared
    assert abs(np.mean((exact - run.answer) ** 2) - mine) <= 2 * 0.01 * 60 * 2.0**-53
    assert (run.probes, run.stored_bits) == (8 * 3 + 2, 32 * 3)


def test_box_trees_match_the_references_observation():
    """A tree of depth 2 on the square: halve side 0, then side 1 of the upper half only."""
    tree = ((1, (1, 0)), (2, (1, 1)), (2, (1, 1)))
    lower = [[-1.0, -1.0], [0.0, -1.0], [0.0, 0.0]]
    upper = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]
    seen = observe_boxes(lower=lower, upper=upper)
    assert seen.bits == box_trees.information(tree) == 1.5
    assert abs(seen.mmse - box_trees.side_errors(tree).sum()) <= 8 * 2.0**-53  # dyadic numbers over 3 and 12


def test_number_of_reader_partitions_by_hand():
    """Two cells, one probe: nothing, bit 0, bit 1. Two probes add the full record only, adaptive or not."""
    assert len(class_partitions("oblivious", 2, 1)) == 3
    assert len(class_partitions("oblivious", 2, 2)) == 4
    # branching may read the second bit on one side only: 2 first bits x 2 sides more
    assert len(class_partitions("branching", 2, 2)) == 4 + 4


def test_risk_of_reading_nothing_is_half_the_range_squared():
    assert risk("branching", 2, 0, np.arange(4), np.array([[0.0, 1.0, 2.0, 6.0]])) == 9.0


def test_uniform_code_errors_by_hand():
    assert reconstruct("uniform", np.array([-1.0, 1.0]), np.array([3, 3])).tolist() == [-0.875, 0.875]
    assert worst_point("uniform", 3) == (-1.0, Fraction(1, 8))


def test_attention_error_against_fifty_digits():
    """o - o^ for key errors from 1 to 1e-17, where two float64 softmaxes would leave nothing but noise."""
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(11)
    for exponent in (0, -4, -9, -13, -17):
        keys, values = rng.standard_normal((1, 4, 2)), rng.standard_normal((1, 4, 2))
        query = rng.standard_normal((1, 2))
        hats = keys - 10.0**exponent * rng.standard_normal(keys.shape)
        one = AttentionError({"queries": query, "keys": keys, "keys_hat": hats, "values": values, "values_hat": values})
        with mpmath.workdps(50):
            # the model takes z^ as float64 formed it and adds the exact step
            logits_hat = [mpmath.mpf(float(z)) for z in one.logits_hat[0]]
            residual = [[mpmath.mpf(float(e)) for e in row] for row in one.key_residual[0]]
            step = [sum(mpmath.mpf(float(q)) * e for q, e in zip(query[0], r, strict=True)) for r in residual]
            logits = [z + s / mpmath.sqrt(2) for z, s in zip(logits_hat, step, strict=True)]

            def softmax(z):
                powers = [mpmath.exp(x) for x in z]
                return [p / sum(powers) for p in powers]

            change = [a - b for a, b in zip(softmax(logits), softmax(logits_hat), strict=True)]
            centred = [[mpmath.mpf(float(v)) for v in row] for row in one.centred[0]]
            error = [sum(c * row[i] for c, row in zip(change, centred, strict=True)) for i in range(2)]
            exact = mpmath.sqrt(sum(e * e for e in error))
            assert abs(exact - mpmath.mpf(float(one.output_error[0]))) <= float(one.output_guard[0])
            assert float(one.output_guard[0]) <= 1e-11 * float(exact), "the guard says something"


def test_coherence_survives_underflow():
    """Two parallel rows of 1e-200: their Gram underflows, their coherence is 2 all the same."""
    rows = np.array([[[1e-200, 0.0], [2e-200, 0.0]]])
    assert abs(coherence(rows)[0] - 2) <= 16 * 2.0**-53


def test_theorem_2_weights_are_complements():
    assert HIGH_WEIGHT + LOW_WEIGHT == 1.0
