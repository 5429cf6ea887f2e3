"""The guards: wide enough for ball arithmetic, narrow enough to say something; the hazards they exist for are real."""

from __future__ import annotations

import numpy as np
import pytest

from proofs_checks.statements import locks_proposition_3_cumulant, locks_theorem_1_ii, readkv_lemma_11
from proofs_checks.statements.guard import UNIT, gamma, log_sum_exp_guard
from proofs_checks.statements.locks_sandwich import log_shares
from proofs_checks.statements.prove import decided_by_balls
from proofs_checks.statements.registry import STATEMENTS
from proofs_checks.statements.rigorous import balls, precision, symmetric_norm
from proofs_checks.statements.search import pick
from proofs_checks.statements.statement import Kind
from refimpl.attention import attend, log_sum_exp

BOUNDS = [module for module in STATEMENTS if module.ABOUT.kind in (Kind.UPPER_BOUND, Kind.LOWER_BOUND)]
ENCLOSED = [module for module in STATEMENTS if hasattr(module, "enclose")]


@pytest.mark.parametrize("module", ENCLOSED, ids=lambda module: module.ABOUT.id)
def test_float64_sides_lie_within_the_guard_of_their_balls(module):
    pytest.importorskip("flint")
    rng = np.random.default_rng(8)
    for _ in range(6):
        batch = module.sample(rng, 3)
        slack = module.check(batch)
        for index in range(len(slack.left)):
            with precision():
                left, right = module.enclose(pick(batch, index))
                # the guard bounds the rounding of the difference, hence of each side when the other is exact
                assert not abs(left - float(slack.left[index])) > float(slack.guard[index])
                assert not abs(right - float(slack.right[index])) > float(slack.guard[index])
                assert not (left > right if module.ABOUT.kind is Kind.UPPER_BOUND else left < right)


@pytest.mark.parametrize("module", ENCLOSED, ids=lambda module: module.ABOUT.id)
def test_balls_confirm_that_the_scaled_bound_is_violated(module):
    pytest.importorskip("flint")
    if not module.ABOUT.no_constant:
        assert decided_by_balls(module, module.tight_instance(), 0.9) is True
    assert decided_by_balls(module, module.tight_instance(), 1.0) is False


@pytest.mark.parametrize("module", BOUNDS, ids=lambda module: module.ABOUT.id)
def test_the_guard_is_small_beside_a_tight_bound(module):
    """A guard that swallowed its bound would make the check say nothing; the crowd of 1000 pages needs 1e-8 of it."""
    slack = module.check(module.tight_instance())
    best = int(np.nanargmax(slack.ratios))
    assert slack.guard[best] <= 1e-7 * abs(slack.right[best])


def test_log_sum_exp_guard_covers_the_error_in_fifty_digits():
    mpmath = pytest.importorskip("mpmath")
    rng = np.random.default_rng(2)
    for _ in range(50):
        logits = 10.0 ** rng.uniform(-2, 2.5) * rng.standard_normal(rng.integers(1, 30))
        with mpmath.workdps(50):
            exact = mpmath.log(sum(mpmath.exp(mpmath.mpf(float(x))) for x in logits))
            error = abs(exact - mpmath.mpf(float(log_sum_exp(logits))))
        assert error <= float(log_sum_exp_guard(logits))


def test_gamma_is_highams():
    assert gamma(3) == 3 * UNIT / (1 - 3 * UNIT)


def test_symmetric_norm_encloses_the_eigenvalue():
    pytest.importorskip("flint")
    with precision():
        found = symmetric_norm(balls(np.array([[2.0, 1.0], [1.0, 2.0]])))  # eigenvalues 3 and 1
        assert found.contains(3)
        assert found.rad() < 1e-8


def test_hazard_two_softmaxes_leave_noise_where_the_model_keeps_digits():
    """Key errors of 1e-16: subtracting two attentions beats the bound now and then, the model never does."""
    rng = np.random.default_rng(4)
    keys = np.ones((400, 2, 1)) * np.array([[[1.5e-4], [-1.5e-4]]]) * rng.random((400, 1, 1))
    values = np.ones((400, 2, 1)) * np.array([[[1.0], [-1.0]]])
    hats = keys - 1e-16 * np.array([[[1.0], [-1.0]]])
    instance = {"queries": np.ones((400, 1)), "keys": keys, "keys_hat": hats, "values": values, "values_hat": values}
    first, second = (attend(np.ones((400, 1, 1)), k, values, 1.0)["output"][:, 0, 0] for k in (keys, hats))
    slack = readkv_lemma_11.check(instance)
    assert (np.abs(first - second) > slack.right).any(), "float64 alone reports false violations"
    assert (slack.left <= slack.right + slack.guard).all()


def test_hazard_shares_underflow_but_their_logs_do_not():
    scores = np.array([[[0.0, -800.0]]])
    assert np.exp(scores[0, 0, 1] - log_sum_exp(scores)[0, 0]) == 0.0
    assert log_shares(scores)[0, 1] == -800.0


def test_hazard_a_tiny_page_has_a_remainder_below_rounding():
    """L = 1e-6: L^3/3 = 3e-19, while float64 leaves about 1e-17; the guard covers it and nothing is claimed."""
    instance = {"logits": np.array([[1e-6, -1e-6, 0.0]])}
    slack = locks_proposition_3_cumulant.check(instance)
    assert slack.right[0] < UNIT
    assert not slack.violated.any()
    assert slack.tightest is not None
    assert slack.tightest <= 0


def test_the_crowd_needs_two_heads_for_exponent_four():
    """With one of its heads alone the crowd loses no more than 2 eta."""
    instance = locks_theorem_1_ii.tight_instance()
    alone = {**instance, "queries": instance["queries"][:, :1]}
    both, one = locks_theorem_1_ii.check(instance), locks_theorem_1_ii.check(alone)
    assert both.left[0] > 3.9 * both.right[0] / 4
    assert one.left[0] <= one.right[0] / 2
