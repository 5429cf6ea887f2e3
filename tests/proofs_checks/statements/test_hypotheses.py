"""An instance that breaks a hypothesis is refused, and the hypothesis is named."""

from __future__ import annotations

import numpy as np
import pytest

from proofs_checks.statements.registry import STATEMENTS, find
from proofs_checks.statements.statement import HypothesisError

# statement id -> (change to its tight instance, words of the hypothesis that must be named)
BROKEN = [
    ("locks-lemma-1-i", {"kept": np.zeros((1, 3), bool)}, "S is nonempty"),
    ("locks-lemma-1-i-identity", {"kept": np.zeros((1, 3), bool)}, "S is nonempty"),
    ("locks-lemma-1-ii", {"k": 4}, "1 <= k <= P"),
    ("locks-lemma-1-remark", {"values": np.zeros((1, 2, 2))}, "three pages"),
    ("locks-lemma-1-remark-deterministic", {"kept": np.ones((1, 3), bool)}, "one of three pages"),
    ("locks-lemma-2", {"keys": np.zeros((1, 0, 2))}, "at least one key"),
    ("locks-lemma-2-blindness", {"other_keys": np.zeros((1, 2, 2))}, "equal per-channel maxima"),
    ("locks-definition-1", {"other_values": np.zeros((1, 2, 2))}, "other values"),
    ("locks-proposition-1", {"direction": np.array([[1.0, 0.0]])}, "u is orthogonal"),
    ("locks-proposition-1", {"shift": np.zeros(1)}, "c > 0"),
    ("locks-proposition-1", {"keys": np.zeros((1, 1, 2))}, "at least two keys"),
    ("locks-proposition-1-separation", {"queries": np.array([[1.0, 0.0]])}, "q.u > 0"),
    ("locks-corollary-1", {"basis": np.array([[[2.0], [0.0]]])}, "orthonormal columns"),
    ("locks-corollary-1", {"basis": np.eye(2)[None]}, "r < d"),
    ("locks-proposition-2", {"rank": 0}, "1 <= r <= min(B, d)"),
    ("locks-proposition-2", {"queries": np.array([[np.nan, 1.0]])}, "finite"),
    ("locks-proposition-2-exact", {"modes": 2}, "r >= rank(D)"),
    ("locks-lemma-3", {"rank": 2}, "1 <= r < d"),
    ("locks-proposition-3-identity", {"queries": np.array([[50.0, 25.0]])}, "|z| <= 1/2"),
    ("locks-proposition-3-gaussian", {"deviation": np.array([2.0])}, "0 <= s <= 1"),
    ("locks-sandwich", {"scores": np.array([[[np.inf, 0.0]]])}, "finite scores"),
    ("locks-corollary-2", {"k": 0}, "1 <= k <= P"),
    ("locks-corollary-3", {"k": 1}, "k >= 2"),
    ("locks-corollary-3", {"scores": np.zeros((1, 1, 1))}, "two distinct forced pages"),
    ("locks-theorem-1-ii", {"k": 1}, "k >= 2"),
    ("locks-theorem-1-ii", {"page_size": 10**6}, "two pages"),
    ("locks-theorem-1-i", {"page_size": 63}, "complete pages"),
    ("locks-theorem-1-ii-single-head-ours", {"queries": np.ones((1, 2, 3))}, "G = 1"),
    ("readkv-theorem-1", {"k": 3}, "|q|_0 <= k"),
    ("readkv-theorem-1", {"z": np.full((1, 4), 1.5)}, "z in [-1, 1]^d"),
    ("readkv-theorem-1", {"q": np.ones((1, 4))}, "|q| <= 1"),
    ("readkv-theorem-1", {"depth": 9}, "1 <= L"),
    ("readkv-theorem-1-converse", {"probes": 7}, "at most r probes"),
    ("readkv-theorem-2", {"c_1": 0.796875}, "exactly"),  # bf16(c_1): the keys are no longer reconstructed exactly
    ("readkv-theorem-2", {"values": np.full((1, 2, 1), 2.0)}, "[-1, 1]^m"),
    ("readkv-proposition-5", {"probability": np.array([[0.5]])}, "sum to 1"),
    ("readkv-proposition-8", {"gains": np.array([[[0.0, 100.0], [1.0, 1.0]]])}, "gains are nonincreasing"),
    ("readkv-proposition-8", {"gains": np.array([[[1.0, -1.0]]])}, "gains are nonnegative"),
    ("readkv-proposition-9", {"rival": np.array([[8.0, 8.0]])}, "sums to at most B"),
    ("readkv-proposition-9-threshold", {"level": np.array([2.5])}, "1 <= tau <= 16"),
    ("readkv-proposition-10", {"weights": -np.ones((1, 2))}, "weights are nonnegative"),
    ("readkv-lemma-11", {"keys": np.zeros((1, 0, 1))}, "T >= 1"),
    ("readkv-proposition-12", {"key_predicted": np.zeros((1, 1))}, "gamma_K is finite"),
    ("readkv-proposition-12", {"value_predicted": np.zeros((1, 2))}, "gamma_V is finite"),
    ("readkv-corollary-13", {"key_predicted": np.zeros((1, 1))}, "within T sigma^2 D"),
    ("readkv-softmax-jacobian", {"p": np.array([[0.5, 0.6]])}, "p sums to 1"),
    ("readkv-appendix-e13-rounding", {"y": np.array([[1.0, 1.0]])}, "|y| <= 1"),
    ("readkv-appendix-e13", {"signs": np.ones(6)}, "power of two"),
    ("readkv-appendix-e21-prefix", {"hidden": np.array([1.0])}, "h >= 2"),
    ("readkv-appendix-a3", {"runs": [(4, 4, 0, 201)]}, "W > W0"),
    ("readkv-appendix-a4", {"runs": [(8, 4, 4, 0, 5)]}, "W0 > R"),
]


@pytest.mark.parametrize(("name", "change", "words"), BROKEN, ids=[f"{n}: {w}" for n, _, w in BROKEN])
def test_broken_hypothesis_is_refused_by_name(name, change, words):
    module = find(name)
    with pytest.raises(HypothesisError, match="hypothesis") as refusal:
        module.check({**module.tight_instance(), **change})
    assert words in str(refusal.value)


@pytest.mark.parametrize("module", STATEMENTS, ids=lambda module: module.ABOUT.id)
def test_named_cases_are_admitted_and_hold(module):
    for name, instance in getattr(module, "cases", dict)().items():
        assert not module.check(instance).violated.any(), name


NAMED = {  # every case the papers leave to a convention, and a statement that names it
    "unpopulated-complement": "locks-lemma-1-i",
    "zero-residual": "readkv-proposition-12",
    "rank-at-least-the-page's": "locks-proposition-2",
    "two-pages-of-budget": "locks-definition-1",
    "k-is-2": "locks-theorem-1-ii",
    "one-token": "readkv-lemma-11",
    "ties": "locks-corollary-3",
    "budget-beyond-all": "readkv-proposition-8",
    "open-page": "locks-theorem-1-ii",
    "identical-keys": "locks-proposition-3-cumulant",
}


@pytest.mark.parametrize(("case", "name"), NAMED.items(), ids=list(NAMED))
def test_conventions_are_named_cases(case, name):
    assert case in find(name).cases()
