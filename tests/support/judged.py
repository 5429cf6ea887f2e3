"""Judging functions in process, on inputs that a property test has drawn."""

import importlib.util
from pathlib import Path

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.judging import judge, prepare
from proofs_checks.judge.stages import STAGES
from proofs_checks.numbers import Precision

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "ports"


def port_from(name):
    """A port of examples/ports by file name."""
    description = importlib.util.spec_from_file_location(f"{name}_under_test", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(description)
    description.loader.exec_module(module)
    return module


def judged(stage, function, inputs, dtype="float32", accumulate="float32", lowest_index=False):
    """The judgement of ``function`` on ``inputs`` rounded to ``dtype``; the output is declared in that dtype."""
    prepared = prepare(Case(stage, "drawn", "bounded", "A", "drawn", dict), dtype, inputs)
    given = {n: v.copy() if isinstance(v, np.ndarray) else v for n, v in prepared.sent.items()}
    with np.errstate(all="ignore"):  # a port may overflow on its way to a right answer
        answer = STAGES[stage].named(function(**given))
    return judge(prepared, answer, Precision(dtype, accumulate, dtype), lowest_index)


def assert_no_alarm(judgement):
    assert not judgement.faults, judgement.faults[0].message
    assert not judgement.departures, judgement.departures[0].what
