"""Dialects: by which rows, cases and documented departures a port is judged, depending on its ``DIALECT``.

A dialect is the paper's stage table with some rows and some families of cases replaced. Everything else of the judge
takes rows and cases from the port's dialect and knows no difference.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from proofs_checks.judge.case import Case
from proofs_checks.judge.cases.hygiene import hygiene_cases
from proofs_checks.judge.judgement import Departure
from proofs_checks.judge.locks_kv.cases import FAMILIES
from proofs_checks.judge.locks_kv.costs import departures
from proofs_checks.judge.locks_kv.rows import ROWS
from proofs_checks.judge.stages import STAGES, Stage
from proofs_checks.judge.suite import cases_of
from refimpl.locks.dialect import LOCKS_KV_0_1_4


@dataclass(frozen=True)
class Dialect:
    """One dialect; empty mappings are the paper."""

    name: str
    rows: Mapping[str, Stage] = field(default_factory=dict)
    """Stages whose reference, check or bound differs."""
    families: Mapping[str, Callable[[], list[Case]]] = field(default_factory=dict)
    """Stages whose cases differ."""
    departures: Callable[[], list[Departure]] = list
    """What every port of the dialect does differently from the paper, and what it costs."""

    def stage(self, name: str) -> Stage:
        """The row of one stage. Raises KeyError for an unknown one."""
        return self.rows.get(name, STAGES[name])

    def cases_of(self, name: str) -> tuple[Case, ...]:
        """The cases of one stage, hygiene last."""
        return self._own[name] if name in self._own else cases_of(name)

    @cached_property
    def _own(self) -> dict[str, tuple[Case, ...]]:
        made = {name: family() for name, family in self.families.items()}
        return {name: (*own, *hygiene_cases(own)) for name, own in made.items()}

    def find_case(self, case_id: str) -> Case | None:
        """The case ``stage/name``, None where there is none."""
        stage = case_id.partition("/")[0]
        return next((c for c in self.cases_of(stage) if c.id == case_id), None) if stage in STAGES else None


PAPER = "paper"
DIALECTS: dict[str, Dialect] = {
    dialect.name: dialect for dialect in (Dialect(PAPER), Dialect(LOCKS_KV_0_1_4.name, ROWS, FAMILIES, departures))
}
"""Every dialect by the name that a port declares; the paper first."""


def find_anywhere(case_id: str) -> tuple[Case, Dialect]:
    """A case and the first dialect that has it, the paper before others. Raises KeyError with the id.

    >>> find_anywhere("locks_page_shares/peak-without-recent")[1].name
    'locks-kv-0.1.4'
    """
    for dialect in DIALECTS.values():
        case = dialect.find_case(case_id)
        if case is not None:
            return case, dialect
    raise KeyError(case_id)
