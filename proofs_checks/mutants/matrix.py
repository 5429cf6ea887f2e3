"""The kill matrix: every mutant judged, and whether the stage that was broken is the one named."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from proofs_checks.judge.backend import Backend
from proofs_checks.judge.case import Case, within_profile
from proofs_checks.judge.declared import Declared
from proofs_checks.judge.judging import Prepared
from proofs_checks.judge.report import BAD
from proofs_checks.judge.session import answered
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import diagnose, run_case
from proofs_checks.judge.worker import call_stage, describe
from proofs_checks.mutants.base import build_port, mutant_port
from proofs_checks.mutants.registry import Mutant, mutants


class LocalSession:
    """Calls a port that lives in this process: for mutants, which are ours and do not crash."""

    spec = "mutant"

    def __init__(self, port: SimpleNamespace) -> None:
        about = describe(port, None)  # type: ignore[arg-type]
        self.port, self.declared = port, Declared.read(about)
        self.backend = Backend("numpy", "cpu")
        self.answers: dict[str, Any] = {}

    def takes(self, case: Case) -> bool:
        """A port at hand is called with every case."""
        return True

    def renew(self) -> bool:
        """A port in this process keeps its state."""
        return False

    def call(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """One call, as the worker makes it."""
        sent = prepared.sent
        arrays = {k: v for k, v in sent.items() if isinstance(v, np.ndarray)}
        header = {
            "stage": prepared.stage.name,
            "plain": {k: v for k, v in sent.items() if k not in arrays},
            "dtypes": {},
            "optional": list(prepared.stage.optional),
            "results": list(prepared.stage.results),
            "delivery": prepared.case.delivery,
            "lists": prepared.stage.lists,
        }
        reply, results = call_stage(self.port, self.backend, header, arrays)  # type: ignore[arg-type]
        return answered(reply, results, prepared.stage.results)


@dataclass(frozen=True)
class Kill:
    """What became of one mutant: the first failing stage and case, and the class that was suspected."""

    mutant: Mutant
    stage: str | None
    case: str | None
    kind: str | None
    suspect: str | None

    @property
    def killed(self) -> bool:
        """Whether any case failed."""
        return self.stage is not None

    @property
    def named(self) -> bool:
        """Whether the stage that was broken is the one named."""
        return self.stage == self.mutant.stage


def judge_mutant(chosen: Mutant, profile: str = "quick") -> Kill:
    """Judge one mutant stage by stage in the table's order, as `kvproof verify` would, to the first failing stage."""
    session = LocalSession(mutant_port(chosen.id))
    order = list(STAGES)
    for stage in order[
        order.index(chosen.stage) :
    ]:  # no stage calls a later one: the earlier ones are the right port's
        cases = [c for c in cases_of(stage) if within_profile(c, profile) and "float32" in c.dtypes]
        outcomes = [run_case(session, case, "float32") for case in cases]
        failed = [o for o in outcomes if o.verdict in BAD]
        if failed:
            suspect = diagnose(outcomes) or failed[0].suspect or failed[0].case.suspect
            return Kill(chosen, stage, failed[0].case.id, failed[0].case.kind, suspect)
    return Kill(chosen, None, None, None, None)


def kill_matrix(profile: str = "quick", seen: Callable[[Kill], None] | None = None) -> list[Kill]:
    """Judge every mutant."""
    kills = []
    for chosen in mutants().values():
        kills.append(judge_mutant(chosen, profile))
        if seen:
            seen(kills[-1])
    return kills


def survivors(kills: Iterable[Kill]) -> list[Mutant]:
    """Mutants that no case killed."""
    return [kill.mutant for kill in kills if not kill.killed]


def right_port() -> SimpleNamespace:
    """The unmutated pipeline, which must pass everything."""
    return build_port({})
