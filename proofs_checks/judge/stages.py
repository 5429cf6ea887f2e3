"""The stage table: every stage by name, in the order in which a pipeline runs."""

from __future__ import annotations

from proofs_checks.judge.stage import Stage
from proofs_checks.judge.table_baseline_codes import BASELINE_CODES
from proofs_checks.judge.table_baseline_reads import BASELINE_READS
from proofs_checks.judge.table_locks import LOCKS
from proofs_checks.judge.table_readkv import READKV

__all__ = ["STAGES", "Stage"]

STAGES: dict[str, Stage] = {stage.name: stage for stage in (*LOCKS, *READKV, *BASELINE_CODES, *BASELINE_READS)}
"""The table by name, in the order in which a pipeline runs."""
