"""Statements on captures: synthetic ones by hand, one slice of the shipped one, vacuous bounds called vacuous."""

from __future__ import annotations

import numpy as np
import pytest

from proofs_checks.capture import Capture, CaptureError, shipped_capture
from proofs_checks.statements import locks_lemma_3, locks_theorem_1_ii, readkv_proposition_12
from proofs_checks.statements.capture_steps import CaptureStep, family_steps, steps_of
from proofs_checks.statements.on_capture import prove_on_capture
from proofs_checks.statements.registry import STATEMENTS, find


def small_step(rng: np.random.Generator, tokens: int = 70) -> CaptureStep:
    shape = (2, tokens, 8)
    keys, values = rng.standard_normal(shape), rng.standard_normal(shape)
    queries = rng.standard_normal((2, 3, 8))
    return CaptureStep("synthetic", queries, keys, values, rank=4, page_size=8, budget_tokens=32)


@pytest.fixture(scope="module")
def rows():
    step = small_step(np.random.default_rng(0))
    return {row.id: row for row in prove_on_capture(STATEMENTS, [step])}


def test_every_statement_has_a_line_and_none_is_refuted(rows):
    assert set(rows) == {module.ABOUT.id for module in STATEMENTS}
    assert {row.verdict for row in rows.values()} <= {"HOLDS", "VACUOUS", "NOT_APPLICABLE"}


@pytest.mark.parametrize(
    "name",
    [
        "locks-theorem-1-i",
        "locks-theorem-1-ii",
        "locks-theorem-1-iii",
        "locks-proposition-2",
        "locks-lemma-2",
        "locks-lemma-3",
        "readkv-proposition-12",
        "readkv-theorem-3",
        "readkv-theorem-3-allocation",
    ],
)
def test_the_statements_about_caches_apply(rows, name):
    assert rows[name].verdict in ("HOLDS", "VACUOUS")
    assert rows[name].instances > 0


def test_certificates_report_their_factors(rows):
    for word in ("kappa_K", "gamma_K", "kappa_V", "gamma_V", "error", "bound"):
        assert word in rows["readkv-proposition-12"].reason
    assert "eta" in rows["locks-theorem-1-ii"].reason


def test_constants_are_not_applicable_and_say_why(rows):
    assert rows["readkv-lemma-7"].verdict == "NOT_APPLICABLE"
    assert rows["readkv-lemma-7"].reason


def test_broken_envelopes_are_refused_by_name(rows):
    """Real residuals leave their calibrated envelopes; the corollary does not apply, and its hypothesis is named."""
    row = rows["readkv-corollary-13"]
    assert row.verdict == "NOT_APPLICABLE"
    assert "within" in row.reason


def test_exact_summaries_make_theorem_1_tight_and_not_vacuous():
    """Rank B - 1 leaves no residual: eta is rounding, and the bound promises all of the coverage."""
    step = small_step(np.random.default_rng(1))
    exact = CaptureStep("exact", step.queries, step.keys, step.values, rank=8, page_size=8, budget_tokens=32)
    instance = exact.group()
    assert not locks_theorem_1_ii.vacuous(instance).any()
    # scores within the guards' few hundred roundings of logits of size 20
    assert (locks_theorem_1_ii.right(instance) < 4 * 300 * 20 * 2.0**-53).all()


def test_a_flat_page_makes_lemma_3_vacuous():
    """With all modes equal, (q.delta)^2 never exceeds sigma_{r+1}^2 |q|^2."""
    keys = np.concatenate([np.eye(4), -np.eye(4)])[None]
    instance = {"queries": np.ones((1, 4)), "keys": keys, "rank": 1}
    assert locks_lemma_3.vacuous(instance).tolist() == [True]
    assert not locks_lemma_3.check(instance).violated.any()


def test_exact_reconstruction_makes_prop_12_say_everything():
    instance = readkv_proposition_12.cases()["zero-residual"]
    exact = {**instance, "values_hat": instance["values"]}
    assert readkv_proposition_12.right(exact).tolist() == [0.0]
    assert readkv_proposition_12.vacuous(exact).tolist() == [False]


def test_a_dead_objective_is_vacuous_not_refuted():
    """S_K = 0 < A_K: gamma is infinite, the certificate holds and says nothing."""

    class Dead:
        label = "dead"

        def readkv_heads(self):
            return {**readkv_proposition_12.tight_instance(), "key_predicted": np.zeros((1, 1))}

    (row,) = prove_on_capture([find("readkv-proposition-12")], [Dead()])
    assert row.verdict == "VACUOUS"


def test_shipped_capture_gives_steps_of_both_prompts():
    steps = steps_of(shipped_capture(), 2)
    assert len(steps) == 4
    needle = next(step for step in steps if step.label.startswith("n2k"))
    assert needle.queries.shape == (3, 3, 64)
    assert needle.keys.shape[0] == 3
    assert needle.moments is not None
    plain = next(step for step in steps if step.label.startswith("t8k"))
    assert plain.queries.shape == (1, 3, 64)


def test_a_query_attends_the_tokens_up_to_its_own_position():
    first = next(family_steps(shipped_capture(), "n2k"))
    assert first.keys.shape[1] == int(shipped_capture()["n2k_pos"][0]) + 1


def test_shipped_capture_holds_on_a_short_cut():
    """320 tokens of one layer of the real capture: Prop. 2, Lemma 2, Theorem 1, Theorem 3."""
    full = next(family_steps(shipped_capture(), "n2k"))
    cut = CaptureStep("cut", full.queries, full.keys[:, :320], full.values[:, :320], full.moments)
    names = ("locks-proposition-2", "locks-lemma-2", "locks-theorem-1-ii", "readkv-theorem-3")
    for row in prove_on_capture([find(name) for name in names], [cut]):
        assert row.verdict in ("HOLDS", "VACUOUS"), row


def test_capture_without_queries_is_refused(tmp_path):
    lacking = Capture(tmp_path / "x.safetensors", {}, {"a_K": np.zeros((2, 2))})
    with pytest.raises(CaptureError, match="X_Q"):
        steps_of(lacking, 1)
