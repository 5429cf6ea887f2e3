"""Right ports of the other readers and evictions pass every case and fresh inputs, at every input dtype."""

import numpy as np
import pytest
from honest_reads import PORTS, Port

from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.table_baseline_reads import BASELINE_READS
from proofs_checks.numbers import Precision

NAMES = [row.name for row in BASELINE_READS]


def answered(stage, port, case, dtype, inputs=None):
    """The port's answer to a case, and what the judge says of it."""
    prepared = prepare(case, dtype, inputs)
    answer = STAGES[stage].named(getattr(port, stage)(**prepared.sent))
    own = {n: np.asarray(v, np.float32) if np.asarray(v).dtype.kind == "f" else v for n, v in answer.items()}
    return judge(prepared, own, Precision(dtype, "float32", dtype))


@pytest.mark.parametrize("name", PORTS)
@pytest.mark.parametrize("stage", NAMES)
def test_a_right_port_passes_every_case(stage, name):
    port = Port(PORTS[name])
    for case in cases_of(stage):
        for dtype in ("float32", "bfloat16", "float16") if name == "library" else ("float32",):
            if dtype in case.dtypes and case.trial is None:
                judgement = answered(stage, port, case, dtype)
                assert judgement.faults == [], (case.id, dtype)
                assert judgement.refused is None, (case.id, dtype)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stage", NAMES)
def test_a_right_port_passes_cases_with_their_floats_drawn_anew(stage, seed):
    rng = np.random.default_rng([seed, len(stage)])
    case = next(c for c in cases_of(stage) if not c.probe and "capture" not in c.name and c.relation is None)
    inputs = {name: redrawn(name, value, rng) for name, value in case.inputs().items()}
    for name, ways in PORTS.items():
        assert answered(stage, Port(ways), case, "float32", inputs).faults == [], name


def redrawn(name, value, rng):
    """Values of the same spread around the same mean; orthonormal, ordered or positive arrays stay what they are."""
    kept = ("basis", "components", "directions", "minimum", "maximum", "frequencies", "magnitude", "query_covariance")
    if (
        not isinstance(value, np.ndarray)
        or value.dtype.kind != "f"
        or name in kept
        or name.endswith(("signs", "scale"))
    ):
        return value
    if name == "energies":
        return value * rng.random(value.shape)
    return value.mean() + value.std() * rng.normal(size=value.shape)


def test_every_stage_has_a_right_port():
    assert all(hasattr(Port, name) for name in NAMES)
