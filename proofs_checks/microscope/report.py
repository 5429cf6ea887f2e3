"""Reports: the same tables on a terminal, as JSON and as one HTML page with plots."""

from __future__ import annotations

import html
import io
from typing import Any

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table as RichTable

from proofs_checks.microscope.table import Table

Report = list[tuple[str, list[Table]]]
"""Per capture set its name and tables."""

WIDEST = 1000
"""Columns that a table may take; the widest has about 190."""


def cell(value: Any) -> str:
    """One entry as text: four digits, "–" for nothing.

    >>> cell(0.45251), cell(None), cell(np.float64(448.0)), cell(12)
    ('0.4525', '–', '448', '12')
    """
    if value is None:
        return "–"
    if isinstance(value, float | np.floating):
        number = float(value)
        if number.is_integer():
            return f"{number:.0f}"
        return f"{number:.3g}" if abs(number) < 1e-3 else f"{number:.4f}" if abs(number) < 10 else f"{number:.2f}"
    return str(value)


def columns(table: Table) -> list[str]:
    """Column names in order of first appearance, those from the paper last."""
    names = list(dict.fromkeys(name for row in table.rows for name in row))
    return [n for n in names if not n.startswith("printed")] + [n for n in names if n.startswith("printed")]


def print_tables(report: Report, console: Console) -> None:
    """Print every table."""
    for capture, tables in report:
        for table in tables:
            names = columns(table)
            title = f"{capture}: {table.title} ({table.source})"
            shown = RichTable(title=title, caption=table.protocol, box=SIMPLE_HEAD, pad_edge=False)
            for name in names:
                justify: JustifyMethod = "left" if isinstance(table.rows[0].get(name), str) else "right"
                shown.add_column(name, justify=justify, no_wrap=True)
            for row in table.rows:
                shown.add_row(*(cell(row.get(name)) for name in names))
            print_whole(shown, console)


def print_whole(table: RichTable, console: Console) -> None:
    """Print a table at its own width: a narrow terminal may wrap its lines, but no digit is cut off."""
    width = console.width
    console.width = max(width, console.measure(table, options=console.options.update(max_width=WIDEST)).maximum)
    console.print(table)
    console.width = width


def as_json(report: Report, about: dict[str, Any]) -> dict[str, Any]:
    """The report as plain data: schema 1, an array of tables per capture set, every row an object."""
    sets = [
        {
            "capture": capture,
            "tables": [
                {"id": t.id, "title": t.title, "source": t.source, "protocol": t.protocol,
                 "rows": [{k: plain(v) for k, v in row.items()} for row in t.rows]}
                for t in tables
            ],
        }
        for capture, tables in report
    ]  # fmt: skip
    return {"schema": 1, "about": about, "sets": sets}


def plain(value: Any) -> Any:
    """A NumPy scalar as Python's own; infinities and NaN as None, which JSON has no words for."""
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not np.isfinite(value) else value


def as_html(report: Report, about: dict[str, Any], plots: list[tuple[str, Any]]) -> str:
    """One page: what the capture is, the plots (matplotlib figures, embedded as SVG), and all tables."""
    parts = ["<!doctype html><meta charset='utf-8'><title>kvproof microscope</title>"]
    parts.append(
        "<style>body{font:14px sans-serif;margin:2em;max-width:80em}table{border-collapse:collapse;margin:1em 0}"
        "td,th{border:1px solid #bbb;padding:2px 6px;text-align:right}caption{text-align:left;font-weight:bold}</style>"
    )
    parts.append("<h1>kvproof microscope</h1><ul>")
    parts += [f"<li>{html.escape(str(k))}: {html.escape(str(v))}</li>" for k, v in about.items()]
    parts.append("</ul>")
    for title, figure in plots:
        parts.append(f"<h2>{html.escape(title)}</h2>{_svg(figure)}")
    for capture, tables in report:
        parts.append(f"<h2>{html.escape(capture)}</h2>")
        for table in tables:
            names = columns(table)
            head = "".join(f"<th>{html.escape(n)}</th>" for n in names)
            body = "".join(
                "<tr>" + "".join(f"<td>{html.escape(cell(row.get(n)))}</td>" for n in names) + "</tr>"
                for row in table.rows
            )
            caption = f"<caption>{html.escape(table.title)} ({html.escape(table.source)})</caption>"
            parts.append(f"<table>{caption}<tr>{head}</tr>{body}</table><p>{html.escape(table.protocol)}</p>")
    return "".join(parts)


def _svg(figure: Any) -> str:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", bbox_inches="tight")
    text = buffer.getvalue()
    return text[text.index("<svg") :]
