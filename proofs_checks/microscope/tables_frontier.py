"""Tables of mass, recall and bytes: frontier, traffic, matched bytes, rotation and Fig. 5 (Locks App. D)."""

from __future__ import annotations

import re

import numpy as np

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.table import Row, Shape, Table, keyed, pair, printed
from refimpl.locks.accounting import page_kv_bytes, payload_bytes


def family(name: str) -> str:
    """The printed tables' family of a selector's name.

    >>> family("sequence basis r4 (reconstruction)"), family("Locks r8i4")
    ('sequence basis', 'Locks r8i4')
    """
    return re.sub(r"(basis) r\d+ \(reconstruction\)", r"\1", name)


def frontier_curves(results: Results, shape: Shape, rule: str) -> dict[str, dict[int, float]]:
    """Mass by selector and budget under a rule, budgets ascending."""
    curves: dict[str, dict[int, float]] = {}
    for (budget, page_size, name, measure), mean in keyed(results, "frontier", shape.capture, rule):
        if measure == "mass" and page_size == shape.page_size:
            curves.setdefault(name, {})[budget] = mean.value
    return curves


def frontier_table(results: Results, shape: Shape) -> Table:
    """Table D.13: attention mass preserved against the budget."""
    table = Table(
        "frontier", "Attention mass against budget", "Locks Table D.13",
        f"protocol D.12 (AMB-27), both combine rules; context {shape.tokens} tokens; printed rows are Qwen3-4B at 32K",
    )  # fmt: skip
    for rule in ("share_average", "group_lse"):
        for name, curve in frontier_curves(results, shape, rule).items():
            table.rows.append({"summary": name, "rule": rule} | {f"b={b}": m for b, m in curve.items()})
    budgets = printed()["frontier budgets"]
    for name, values in printed()["frontier (Qwen3-4B)"].items():
        table.rows.append(
            {"summary": name, "rule": "printed"} | {f"b={b}": m for b, m in zip(budgets, values, strict=True)}
        )
    return table


def tokens_for_mass(curve: dict[int, float], target: float) -> float | None:
    """Budget at which a curve reaches a mass, linear in log2 of the budget (AMB-31); None where it does not.

    A target below the first point gives the first budget: nothing smaller was measured.

    >>> tokens_for_mass({64: 0.5, 256: 0.9}, 0.7), tokens_for_mass({64: 0.5}, 0.7)
    (128.0, None)
    """
    points = sorted(curve.items())
    reached = [i for i, (_, mass) in enumerate(points) if mass >= target]
    if not reached:
        return None
    if reached[0] == 0:
        return float(points[0][0])
    (b0, m0), (b1, m1) = points[reached[0] - 1], points[reached[0]]
    return float(2 ** (np.log2(b0) + (target - m0) / (m1 - m0) * np.log2(b1 / b0)))


def traffic_table(results: Results, shape: Shape) -> Table:
    """Table D.14: bytes touched per step, in percent of a dense read, to preserve a target mass."""
    table = Table(
        "traffic", "Bytes touched per step for a target mass (% of a dense read)", "Locks Table D.14",
        "summary scan plus the selected pages' bf16 keys and values; share_average masses, linear in log2(b) (AMB-31)",
    )  # fmt: skip
    dense = page_kv_bytes(shape.page_size, shape.head_size)
    for name, curve in frontier_curves(results, shape, "share_average").items():
        size = results.get(("bytes", shape.capture, shape.page_size, name))
        if size is None:
            continue
        row: Row = {"summary": name, "B/page": size.value}
        for target in printed()["traffic targets"]:
            tokens = tokens_for_mass(curve, target)
            row[f"{target:.2f}"] = None if tokens is None else 100 * (size.value / dense + tokens / shape.tokens)
        table.rows.append(row)
    for name, values in printed()["traffic (Qwen3-4B)"].items():
        targets = zip(printed()["traffic targets"], values, strict=True)
        table.rows.append({"summary": f"{name} (printed, Qwen3-4B)"} | {f"{t:.2f}": v for t, v in targets})
    return table


def _registry_key(name: str, head_size: int) -> str | None:
    """The printed row of a registry selector: ranks of shared scopes at equal r/d.

    >>> _registry_key("global basis r4 (projected)", 64), _registry_key("Locks r8 unquantised", 64)
    ('global 8', 'page 8')
    """
    shared = re.fullmatch(r"(global|head-0|sequence) basis r(\d+) \(\w+\)", name)
    if shared:
        return f"{'global' if shared[1] == 'head-0' else shared[1]} {int(shared[2]) * 128 // head_size}"
    page = re.fullmatch(r"Locks r(\d+) unquantised", name)
    return f"page {page[1]}" if page else None


def registry_table(results: Results, shape: Shape) -> Table:
    """Tables D.12 and D.15: mass and recall of every scope, rank and codebook at one budget, with bytes per page."""
    table = Table(
        "matched_bytes", "Scope, rank and bytes at one budget", "Locks Tables D.11, D.12, D.15",
        f"protocol D.12 at {shape.operating_budget} tokens per KV head (context / 32 unless set); "
        "bases unquantised, the bytes of page scope are those of its int4 basis",
    )  # fmt: skip
    rows: dict[str, Row] = {}
    for (rule, _, page_size, name, measure), mean in keyed(results, "registry", shape.capture):
        key = _registry_key(name, shape.head_size)
        entry = printed()["registry"].get(key) if key else printed()["codebook"].get(name.removeprefix("codebook-"))
        if name not in rows:
            size = results[("bytes", shape.capture, page_size, name)].value
            if key and key.startswith("page"):
                size = payload_bytes(int(key.split()[1]), 4, page_size, shape.head_size)
            printed_bytes = printed()["bytes"].get(key or name.replace("codebook-", "codebook "))
            rows[name] = {"representation": name, "B/page": size,
                          "% KV": 100 * size / page_kv_bytes(page_size, shape.head_size),
                          "printed B (d=128)": pair(printed_bytes)}  # fmt: skip
        rows[name][f"{measure} {rule}"] = mean.value
        rows[name][f"printed {measure}"] = pair(entry and entry[measure])
    table.rows = list(rows.values())
    return table


def rotation_table(results: Results, shape: Shape) -> Table:
    """Table D.16: scopes fitted before and after rotation."""
    table = Table(
        "rotation", "Rotation control", "Locks Table D.16",
        f"protocol D.12, share_average, {shape.operating_budget} tokens; reconstruction form; exact inverse rotation; "
        "global is KV head 0's basis; energy is of the variance in the regime of the fit",
    )  # fmt: skip
    for (name,), values in keyed(results, "rotation energy", shape.capture):
        key = ("rotation", shape.capture, "share_average", shape.operating_budget, shape.page_size, name)
        scope, _, regime, _ = name.split()
        entry = printed()["rotation"].get(f"{scope} {regime}")
        row: Row = {"regime": regime, "scope": name.rsplit(" ", 2)[0], "energy": np.median(values.array)}
        for measure in ("mass", "recall"):
            row[measure] = results[(*key, measure)].value if (*key, measure) in results else None
        table.rows.append(row | {f"printed {m}": pair(entry and entry[m]) for m in ("energy", "mass", "recall")})
    return table


def grid_table(results: Results, shape: Shape) -> Table:
    """Fig. 5: recall by rank, basis precision and page size."""
    table = Table(
        "grid", "Rank, basis precision and page size", "Locks Fig. 5",
        f"recall against the exact ranking at {shape.operating_budget} attended tokens per KV head, protocol D.12, "
        "share_average; coefficients and centroid int8 throughout; the paper prints a figure, no numbers",
    )  # fmt: skip
    rows: dict[tuple[int, str], Row] = {}
    for (rule, _, page_size, name, measure), mean in keyed(results, "grid", shape.capture):
        found = re.fullmatch(r"Locks r(\d+)(fp|i8|i4|i2)", name)
        if rule == "share_average" and measure == "recall":
            label = f"r={found[1]}" if found else name
            row = rows.setdefault((page_size, label), {"page size": page_size, "rank": label})
            row[found[2] if found else "int8"] = mean.value
    table.rows = [rows[key] for key in rows]
    return table
