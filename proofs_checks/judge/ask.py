"""What the judged port itself answers to another case: a codec is judged by the port's own tree, planes by its twin."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from proofs_checks.judge.case import Case
from proofs_checks.judge.judging import prepare
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import Session
from proofs_checks.judge.suite import find_case


def asker(session: Session) -> Callable[[str | Case], Mapping[str, Any] | None]:
    """A function from a case, or the id of one in the suite, to the port's results; None where it gives none.

    What a stage answers to a case of the suite is asked once. A port that stops here stops in its own stage's cases
    too, and is named there.
    """

    def ask(wanted: str | Case) -> Mapping[str, Any] | None:
        if isinstance(wanted, str):
            if wanted not in session.answers:
                session.answers[wanted] = _results(session, find_case(wanted))
            return session.answers[wanted]
        return _results(session, wanted)

    return ask


def _results(session: Session, case: Case) -> Mapping[str, Any] | None:
    if case.stage not in session.declared.functions:
        return None
    dtype = next((d for d in session.declared.dtypes if d in case.dtypes), "float32")
    try:
        reply = session.call(prepare(case, dtype), dtype)
    except PortStopped:
        return None
    return reply["results"] if reply["status"] == "ok" else None
