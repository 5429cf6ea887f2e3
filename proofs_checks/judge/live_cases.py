"""Single cases of a port, for a test framework: one process per port, kept until the test run ends."""

from __future__ import annotations

import atexit
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.classes import spelled
from proofs_checks.judge.judgement import Judgement
from proofs_checks.judge.outcome import Outcome, case_name, reproduction
from proofs_checks.judge.runner import PortStopped
from proofs_checks.judge.session import LiveSession, live_session
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.verify import misspelt, run_case
from proofs_checks.judge.waivers import Waivers, waived


@dataclass(frozen=True)
class PortCase:
    """One case of one port at one dtype; its text is the id as reports print it."""

    case: Case
    dtype: str
    session: LiveSession
    waivers: Waivers

    @property
    def id(self) -> str:
        """``stage/case``, and ``@dtype`` where the inputs are not float32."""
        return case_name(self.case, self.dtype)

    def __str__(self) -> str:
        return self.id

    def run(self) -> Outcome:
        """Make the call and judge it. Never raises for what the port does."""
        try:
            outcome = run_case(self.session, self.case, self.dtype)
        except PortStopped as stopped:
            outcome = Outcome(self.case, self.dtype, stopped.verdict, Judgement(), str(stopped))
        return waived(outcome, self.waivers)

    def explain(self, outcome: Outcome) -> str:
        """What went wrong, in the words of `kvproof verify`."""
        faults = [fault.message for fault in outcome.judgement.faults] or [outcome.message]
        suspect = spelled(outcome.suspect or self.case.suspect)
        repro = reproduction(self.case, self.dtype, self.session.spec)
        return "\n".join([f"{outcome.verdict} {self.id}  suspect {suspect}", *(f"  {f}" for f in faults), f"  {repro}"])


@cache
def shared_session(port: str, device: str | None, timeout: float) -> LiveSession:
    """The session of a port, started once per test run and ended with it. Raises PortError."""
    stack = ExitStack()
    session = stack.enter_context(live_session(port, device, timeout))
    atexit.register(stack.close)
    return session


def port_cases(
    port: str,
    profile: str = "default",
    stages: Sequence[str] | None = None,
    device: str | None = None,
    timeout: float = 20.0,
    waivers: Waivers | None = None,
) -> list[PortCase]:
    """Every case that `kvproof verify` would run on ``port``, in its order.

    Raises PortError for a port that cannot be used, ValueError for an unknown stage or a port without any of them.
    """
    unknown = [name for name in stages or () if name not in STAGES]
    if unknown:
        raise ValueError(f"stages: no stage {unknown[0]!r}; see kvproof list")
    session = shared_session(port, device, timeout)
    found = list(_cases(session, profile, stages, waivers or {}))
    if not found:
        near = "".join(f"; {line}" for line in misspelt(session.declared.functions))
        raise ValueError(
            f"{port} has none of {', '.join(stages) if stages else 'the stages that kvproof list names'}{near}"
        )
    return found


def _cases(session: LiveSession, profile: str, stages: Sequence[str] | None, waivers: Waivers) -> Iterator[PortCase]:
    for stage in STAGES:
        if stage in session.declared.functions and (stages is None or stage in stages):
            for case in session.declared.rules.cases_of(stage):
                for dtype in session.declared.dtypes if within_profile(case, profile) else ():
                    if dtype in case.dtypes:
                        yield PortCase(case, dtype, session, waivers)
