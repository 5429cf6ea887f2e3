"""Which stages have an answer that a file can hold."""

from __future__ import annotations

from proofs_checks.judge.files.layout import in_files
from proofs_checks.judge.suite import cases_of


def storable(stage: str) -> bool:
    """Whether some case of the stage has one right answer; a stage that draws at random is judged by trials alone.

    >>> storable("attention"), storable("turboquant_rotation")
    (True, False)
    """
    return any(in_files(case) for case in cases_of(stage))
