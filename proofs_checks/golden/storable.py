"""Which stages have an answer that a file can hold."""

from __future__ import annotations

from proofs_checks.judge.files.layout import in_files
from proofs_checks.judge.suite import cases_of

UNSETTLED = ("lazyeviction_scores",)
"""Stages whose source leaves the answer to parameters of ours (AMB-67): judged at these, but no file fixes them."""


def storable(stage: str) -> bool:
    """Whether some case of the stage has one right answer; a stage that draws at random is judged by trials alone.

    >>> storable("attention"), storable("turboquant_rotation"), storable("lazyeviction_scores")
    (True, False, False)
    """
    return stage not in UNSETTLED and any(in_files(case) for case in cases_of(stage))
