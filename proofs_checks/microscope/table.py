"""A table of the microscope: rows beside what the paper prints for its own models."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from proofs_checks.microscope.accumulate import Results

Row = dict[str, Any]


@dataclass
class Table:
    """One table: where it stands in the paper, under which protocol it was computed, and its rows."""

    id: str
    title: str
    source: str
    protocol: str
    rows: list[Row] = field(default_factory=list)

    @property
    def measured(self) -> bool:
        """Whether any row is ours: rows that only repeat the paper say so in their label."""
        return any("printed" not in str(row.get("rule", row.get("summary"))) for row in self.rows)


@dataclass(frozen=True)
class Shape:
    """What the tables need to know of a capture set."""

    capture: str
    head_size: int
    page_size: int
    tokens: int
    operating_budget: int


@cache
def printed() -> dict[str, Any]:
    """The paper's numbers (data file ``printed.json``)."""
    content = files("proofs_checks.microscope").joinpath("printed.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(content)
    return found


def pair(values: Any) -> str:
    """A printed pair as text: Llama-3.1-8B / Qwen3-4B; "–" where the paper has none.

    >>> pair([0.5, None]), pair(None)
    ('0.5 / –', '–')
    """
    if values is None:
        return "–"
    return " / ".join("–" if v is None else f"{v:g}" for v in values) if isinstance(values, list) else f"{values:g}"


def keyed(results: Results, *prefix: Any) -> Iterable[tuple[tuple[Any, ...], Any]]:
    """Entries whose key starts with ``prefix``, with the rest of the key, in the order in which they came."""
    n = len(prefix)
    return ((key[n:], value) for key, value in results.items() if key[:n] == prefix)
