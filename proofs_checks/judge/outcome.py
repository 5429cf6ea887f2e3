"""What one case came to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from proofs_checks.judge.case import Case
from proofs_checks.judge.judgement import Judgement


@dataclass(frozen=True)
class Outcome:
    """What one case came to: a verdict of its own, and what there is to say.

    ``verdict`` is one of the stage verdicts, or WAIVED: it failed as `kvproof-expected.toml` says.
    """

    case: Case
    dtype: str
    verdict: str
    judgement: Judgement
    message: str = ""
    suspect: str | None = None
    seconds: float = 0.0

    @property
    def name(self) -> str:
        """The id as reports print it."""
        return case_name(self.case, self.dtype)

    @property
    def text(self) -> str:
        """The sentence on what went wrong."""
        return self.judgement.faults[0].message if self.judgement.faults else self.message


def case_name(case: Case, dtype: str) -> str:
    """``stage/case``, and ``@dtype`` where the inputs are not float32."""
    return case.id if dtype == "float32" else f"{case.id}@{dtype}"


def reproduction(case: Case, dtype: str, port: str) -> str:
    """The command that makes this one call again."""
    line = f"kvproof repro {case.id} --port {shlex.quote(port)}"
    return line if dtype == "float32" else f"{line} --dtype {dtype}"
