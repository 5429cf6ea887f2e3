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
    "locks_lemma_2_log_mass_ours",
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
    "readkv_theorem_1",
    "readkv_theorem_1_any_depth",
    "readkv_theorem_1_converse",
    "readkv_theorem_1_separation",
    "readkv_equation_4",
    "readkv_theorem_2",
    "readkv_theorem_2_schedule",
    "readkv_theorem_2_constant",
    "readkv_theorem_2_converse",
    "readkv_theorem_2_separation",
    "readkv_theorem_3_allocation",
    "readkv_theorem_3",
    "readkv_proposition_4",
    "readkv_proposition_4_transcripts",
    "readkv_proposition_4_incomparable_ours",
    "readkv_proposition_5",
    "readkv_proposition_6",
    "readkv_lemma_7",
    "readkv_lemma_7_lower",
    "readkv_lemma_7_table",
    "readkv_appendix_d2",
    "readkv_appendix_e13",
    "readkv_appendix_e13_rounding",
    "readkv_proposition_8",
    "readkv_appendix_e21_prefix",
    "readkv_appendix_e21_cost",
    "readkv_proposition_9",
    "readkv_proposition_9_threshold",
    "readkv_proposition_10",
    "readkv_proposition_10_lower",
    "readkv_proposition_10_constant",
    "readkv_lemma_11_identity",
    "readkv_lemma_11",
    "readkv_lemma_11_softmax",
    "readkv_softmax_jacobian",
    "readkv_proposition_12",
    "readkv_corollary_13",
    "readkv_appendix_e33_keys",
    "readkv_appendix_e33_values",
    "readkv_appendix_a2",
    "readkv_appendix_a3",
    "readkv_appendix_a4",
    "readkv_appendix_f2_distortion_ours",
    "readkv_appendix_f2_qjl_ours",
    "readkv_appendix_f2_qjl_variance_ours",
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
        told = f"nearest: {', '.join(near)}" if near else "kvproof list --json has all ids"
        raise KeyError(f"unknown statement {name!r}; {told}")
    return by_id[name]
