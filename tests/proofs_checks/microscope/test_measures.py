"""Frontier, fidelity, errors and combine against counts written out by hand or by brute force."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from proofs_checks.microscope import audit, energy, steps
from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.combine_rules import measure_combine, rule_pages
from proofs_checks.microscope.combine_study import combine_study
from proofs_checks.microscope.errors import measure_errors
from proofs_checks.microscope.fidelity import measure_fidelity
from proofs_checks.microscope.frontier import measure_frontier, overlap_curve
from proofs_checks.microscope.measure import Plan, measure_head
from proofs_checks.microscope.selectors import CENTROID, EXACT, QUEST, Selector, locks_selector
from proofs_checks.microscope.steps import masses, page_context


def logits_of(trace, step):
    seen = int(trace.positions[step]) + 1
    return trace.stored_queries[step] @ trace.keys[:seen].T / np.sqrt(trace.head_size)  # [G, seen]


def page_masses(weights, pages, size):
    return np.stack([weights[:, p * size : (p + 1) * size].sum(axis=1) for p in range(pages)], axis=1)


@given(st.permutations(range(7)), st.permutations(range(7)))
def test_overlap_curve_counts_common_pages(order, exact):
    counted = [len(set(order[: k + 1]) & set(exact[: k + 1])) for k in range(7)]
    assert overlap_curve(np.array(order), np.array(exact)).tolist() == counted


def test_frontier_by_hand(trace):
    """Pages of 8: 8, 8 and 8 complete ones; the mass of the 2 best by centroid, from the weights themselves."""
    results = Results()
    context = page_context(trace, 8)
    measure_frontier(trace, context, [CENTROID], [16], results)
    wanted_mass, wanted_recall = [], []
    for step in range(trace.steps):
        pages = (int(trace.positions[step]) + 1) // 8
        weights = np.exp(logits_of(trace, step)[:, : pages * 8])
        share = page_masses(weights / weights.sum(axis=1, keepdims=True), pages, 8)
        centre = np.exp(trace.stored_queries[step] @ context.key_pages[:pages].mean(axis=1).T / np.sqrt(8))
        guess = (centre / centre.sum(axis=1, keepdims=True)).mean(axis=0)
        chosen, best = set(np.argsort(-guess)[:2]), set(np.argsort(-share.mean(axis=0))[:2])
        wanted_mass.append(share.mean(axis=0)[list(chosen)].sum())
        wanted_recall.append(len(chosen & best) / 2)
    key = ("frontier", "synthetic", "share_average", 16, 8, "centroid only")
    # two summation orders of some 100 float64 terms, each relative to a sum of at most 1
    assert abs(results[(*key, "mass")].value - np.mean(wanted_mass)) <= 200 * np.finfo(float).eps
    assert results[(*key, "recall")].value == np.mean(wanted_recall)


def test_exact_scores_have_full_recall_and_the_largest_mass(trace):
    results, context = Results(), page_context(trace, 8)
    rows = [EXACT, QUEST, CENTROID, locks_selector(2, 4)]
    measure_frontier(trace, context, rows, [16, 32], results)
    for budget in (16, 32):
        key = ("frontier", "synthetic", "share_average", budget, 8)
        mass = {row.name: results[(*key, row.name, "mass")].value for row in rows}
        assert results[(*key, "exact LSE", "recall")].value == 1.0
        # the optimum is exact in the shares; sums of at most 8 of them differ by their rounding
        assert all(value <= mass["exact LSE"] + 16 * np.finfo(float).eps for value in mass.values())


def test_full_rank_page_basis_ranks_as_the_exact_scores(trace):
    results, context = Results(), page_context(trace, 8)
    measure_frontier(trace, context, [locks_selector(8, None)], [24], results)
    assert results["frontier", "synthetic", "share_average", 24, 8, "Locks r8 unquantised", "recall"].value == 1.0


def test_own_selector_joins_without_being_registered(trace):
    last_key = Selector("last key", lambda c: c.key_pages[:, -1], lambda queries, kept: queries @ kept.T)
    results = Results()
    measure_frontier(trace, page_context(trace, 8), [last_key], [16], results)
    assert 0 < results["frontier", "synthetic", "group_lse", 16, 8, "last key", "mass"].value < 1


def test_fidelity_by_hand(trace):
    """Step 64 (65 tokens): page 0, the last complete page 7 and the open page are kept; k = 1 of pages 1..6."""
    results = Results()
    measure_fidelity(trace, page_context(trace, 8), [EXACT, CENTROID], results, fractions=(0.1,))
    held, contested_held, carriers = [], [], []
    for step, seen in enumerate((64, 65, 66)):
        weights = np.exp(logits_of(trace, step))
        weights /= weights.sum(axis=1, keepdims=True)
        share = page_masses(weights, 8, 8)
        tail = weights[:, 64:seen].sum(axis=1)
        for head in range(2):
            best = 1 + int(np.argmax(share[head, 1:7]))
            held.append(share[head, best] + share[head, 0] + share[head, 7] + tail[head])
            contested_held.append(share[head, best] / share[head, 1:7].sum())
            carriers += [1.0] if best == 1 else []  # tokens 9 and 10 lie on page 1
    key = ("fidelity", "synthetic", 0.1, "exact LSE")
    rounding = 400 * np.finfo(float).eps  # sums of at most 66 weights, relative to at most 1
    assert abs(results[(*key, "gamma")].value - np.mean(held)) <= rounding
    assert abs(results[(*key, "gamma_c")].value - np.mean(contested_held)) <= rounding
    assert results[(*key, "needle")].count == len(carriers)
    assert results[(*key, "recall")].value == 1.0


def test_errors_are_zero_at_full_rank_and_not_below(trace):
    results, context = Results(), page_context(trace, 8)
    measure_errors(trace, context, [locks_selector(8, None), locks_selector(1, None)], results)
    reach = np.abs(trace.stored_queries).sum(axis=2).max() * np.abs(trace.keys).max()
    full = results["errors", "synthetic", "Locks r8 unquantised", "score"]
    # two ways to the same logits: some 40 operations of magnitude at most |q|_1 max|k|
    rounding = 40 * np.finfo(float).eps * reach
    assert full.largest_magnitude <= rounding
    assert results["errors", "synthetic", "Locks r1 unquantised", "score"].percentile(50) > rounding


@given(arrays(np.float64, (2, 6), elements=st.floats(-4, 4, width=16)))
def test_share_average_is_the_best_shared_set(scores):
    """Corollary 3 over all sets of 4 of 6 pages that hold the first and the last."""
    share = masses(scores).mean(axis=0)
    best = max(share[[0, 5, *pair]].sum() for pair in combinations(range(1, 5), 2))
    chosen = rule_pages(scores, 4)["share_average"]
    assert share[chosen].sum() >= best - 8 * np.finfo(float).eps  # sums of 4 shares of at most 1 in two orders


def test_per_head_oracle_bounds_every_shared_rule(trace):
    results = Results()
    measure_combine(trace, page_context(trace, 8), [32], results)
    rules = ("share_average", "group_max", "group_mass", "peak_normalised")
    oracle = results["combine", "synthetic", 32, "per_head_oracle", "mean"].value
    means = {rule: results["combine", "synthetic", 32, rule, "mean"].value for rule in rules}
    assert all(means["share_average"] >= mean - 8 * np.finfo(float).eps for mean in means.values())
    assert oracle >= means["share_average"] - 8 * np.finfo(float).eps
    assert 1.0 <= results["combine", "synthetic", 32, "per_head_oracle", "reads"].value <= 2.0


def test_study_loses_coverage_but_never_gains_it():
    row = combine_study(spread=2.0, cases=300)
    assert row.different_sets > 0
    assert row.mean_loss > 0
    assert row.smallest_loss >= -16 * np.finfo(float).eps  # sums of 8 shares of at most 1


def test_results_do_not_depend_on_the_block_length(trace, monkeypatch):
    plan = Plan(sections=("frontier", "fidelity", "combine", "errors", "audit"), page_size=8, rank=2, budgets=(24, 32))
    whole = measure_head(trace, plan)
    monkeypatch.setattr(steps, "BLOCK", 2)
    monkeypatch.setattr("proofs_checks.microscope.frontier.BLOCK", 2)
    pieces = measure_head(trace, plan)
    assert whole.keys() == pieces.keys()
    for key, value in whole.items():
        if hasattr(value, "value"):
            # another block is another matrix product; means of at most 1 move by its rounding
            assert value.count == pieces[key].count
            assert abs((value.value or 0) - (pieces[key].value or 0)) <= 1000 * np.finfo(float).eps, key


def test_page_spectrum_agrees_with_the_basis_it_stands_for(trace):
    context = page_context(trace, 8)
    built = context.spectral(3)
    deviations = context.key_pages - context.key_pages.mean(axis=1, keepdims=True)
    kept = ((deviations @ built["basis"][0]) ** 2).sum(axis=(1, 2)) / (deviations**2).sum(axis=(1, 2))
    # two factorisations of 8 x 8 pages: relative energy within some hundred roundings
    assert np.abs(energy.page_spectrum(context.key_pages)[:, 2] - kept).max() <= 500 * np.finfo(float).eps


def test_a_broken_bound_is_counted():
    tally = audit.Tally()
    tally.add(np.array([1.0, 2.5]), np.array([2.0, 2.0]), 0.25)
    assert (tally.checked, tally.violated) == (2, 1)


@pytest.mark.parametrize("rule", ["group_max", "group_mass", "peak_normalised"])
def test_other_rules_can_choose_another_set(rule):
    """Head 0 spreads over pages 1 and 2, head 1 sits on page 3; the rules that are not averages disagree somewhere."""
    rng = np.random.default_rng(3)
    differ = 0
    for _ in range(200):
        pages = rule_pages(rng.standard_normal((3, 8)) * 2, 4)
        differ += not np.array_equal(pages["share_average"], pages[rule])
    assert differ > 0
