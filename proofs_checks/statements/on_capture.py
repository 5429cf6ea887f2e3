"""Apply the statements that make sense to a capture, and say where a bound holds but says nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from proofs_checks.statements.capture_steps import CaptureStep
from proofs_checks.statements.prove import Row, decided_by_balls
from proofs_checks.statements.search import pick
from proofs_checks.statements.statement import HypothesisError, Kind, StatementModule, VacuousError


class Tally:
    """What one statement said about all steps so far."""

    def __init__(self, module: StatementModule) -> None:
        self.module = module
        self.instances, self.vacuous, self.violations = 0, 0, 0
        self.tightest: float | None = None
        self.refused: list[str] = []
        self.notes: dict[str, list[Any]] = {}

    def look(self, step: CaptureStep) -> None:
        """Check one step of the capture."""
        try:
            instance = self.module.on_capture(step)  # type: ignore[attr-defined]
            slack = self.module.check(instance)
        except VacuousError as error:
            self.instances, self.vacuous = self.instances + 1, self.vacuous + 1
            self.refused.append(f"{step.label}: {error}")
            return
        except HypothesisError as error:
            self.refused.append(f"{step.label}: {error}")
            return
        self.instances += len(slack.left)
        if hasattr(self.module, "vacuous"):
            self.vacuous += int(np.sum(self.module.vacuous(instance)))
        for index in np.flatnonzero(slack.violated):
            if decided_by_balls(self.module, pick(instance, int(index))) is not False:
                self.violations += 1
        if slack.tightest is not None:
            self.tightest = slack.tightest if self.tightest is None else max(slack.tightest, self.tightest)
        for name, values in getattr(self.module, "describe", lambda _: {})(instance).items():
            self.notes.setdefault(name, []).append(np.ravel(values))

    def row(self) -> Row:
        """The statement's line."""
        about = self.module.ABOUT
        if self.violations:
            verdict, reason = "REFUTED", f"{self.violations} instances violate the statement beyond rounding"
        elif self.instances == 0:
            verdict, reason = "NOT_APPLICABLE", (self.refused or ["no instance"])[0]
        elif self.vacuous == self.instances:
            verdict, reason = "VACUOUS", "the bound holds, but says no more than what holds without it"
        else:
            verdict, reason = "HOLDS", f"vacuous in {self.vacuous} of {self.instances}" if self.vacuous else ""
        found = "; ".join(f"{name} {spread(values)}" for name, values in self.notes.items())
        reason = "; ".join(part for part in (reason, found) if part)
        return Row(about.id, about.source, verdict, self.instances, self.tightest, reason)


def spread(values: Sequence[Any]) -> str:
    """Smallest, median and largest of a quantity over all instances.

    >>> spread([np.array([1.0, 2.0]), np.array([10.0])])
    '1 / 2 / 10'
    """
    flat = np.concatenate(values)
    return " / ".join(f"{x:.3g}" for x in (flat.min(), np.median(flat), flat.max()))


def prove_on_capture(modules: Iterable[StatementModule], steps: Sequence[CaptureStep]) -> Iterable[Row]:
    """One row per statement: HOLDS, REFUTED, VACUOUS, or NOT_APPLICABLE with the reason.

    Quantities in the reason are min / median / max over the instances.
    """
    for module in modules:
        if not hasattr(module, "on_capture"):
            about = module.ABOUT
            why = "about a constant or a finite family, not about a cache"
            if about.kind in (Kind.IDENTITY, Kind.IMPOSSIBILITY):
                why = "an identity or impossibility that does not depend on the data"
            yield Row(about.id, about.source, "NOT_APPLICABLE", 0, None, why)
            continue
        tally = Tally(module)
        for step in steps:
            tally.look(step)
        yield tally.row()
