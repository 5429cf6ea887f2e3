"""Which section, table, figure and statement of the papers is built where (coverage.toml, docs/coverage.md)."""

from __future__ import annotations

import tomllib
from collections import Counter
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from proofs_checks.pages import write_page

PAPERS = {"locks": "Locks", "readkv": "ReadKV"}
KINDS = {
    "section": "Sections",
    "table": "Tables",
    "figure": "Figures",
    "statement": "Statements and numbered equations",
    "algorithm": "Algorithms",
}
STATUSES = ("built", "planned", "not possible")
PARTS = (
    "the first verdict on a port",
    "the ReadKV reference",
    "the Locks reference and the microscope",
    "the theorems as checks",
    "the judge: bounds, sets, mutants",
    "the Locks kernels",
    "the ReadKV kernels",
    "the other systems and the public ports",
    "golden files, documentation, release",
)
"""The parts of the plan: part 1 is the first of these."""
PART_LABELS = {f"part {number}" for number in range(1, len(PARTS) + 1)}
FIELDS = {"title", "status", "where", "note"}


class CoverageError(ValueError):
    """A row of coverage.toml is unusable; the message names the row, what was expected and what came."""


@dataclass(frozen=True)
class Entry:
    """One row: a numbered thing of a paper and where it stands in the repository."""

    paper: str
    """"locks" or "readkv"."""
    kind: str
    """A key of `KINDS`."""
    id: str
    """As the paper counts: "C.6", "Table D.11", "Theorem 1"."""
    title: str
    """What it holds, in our words."""
    status: str
    """One of `STATUSES`."""
    where: str
    """Paths (`*` allowed) separated by commas if built, parts of the plan if planned, the reason if not possible."""
    note: str = ""
    """Which half is meant, when one place cannot hold all of it."""

    def paths(self) -> tuple[str, ...]:
        """The repository paths of a built row, any ``:function`` removed; empty for the others.

        >>> Entry("locks", "section", "4", "Build", "built", "refimpl/locks/summary.py, refimpl/port.py:TIES").paths()
        ('refimpl/locks/summary.py', 'refimpl/port.py')
        >>> Entry("locks", "section", "E", "Kernel", "planned", "part 6").paths()
        ()
        """
        if self.status != "built":
            return ()
        return tuple(item.strip().split(":")[0] for item in self.where.split(","))


def load() -> list[Entry]:
    """Every row of coverage.toml, in the papers' order within each kind.

    Raises CoverageError for a row that lacks a field, has an unknown one, an unknown status, or an empty text.

    >>> [entry.where for entry in load() if (entry.paper, entry.id) == ("readkv", "Equation (2)")]
    ['refimpl/readkv/importance.py']
    """
    text = files("proofs_checks").joinpath("coverage.toml").read_text(encoding="utf-8")
    return parse(tomllib.loads(text))


def parse(tables: dict[str, Any]) -> list[Entry]:
    """The rows of ``{paper: {kind: {id: {"title", "status", "where", "note"}}}}``; raises as `load` does.

    >>> parse({"locks": {"figure": {"Figure 5": {"title": "Recall by rank", "status": "built", "where": ""}}}})
    Traceback (most recent call last):
    proofs_checks.coverage.CoverageError: locks figure "Figure 5": expected a text in `where`, got ''
    """
    return [
        read_row(paper, kind, row_id, row)
        for paper, kinds in tables.items()
        for kind, rows in kinds.items()
        for row_id, row in rows.items()
    ]


def read_row(paper: str, kind: str, row_id: str, row: dict[str, Any]) -> Entry:
    """One row as an `Entry`; raises CoverageError that names the row."""
    name = f'{paper} {kind} "{row_id}"'
    for what, value, allowed in (
        ("paper", paper, PAPERS),
        ("kind", kind, KINDS),
        ("status", row.get("status"), STATUSES),
    ):
        if value not in allowed:
            raise CoverageError(f"{name}: expected {what} to be one of {', '.join(allowed)}, got {value!r}")
    if unknown := set(row) - FIELDS:
        raise CoverageError(
            f"{name}: expected the fields {', '.join(sorted(FIELDS))}, got {', '.join(sorted(unknown))}"
        )
    for field in FIELDS & (set(row) | {"title", "where"}):
        value = row.get(field)
        if not isinstance(value, str) or not value.strip():
            raise CoverageError(f"{name}: expected a text in `{field}`, got {value!r}")
    if row["status"] == "planned" and not set(row["where"].split(", ")) <= PART_LABELS:
        raise CoverageError(f"{name}: expected `where` to name parts such as 'part 6', got {row['where']!r}")
    return Entry(paper, kind, row_id, **row)


def sections() -> list[dict[str, str]]:
    """Every row as ``{"paper", "section", "where"}``, the shape of ``kvproof list --json``.

    "section" holds the paper's own label whatever the kind ("3.1", "Table D.11", "Algorithm 1"); "where" is never
    empty: paths, the part of the plan, or "not possible: " and the reason.

    >>> [row for row in sections() if row["section"] == "Algorithm 1"][0]["paper"]
    'readkv'
    """
    return [
        {
            "paper": entry.paper,
            "section": entry.id,
            "where": f"not possible: {entry.where}" if entry.status == "not possible" else entry.where,
        }
        for entry in load()
    ]


def render_markdown() -> str:
    """The text of docs/coverage.md, generated from coverage.toml."""
    entries = load()
    parts = "; ".join(f"{number} {name}" for number, name in enumerate(PARTS, start=1))
    lines = [
        "# What of the two papers is built where",
        "",
        "<!-- Generated from proofs_checks/coverage.toml by `python -m proofs_checks.coverage`; edit that file. -->",
        "",
        "One row per numbered section, table, figure, statement, equation and algorithm of both papers. *built*: the",
        "path holds it; *planned*: the part of the plan that brings it; *not possible*: why it cannot be done here.",
        f"Parts of the plan: {parts}.",
        "",
        "| paper | rows | " + " | ".join(STATUSES) + " |",
        "|---|---|" + "---|" * len(STATUSES),
    ]
    for paper, title in PAPERS.items():
        count = Counter(entry.status for entry in entries if entry.paper == paper)
        lines.append(f"| {title} | {count.total()} | " + " | ".join(str(count[status]) for status in STATUSES) + " |")
    for paper, title in PAPERS.items():
        lines += ["", f"## {title}"]
        for kind, heading in KINDS.items():
            rows = [entry for entry in entries if (entry.paper, entry.kind) == (paper, kind)]
            if rows:
                lines += ["", f"### {heading}", "", "| id | what it holds | status | where | remark |"]
                lines += ["|---|---|---|---|---|", *map(render_row, rows)]
    return "\n".join(lines) + "\n"


def render_row(entry: Entry) -> str:
    """One line of the table: paths as code, everything else as text.

    >>> render_row(Entry("locks", "section", "4", "Build", "built", "refimpl/locks/summary.py"))
    '| 4 | Build | built | `refimpl/locks/summary.py` | |'
    """
    where = (
        ", ".join(f"`{item.strip()}`" for item in entry.where.split(",")) if entry.status == "built" else entry.where
    )
    return f"| {entry.id} | {entry.title} | {entry.status} | {where} | {entry.note + ' ' if entry.note else ''}|"


if __name__ == "__main__":
    raise SystemExit(write_page("coverage.md", render_markdown))
