"""The runner: every statement holds, every scaled bound falls, false statements are refuted, false alarms are not."""

from __future__ import annotations

import types

import numpy as np
import pytest

from proofs_checks.statements import locks_lemma_2, locks_proposition_2, readkv_lemma_7_table
from proofs_checks.statements.prove import Profile, prove_one, scaled_one
from proofs_checks.statements.registry import STATEMENTS
from proofs_checks.statements.statement import Kind, checker, no_rounding

LIGHT = Profile(instances=400, batch=40, finite=3, seconds=0.5, climbs=1, evaluations=30, examples=8)
BY_ID = [pytest.param(module, id=module.ABOUT.id) for module in STATEMENTS]


@pytest.mark.parametrize("module", BY_ID)
def test_statement_holds_on_tight_named_random_and_searched_instances(module):
    row = prove_one(module, LIGHT, seed=1)
    assert row.verdict == "HOLDS", row.reason
    assert row.instances >= 1
    if module.ABOUT.kind in (Kind.IDENTITY, Kind.IMPOSSIBILITY):
        assert row.tightest_ratio is None
    else:
        assert row.tightest_ratio is not None
        assert 0 < row.tightest_ratio <= 1


@pytest.mark.parametrize("module", BY_ID)
def test_bound_scaled_by_nine_tenths_is_refuted_by_the_tight_instance(module):
    row = scaled_one(module, 0.9)
    if module.ABOUT.no_constant:
        assert row.verdict == "NO_CONSTANT"
        assert row.reason
        # a bound may only answer NO_CONSTANT if its best witness stays below the scale
        assert row.tightest_ratio is None or row.tightest_ratio < 0.9
    else:
        assert row.verdict == "REFUTED", row.reason


@pytest.mark.parametrize("module", [p for p in BY_ID if not p.values[0].ABOUT.no_constant])
def test_unscaled_bound_is_not_refuted_by_its_tight_instance(module):
    assert scaled_one(module, 1.0).verdict == "HOLDS"


def altered(module, **changes):
    """A copy of a statement file with other functions, its check rebuilt."""
    copy = types.SimpleNamespace(**{name: getattr(module, name) for name in dir(module) if not name.startswith("__")})
    vars(copy).update(changes)
    copy.__name__ = module.__name__
    copy.check = checker(copy.ABOUT, copy.hypotheses, copy.left, copy.right, copy.guard)
    return copy


def test_a_false_statement_is_refuted():
    """The envelope without its channel of largest share does not bound the logits."""

    def wrong(instance):
        queries, keys = instance["queries"][:, 1:], instance["keys"][:, :, 1:]
        return locks_lemma_2.envelope(queries, keys) / np.sqrt(instance["keys"].shape[2])

    row = prove_one(altered(locks_lemma_2, right=wrong, enclose=None), LIGHT)
    assert row.verdict == "REFUTED"


def test_a_bound_that_is_slightly_too_small_is_refuted():
    """Prop. 2's first bound is sharp, so a millionth part less is false, and the tight instance shows it."""
    short = altered(locks_proposition_2, right=lambda i: (1 - 1e-6) * locks_proposition_2.right(i), enclose=None)
    assert prove_one(short, LIGHT).verdict == "REFUTED"


def test_rounding_that_no_guard_covers_is_cleared_by_balls():
    """Without its guard Lemma 2 shows float64 violations; ball arithmetic clears every one of them."""
    pytest.importorskip("flint")
    bare = altered(locks_lemma_2, guard=no_rounding)
    rng = np.random.default_rng(0)
    assert any(bare.check(bare.sample(rng, 500)).violated.any() for _ in range(20)), "the hazard is real"
    row = prove_one(bare, Profile(4000, 200, 1, 2.0, 0, 0, 0))
    assert row.verdict == "HOLDS"
    assert "cleared by ball arithmetic" in row.reason


def test_a_missing_engine_is_not_applicable_and_says_which(monkeypatch):
    def absent(instance):
        raise ModuleNotFoundError("No module named 'flint'", name="flint")

    row = prove_one(altered(readkv_lemma_7_table, left=absent, guard=no_rounding), LIGHT)
    assert (row.verdict, row.reason) == ("NOT_APPLICABLE", "flint is not installed (extra certify)")


def test_nan_counts_as_a_violation():
    broken = altered(locks_lemma_2, left=lambda i: np.full(len(i["queries"]), np.nan), enclose=None)
    assert prove_one(broken, LIGHT).verdict == "REFUTED"
