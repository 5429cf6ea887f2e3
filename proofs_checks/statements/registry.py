"""Every statement, in the papers' order. Adding one is adding its file and its name here."""

from __future__ import annotations

import importlib
from typing import cast

from proofs_checks.statements.statement import StatementModule

NAMES = (
    "locks_lemma_1_i",
    "locks_lemma_1_i_identity",
    "locks_definition_1",
    "locks_lemma_1_ii",
    "locks_lemma_1_remark",
    "locks_lemma_1_remark_deterministic",
    "locks_lemma_2",
    "locks_lemma_2_blindness",
    "locks_proposition_1",
    "locks_proposition_1_separation",
    "locks_proposition_1_remark",
    "locks_corollary_1",
    "locks_corollary_1_unique_ours",
    "locks_proposition_2",
    "locks_proposition_2_second",
    "locks_proposition_2_exact",
    "locks_proposition_2_second_ours",
    "locks_proposition_2_spectral_ours",
    "locks_sandwich",
    "locks_corollary_2",
    "locks_corollary_3",
    "locks_theorem_1_i",
    "locks_theorem_1_ii",
    "locks_theorem_1_ii_single_head_ours",
    "locks_theorem_1_iii",
    "locks_equation_a1",
    "locks_equation_a2",
    "locks_proposition_3_identity",
    "locks_proposition_3_cumulant",
    "locks_proposition_3_cumulant_ours",
    "locks_proposition_3_rank",
    "locks_proposition_3_gaussian",
    "locks_lemma_3",
    "locks_lemma_3_weyl",
    "readkv_proposition_10",
)


def load(name: str) -> StatementModule:
    """Import one statement file of this package."""
    return cast(StatementModule, importlib.import_module(f"proofs_checks.statements.{name}"))


STATEMENTS: tuple[StatementModule, ...] = tuple(load(name) for name in NAMES)


def find(name: str) -> StatementModule:
    """The statement with id ``name``; raises KeyError that names the nearest ids.

    >>> find("locks-lemma-2").ABOUT.source
    'Locks Lemma 2, the bound'
    """
    import difflib

    by_id = {module.ABOUT.id: module for module in STATEMENTS}
    if name not in by_id:
        near = difflib.get_close_matches(name, by_id, n=3, cutoff=0.3)
        raise KeyError(f"unknown statement {name!r}; nearest: {', '.join(near) or 'none'}")
    return by_id[name]
