"""Plots of Locks Fig. 1a to 1c and Fig. 5. matplotlib is imported only here, and only when a plot is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.errors import DECADES
from proofs_checks.microscope.table import Table, keyed


def _figure(width: float = 5.0) -> tuple[Any, Any]:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 3.6))
    return figure, figure.add_subplot()


def share_plot(results: Results, capture: str) -> Any:
    """Fig. 1a: median reconstructed page share against the exact share, in tenths of a decade, with the diagonal."""
    figure, axes = _figure()
    edges = np.arange(10 * (DECADES[1] - DECADES[0])) / 10 + DECADES[0]
    for (name,), shares in keyed(results, "share map", capture):
        total = shares.counts.sum(axis=1)
        seen = total >= 20
        rows = shares.counts[seen]
        middle = np.array([np.searchsorted(np.cumsum(row), row.sum() / 2) for row in rows], dtype=np.int64)
        axes.plot(10 ** edges[seen], 10 ** edges[middle], label=name)
    axes.plot([1e-12, 1], [1e-12, 1], "k:", linewidth=0.8)
    axes.set(xscale="log", yscale="log", xlabel="exact page share", ylabel="reconstructed page share (median)")
    axes.legend(fontsize=7)
    return figure


def retention_plot(fidelity: Table) -> Any:
    """Fig. 1b: carrier retention against the budget, one line per scorer."""
    figure, axes = _figure()
    for scorer in dict.fromkeys(row["scorer"] for row in fidelity.rows):
        rows = [row for row in fidelity.rows if row["scorer"] == scorer and row.get("needle") is not None]
        axes.plot([float(r["budget"].rstrip("%")) for r in rows], [100 * r["needle"] for r in rows], "o-", label=scorer)
    axes.set(xscale="log", xlabel="budget (% of pages)", ylabel="carrier pages kept (%)", ylim=(0, 104))
    axes.legend(fontsize=7)
    return figure


def ladder_plot(energy: Table, errors: Table, registry: Table) -> Any:
    """Fig. 1c: the chain for one basis per scope at matched bytes: lost energy, median log-mass error, lost recall."""
    figure, axes = _figure(6.0)
    rank = sorted({row["rank"] for row in energy.rows if row["scope"] == "sequence"})[3]
    names = {"page": "Locks r8 unquantised"}
    names |= {s: f"{s} basis r{rank} (reconstruction)" for s in ("sequence", "head-0", "global")}
    error = {row["summary"]: row["p50"] for row in errors.rows if row["error"] == "score"}
    recall = {row["representation"]: row["recall share_average"] for row in registry.rows}
    lost = {row["scope"]: 1 - row["energy"] for row in energy.rows
            if row["form"] == "projected" and row["rank"] == (8 if row["scope"] == "page" else rank)}  # fmt: skip
    shown = [scope for scope, name in names.items() if name in error and name in recall]
    place = np.arange(len(shown))
    links = {
        "energy lost": [lost[s] for s in shown],
        "log-mass error p50 (nats)": [error[names[s]] for s in shown],
        "recall lost": [1 - recall[names[s]] for s in shown],
    }
    for i, (label, values) in enumerate(links.items()):
        axes.barh(place + 0.26 * (i - 1), values, 0.24, label=label)
    axes.set(yticks=place, yticklabels=shown, xlabel="0 is perfect")
    axes.legend(fontsize=7)
    return figure


def grid_plot(grid: Table) -> Any:
    """Fig. 5: recall against rank, one line per basis precision and page size."""
    figure, axes = _figure(6.0)
    marks = {16: "o-", 32: "s--", 64: "^:"}
    for page_size in dict.fromkeys(row["page size"] for row in grid.rows):
        rows = [row for row in grid.rows if row["page size"] == page_size and row["rank"].startswith("r=")]
        for colour, bits in enumerate(("fp", "i8", "i4", "i2")):
            ranks = [int(row["rank"][2:]) for row in rows]
            axes.plot(ranks, [row[bits] for row in rows], marks[page_size], color=f"C{colour}", markersize=3,
                      label=f"{bits}, B={page_size}", linewidth=1)  # fmt: skip
    axes.set(xscale="log", xlabel="rank", ylabel="recall", ylim=(0, 1.03))
    axes.legend(fontsize=6, ncol=3)
    return figure


def all_plots(results: Results, report: list[tuple[str, list[Table]]]) -> list[tuple[str, Any]]:
    """Every plot that the measured tables allow."""
    plots = []
    for capture, tables in report:
        by_id = {table.id: table for table in tables}
        if any(True for _ in keyed(results, "share map", capture)):
            plots.append((f"{capture}: exact and reconstructed page shares (Fig. 1a)", share_plot(results, capture)))
        if "fidelity" in by_id and any(row.get("needle") is not None for row in by_id["fidelity"].rows):
            plots.append((f"{capture}: carrier retention (Fig. 1b)", retention_plot(by_id["fidelity"])))
        if {"energy", "errors", "matched_bytes"} <= by_id.keys():
            ladder = ladder_plot(by_id["energy"], by_id["errors"], by_id["matched_bytes"])
            plots.append((f"{capture}: the error ladder (Fig. 1c)", ladder))
        if "grid" in by_id:
            plots.append((f"{capture}: rank, precision and page size (Fig. 5)", grid_plot(by_id["grid"])))
    return plots
