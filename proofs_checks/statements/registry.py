"""Every statement, in the papers' order. Adding one is adding its file and its name here."""

from __future__ import annotations

from proofs_checks.statements import (
    locks_lemma_1_i,
    locks_lemma_2,
    locks_proposition_2,
    readkv_proposition_10,
)
from proofs_checks.statements.statement import StatementModule

STATEMENTS: tuple[StatementModule, ...] = (
    locks_lemma_1_i,
    locks_lemma_2,
    locks_proposition_2,
    readkv_proposition_10,
)


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
