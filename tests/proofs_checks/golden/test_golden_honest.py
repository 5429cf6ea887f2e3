"""Right ports that round differently lie within every stored bound: no false alarm from the files."""

import numpy as np
import pytest
from honest_reads import PORTS, Port

from proofs_checks.golden.check import SUMS, flat, golden_directory, inputs_of, load_case, load_manifest, read_sums
from proofs_checks.golden.judging import faults
from proofs_checks.golden.manifest import NAME
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.table_baseline_reads import BASELINE_READS

PLACE = golden_directory()
SUMS_READ = read_sums((PLACE / SUMS).read_bytes())
CASES = load_manifest((PLACE / NAME).read_bytes(), SUMS_READ).cases
READS = {row.name for row in BASELINE_READS}


@pytest.mark.parametrize("name", PORTS)
def test_right_ports_of_the_other_readers(name):
    port, alarms, judged = Port(PORTS[name]), [], 0
    for case, entry in CASES.items():
        if entry.stage not in READS:
            continue
        tensors = load_case((PLACE / entry.file).read_bytes(), entry, SUMS_READ)
        stage = STAGES[entry.stage]
        for dtype in entry.dtypes if name == "library" else ["float32"]:
            if dtype not in entry.dtypes:
                continue
            sent = stage.round_inputs(inputs_of(entry, tensors), dtype)
            answer = flat(stage.named(getattr(port, entry.stage)(**sent)))
            own = {n: v.astype(np.float32) if v.dtype.kind == "f" else v for n, v in answer.items()}
            alarms += [(case, dtype, text) for text in faults(entry, tensors, own, dtype)]
            judged += 1
    assert alarms == []
    assert judged > 100
