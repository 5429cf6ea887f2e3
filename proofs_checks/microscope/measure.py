"""Measure: everything the microscope asks of a capture, head by head, on as many processes as wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from proofs_checks.microscope.accumulate import Mean, Results, Values
from proofs_checks.microscope.audit import measure_audit
from proofs_checks.microscope.combine_rules import measure_combine
from proofs_checks.microscope.departures import measure_departures
from proofs_checks.microscope.energy import measure_energy, shared_ranks
from proofs_checks.microscope.errors import measure_errors
from proofs_checks.microscope.fidelity import measure_fidelity
from proofs_checks.microscope.frontier import measure_frontier
from proofs_checks.microscope.readkv_codec import measure_codec
from proofs_checks.microscope.readkv_readers import measure_readers
from proofs_checks.microscope.rotation_control import rotation_rows
from proofs_checks.microscope.selectors import (
    CENTROID,
    EXACT,
    QUEST,
    PageContext,
    Selector,
    codebook_selector,
    locks_selector,
    moment_selector,
    shared_scopes,
    shared_selector,
)
from proofs_checks.microscope.source import CaptureSet, HeadTrace, LayerTrace, load_capture
from proofs_checks.microscope.steps import page_context

SECTIONS = (
    "energy",
    "fidelity",
    "errors",
    "frontier",
    "registry",
    "rotation",
    "combine",
    "departures",
    "grid",
    "audit",
    "readkv",
)
BUDGETS = (64, 128, 256, 512, 1024, 2048, 4096, 8192)
CODEBOOKS = (128, 256, 512, 1024)
PRECISIONS: tuple[int | str, ...] = ("fp", 8, 4, 2)
GRID_RANKS = {16: (1, 2, 4, 8, 12, 15), 32: (2, 4, 8, 16, 31), 64: (4, 8, 16, 32, 63)}
"""Fig. 5: ranks of every page size, up to B - 1."""


@dataclass(frozen=True)
class Plan:
    """What to measure. Everything in it is picklable, so that a plan can travel to other processes."""

    sections: tuple[str, ...] = SECTIONS
    sets: tuple[str, ...] = ()
    """Names of the capture's sets to measure; empty is all."""
    page_size: int = 16
    rank: int = 8
    budgets: tuple[int, ...] = BUDGETS
    operating_budget: int | None = None
    """Tokens per KV head of the single-budget tables; None takes 1/32 of the context, the paper's 1024 of 32K."""
    window_pages: int = 1
    readkv_rows: int = 2
    """Steps per layer of ReadKV's factorial and two-depth comparisons; its other tables use every step."""
    extra_selectors: tuple[str, ...] = ()
    """Own selectors as FILE.py:NAME, added to the frontier and to Table B.1's rows."""

    def operating(self, tokens: int) -> int:
        """The single-budget tables' budget for a context: a whole number of pages, at least 4."""
        wanted = tokens / 32 if self.operating_budget is None else self.operating_budget
        return self.page_size * max(4 if self.operating_budget is None else 1, round(wanted / self.page_size))


def frontier_selectors(context: PageContext) -> list[Selector]:
    """Table D.13's families at the paper's sizes; shared bases at rank d/16, its 8 of 128."""
    rank = shared_ranks(context.key_pages.shape[2])[0]
    rows = [locks_selector(r, 4) for r in (8, 4, 2)] + [QUEST, CENTROID, moment_selector(8), EXACT]
    rows += [shared_selector(scope, rank, "reconstruction") for scope in shared_scopes(context)]
    return rows + ([codebook_selector(128)] if len(context.keys) >= 512 else [])


def registry_selectors(context: PageContext) -> list[Selector]:
    """Tables D.12 and D.15: page scope at four ranks, shared scopes at five in both forms, codebooks of four sizes."""
    pages, page_size, d = context.key_pages.shape
    rows = [locks_selector(r, None) for r in (2, 4, 8, 15) if r <= min(page_size, d)]
    for scope in shared_scopes(context):
        rows += [shared_selector(scope, r, form) for r in shared_ranks(d) for form in ("reconstruction", "projected")]
    return rows + [codebook_selector(n) for n in CODEBOOKS if 4 * n <= pages * page_size]


def grid_selectors(page_size: int) -> list[Selector]:
    """Fig. 5: every rank and basis precision of a page size; coefficients and centroid are int8 throughout."""
    return [locks_selector(r, bits) for r in GRID_RANKS[page_size] for bits in PRECISIONS] + [CENTROID]


def measure_head(trace: HeadTrace, plan: Plan) -> Results:
    """All planned sections of one KV head."""
    results = Results()
    context = page_context(trace, plan.page_size)
    operating = [plan.operating(len(trace.keys))]
    own = [load_selector(name) for name in plan.extra_selectors]
    locks = [locks_selector(plan.rank, bits) for bits in (None, "fp", 4)]
    run = {
        "energy": lambda: measure_energy(trace.capture, context, results),
        "fidelity": lambda: measure_fidelity(
            trace, context, [EXACT, *locks[1:], CENTROID, QUEST, *own], results, window_pages=plan.window_pages
        ),
        "errors": lambda: measure_errors(trace, context, locks, results, share_map=True),
        "frontier": lambda: measure_frontier(
            trace, context, [*frontier_selectors(context), *own], plan.budgets, results
        ),
        "registry": lambda: measure_frontier(
            trace, context, registry_selectors(context), operating, results, "registry"
        ),
        "rotation": lambda: _measure_rotation(trace, context, operating, results),
        "combine": lambda: measure_combine(trace, context, plan.budgets, results),
        "departures": lambda: measure_departures(trace, context, plan.rank, operating[0], results),
        "grid": lambda: _measure_grid(trace, operating, results),
        "audit": lambda: measure_audit(trace, context, plan.rank, operating[0], results),
    }
    for section in plan.sections:
        if section in run:
            run[section]()
    _note_scope_errors(trace, context, plan, results)
    return results


def _measure_rotation(trace: HeadTrace, context: PageContext, budgets: Sequence[int], results: Results) -> None:
    rows = rotation_rows(shared_ranks(trace.head_size)[0], context)
    rows += [type(row)(row.scope, 8, row.before) for row in rows if row.scope == "page"]
    for row in rows:
        results.at(Values, "rotation energy", trace.capture, row.name).add(row.energy(context))
    measure_frontier(trace, context, [row.selector() for row in rows], budgets, results, "rotation")


def _measure_grid(trace: HeadTrace, budgets: Sequence[int], results: Results) -> None:
    for page_size in GRID_RANKS:
        context = page_context(trace, page_size)
        if page_size <= trace.head_size and len(context.key_pages) > 2:
            measure_frontier(trace, context, grid_selectors(page_size), budgets, results, "grid")


def _note_scope_errors(trace: HeadTrace, context: PageContext, plan: Plan, results: Results) -> None:
    """Fig. 1c's ladder: score errors of unquantised bases, one scope per row, at matched bytes (shared rank 3d/8)."""
    if "errors" in plan.sections:
        rank = shared_ranks(trace.head_size)[3]
        rows = [shared_selector(scope, rank, "reconstruction") for scope in shared_scopes(context)]
        measure_errors(trace, context, rows, results)
        results.at(Mean, "heads", trace.capture).add(1.0)


def load_selector(name: str) -> Selector:
    """A `Selector` of one's own from ``FILE.py:NAME``; raises ValueError where there is none."""
    path, _, attribute = name.rpartition(":")
    scope: dict[str, Any] = {"__name__": Path(path).stem, "__file__": path}
    exec(compile(Path(path).read_text(), path, "exec"), scope)
    found = scope.get(attribute)
    if not isinstance(found, Selector):
        raise ValueError(f"{name}: expected a microscope Selector, got {type(found).__name__}")
    return found


def measure_layer(trace: LayerTrace, plan: Plan) -> Results:
    """ReadKV's tables of one layer: its budgets are pooled over the layer's KV heads."""
    results = Results()
    measure_codec(trace, results)
    measure_readers(trace, results, plan.readkv_rows)
    return results


Unit = tuple[str, int, int]
"""("head" or "layer", set, index): the piece of work that processes and clusters are given."""


def measure_unit(path: Path, plan: Plan, unit: Unit) -> Results:
    """One unit of a capture file."""
    kind, number, index = unit
    capture = _opened(path)[number]
    return measure_layer(capture.layer(index), plan) if kind == "layer" else measure_head(capture.head(index), plan)


@lru_cache(maxsize=1)
def _opened(path: Path) -> list[CaptureSet]:
    return load_capture(path)


def units(path: Path, plan: Plan) -> list[Unit]:
    """The units of a plan; later sets tend to be longer and come first."""
    found: list[Unit] = []
    for number, capture in enumerate(_opened(path)):
        if plan.sets and capture.name not in plan.sets:
            continue
        if "readkv" in plan.sections:
            found += [("layer", number, index) for index in range(len(capture.layers))]
        if set(plan.sections) != {"readkv"}:
            found += [("head", number, index) for index in range(capture.head_count)]
    return found[::-1]


def measure_capture(path: Path, plan: Plan, processes: int = 1, cluster: str | None = None) -> Results:
    """Measure a whole capture; units are independent and their results merge.

    ``processes`` > 1 spreads units over local processes, ``cluster`` over a Dask scheduler at that address (extra
    `dask`); every worker must see the capture under the same path.
    """
    results = Results()
    for one in _spread(partial(measure_unit, path, plan), units(path, plan), processes, cluster):
        results.merge(one)
    return results


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Environment in which new processes start BLAS with one thread; settings that are there already stay."""
    added = {
        name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS") if name not in os.environ
    }
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


def _spread(work: Any, indices: list[Unit], processes: int, cluster: str | None) -> Iterator[Results]:
    if cluster is not None:
        from distributed import Client

        with Client(cluster) as client:
            yield from client.get_executor().map(work, indices)
    elif min(processes, len(indices)) > 1:
        # fresh interpreters with one BLAS thread each: processes times threads would fight for the cores
        with one_thread_each(), ProcessPoolExecutor(min(processes, len(indices)), get_context("spawn")) as pool:
            yield from pool.map(work, indices)
    else:
        yield from map(work, indices)
