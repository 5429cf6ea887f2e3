"""What a verdict is made of, and its JSON form (DESIGN: schema 1)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from proofs_checks.judge.judgement import Departure
from proofs_checks.judge.pictures import Picture

SCHEMA = 1
BAD = ("FAIL", "ERROR", "TIMEOUT")
NOTES = 4
"""Notes shown per stage."""


@dataclass(frozen=True)
class Failure:
    """One failing case of one stage."""

    case: str
    kind: str
    index: tuple[int, ...] | None
    message: str
    suspect: str
    repro: str
    pictures: tuple[Picture, ...] = ()
    """What the HTML report draws; no part of the JSON."""

    def as_json(self) -> dict[str, Any]:
        """The failure's JSON object."""
        index = None if self.index is None else list(self.index)
        return {
            "case": self.case,
            "kind": self.kind,
            "index": index,
            "message": self.message,
            "suspect": self.suspect,
            "repro": self.repro,
        }


@dataclass(frozen=True)
class Record:
    """One case that was run, for reports that list them all; no part of the JSON."""

    case: str
    kind: str
    verdict: str
    ratio: float | None
    message: str
    seconds: float


@dataclass
class StageReport:
    """The verdict on one stage."""

    stage: str
    verdict: str
    worst_ratio: float | None = None
    cases: int = 0
    failures: list[Failure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    records: list[Record] = field(default_factory=list)

    @property
    def worst_case(self) -> str:
        """The case in which the largest ratio was seen, without the stage's name; empty where none is above 0."""
        rated = [record for record in self.records if record.ratio]
        return max(rated, key=lambda record: record.ratio or 0.0).case.partition("/")[2] if rated else ""

    @property
    def shown_notes(self) -> list[str]:
        """The notes that a reader is shown: a port that leaves out a dtype leaves out many cases."""
        more = len(self.notes) - NOTES
        return self.notes if more <= 1 else [*self.notes[:NOTES], f"{self.stage}: and {more} more such cases"]

    def as_json(self) -> dict[str, Any]:
        """The stage's JSON object."""
        ratio = self.worst_ratio
        return {
            "stage": self.stage,
            "verdict": self.verdict,
            "worst_ratio": None if ratio is None else (ratio if ratio < float("inf") else 1e308),
            "cases": self.cases,
            "failures": [failure.as_json() for failure in self.failures],
        }


@dataclass
class Report:
    """The verdict on a port."""

    port: str
    dialect: str = "paper"
    verdict: str = "PASS"
    stages: list[StageReport] = field(default_factory=list)
    departures: list[Departure] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def first_failing_stage(self) -> str | None:
        """The first stage of the table that breaks its own bound; None at verdict ERROR."""
        if self.verdict == "ERROR":
            return None
        return next((s.stage for s in self.stages if s.verdict in BAD), None)

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 3 the port could not be used."""
        return {"PASS": 0, "FAIL": 1}.get(self.verdict, 3)

    def as_json(self) -> dict[str, Any]:
        """The report's JSON object."""
        return {
            "schema": SCHEMA,
            "port": self.port,
            "dialect": self.dialect,
            "verdict": self.verdict,
            "first_failing_stage": self.first_failing_stage,
            "stages": [stage.as_json() for stage in self.stages],
            "departures": [{"id": d.id, "what": d.what, "cost": d.cost} for d in self.departures],
            "notes": self.notes,
        }
