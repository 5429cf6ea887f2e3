"""ReadKV's tables: codec, readers and splits, decomposition, factorial restrictions (ReadKV App. D, F)."""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.readkv_codec import expected_distortion
from proofs_checks.microscope.table import Row, Shape, Table, keyed
from refimpl.readkv.tree import LEAF_DEPTH

PRINTED_SHARES = {"key interactions": "0.021 / 0.012", "value interactions": "0.646 / 0.726"}
PRINTED_WORSE = {1: "575/576, 1152/1152", 0: "573/576, 1149/1152"}
PATH = {
    "Equal K/V": (True, False, 0, False),
    "Per head": (True, True, 0, False),
    "Min. 1": (True, True, 1, False),
    "Paired": (True, True, 1, True),
}
"""Table 10's cumulative path."""
PRINTED_PATH = {
    2: {"Equal K/V": "+0.0729 / +0.0575", "Per head": "+0.0050 / +0.0043", "Min. 1": "+0.0012 / +0.0061",
        "Paired": "+0.0004 / +0.0014"},
    4: {"Equal K/V": "+0.0032 / +0.0034", "Per head": "+0.0002 / -0.0005", "Min. 1": "+0.0004 / +0.0002",
        "Paired": "-0.0003 / -0.0003"},
}  # fmt: skip


def codec_table(results: Results, shape: Shape) -> Table:
    """Moments of standardised scalars against N(0, 1), and the tree's distortion against its Gaussian curve."""
    table = Table(
        "readkv_codec", "Standardised scalars and prefix distortion", "ReadKV App. D.1, Lemma 7",
        "rotated keys and values, standardised by held-out calibration; printed: what N(0, 1) has",
    )  # fmt: skip
    for name in ("keys", "values"):
        found = {key[0]: value for key, value in keyed(results, "readkv codec", shape.capture, name)}
        if not found:
            continue
        m1, m2, m3, m4 = (found[f"moment {p}"].value for p in (1, 2, 3, 4))
        variance = m2 - m1**2
        third, fourth = m3 - 3 * m1 * m2 + 2 * m1**3, m4 - 4 * m1 * m3 + 6 * m1**2 * m2 - 3 * m1**4
        measured = {
            "mean": (m1, 0.0),
            "standard deviation": (np.sqrt(variance), 1.0),
            "skewness": (third / variance**1.5, 0.0),
            "excess kurtosis": (fourth / variance**2 - 3, 0.0),
            "largest CDF gap": (_cdf_gap(found["histogram"]), 0.0),
        }
        for depth in range(LEAF_DEPTH + 1):
            measured[f"distortion at depth {depth}"] = (found[f"depth {depth}"].value, expected_distortion(depth))
        table.rows += [{"scalars": name, "quantity": q, "ours": v, "printed": w} for q, (v, w) in measured.items()]
    return table


def _cdf_gap(histogram: object) -> float:
    """Kolmogorov distance to N(0, 1), at the bin edges."""
    counts = np.asarray(histogram.counts, dtype=np.float64)  # type: ignore[attr-defined]
    low, high = histogram.low, histogram.high  # type: ignore[attr-defined]
    edges = np.linspace(low, high, len(counts) + 1)[1:]
    return float(np.abs(np.cumsum(counts) / counts.sum() - ndtr(edges)).max())


def readers_table(results: Results, shape: Shape) -> Table:
    """Relative output error by reader and split, and how often the greedy reader beats uniform depths."""
    table = Table(
        "readkv_readers", "Output error by reader and split", "ReadKV Sec. 5, App. F.5",
        "rows are (step, layer, KV head), sibling query heads together; error relative to the exact output; the "
        "surrogate column is Proposition 8 on these rows and must be 1; the output error need not be",
    )  # fmt: skip
    for (split, reader), histogram in keyed(results, "readkv readers", shape.capture):
        row: Row = {"split": f"({split[0]}, {split[1]})", "reader": reader, "error p50": histogram.percentile(50)}
        row |= {"error p95": histogram.percentile(95), "rows": histogram.count}
        if reader == "greedy":
            wins = {key[0]: mean.value for key, mean in keyed(results, "readkv wins", shape.capture, split)}
            row |= {"beats uniform: surrogate": wins["surrogate"], "beats uniform: error": wins["output error"]}
        table.rows.append(row)
    return table


def decomposition_table(results: Results, shape: Shape) -> Table:
    """F.7: medians of what the separable objectives leave out, and two-depth restrictions."""
    table = Table(
        "readkv_decomposition", "Objectives against attention error", "ReadKV App. F.7, E.3",
        "greedy reader at (2, 2); medians over rows; printed: Qwen3B / Qwen7B at pooled R = 2",
    )  # fmt: skip
    for (name,), histogram in keyed(results, "readkv decomposition", shape.capture):
        table.rows.append(
            {"quantity": name, "median": histogram.percentile(50), "printed": PRINTED_SHARES.get(name, "–")}
        )
    for (lower,), mean in keyed(results, "readkv two depths", shape.capture):
        label = f"rows that depths {{{lower}, 8}} worsen"
        table.rows.append({"quantity": label, "median": mean.value, "printed": PRINTED_WORSE[lower]})
    return table


def factorial_table(results: Results, shape: Shape) -> Table:
    """F.8: the cumulative path of Table 10, and all 16 combinations, in relative output error."""
    table = Table(
        "readkv_factorial", "Reader restrictions", "ReadKV App. F.8, Table 10",
        "change of mean relative output error along the path; the paper prints changes of NLL (Qwen3B / Qwen7B), which "
        "an attention capture cannot give",
    )  # fmt: skip
    for rate in (2, 4):
        found = {key[0]: mean.value for key, mean in keyed(results, "readkv factorial", shape.capture, rate)}
        if not found:
            continue
        before = found[False, False, 0, False]
        table.rows.append({"R": rate, "restriction": "none (flexible)", "error": before})
        for label, switches in PATH.items():
            row: Row = {"R": rate, "restriction": label, "error": found[switches], "change": found[switches] - before}
            table.rows.append(row | {"printed NLL change": PRINTED_PATH[rate][label]})
            before = found[switches]
        for switches, error in found.items():
            names = zip(("equal K/V", "per head", "min. 1", "paired"), switches, strict=True)
            label = ", ".join(name for name, on in names if on) or "none"
            table.rows.append({"R": rate, "restriction": f"combination: {label}", "error": error})
    return table
