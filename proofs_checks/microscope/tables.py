"""All tables of a measured capture set, in the papers' order."""

from __future__ import annotations

from collections.abc import Callable

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.energy import IsotropicNull
from proofs_checks.microscope.table import Shape, Table
from proofs_checks.microscope.tables_frontier import (
    frontier_table,
    grid_table,
    registry_table,
    rotation_table,
    traffic_table,
)
from proofs_checks.microscope.tables_readkv import codec_table, decomposition_table, factorial_table, readers_table
from proofs_checks.microscope.tables_scores import (
    audit_table,
    combine_table,
    departures_table,
    energy_table,
    errors_table,
    fidelity_table,
)

BUILDERS: dict[str, Callable[[Results, Shape], Table]] = {
    "fidelity": fidelity_table,
    "errors": errors_table,
    "frontier": frontier_table,
    "traffic": traffic_table,
    "registry": registry_table,
    "rotation": rotation_table,
    "combine": combine_table,
    "departures": departures_table,
    "grid": grid_table,
    "audit": audit_table,
    "readkv codec": codec_table,
    "readkv readers": readers_table,
    "readkv decomposition": decomposition_table,
    "readkv factorial": factorial_table,
}


def all_tables(results: Results, shape: Shape, null: IsotropicNull | None) -> list[Table]:
    """Every table that has rows for this capture set."""
    tables = [energy_table(results, shape, null)] if null is not None else []
    tables += [build(results, shape) for build in BUILDERS.values()]
    return [
        table
        for table in tables
        if any("printed" not in str(row.get("rule", row.get("summary"))) for row in table.rows)
    ]
