"""Ports made of the float32 stages of the NumPy example, one of them replaced, as whole ports or as decode steps."""

from types import SimpleNamespace

from judged import port_from

from proofs_checks.judge.bisection import PIPELINES
from proofs_checks.judge.stages import STAGES
from proofs_checks.judge.suite import cases_of
from proofs_checks.judge.verify import judge_stage
from proofs_checks.mutants.base import build_port
from proofs_checks.mutants.matrix import LocalSession

NUMPY_PORT = port_from("numpy_port")
SINGLE = {name: getattr(NUMPY_PORT, name) for part in PIPELINES["locks_decode"] for name in part}


def whole_port(replaced=(), **constants):
    """Every single stage in float32, ``replaced`` instead of some, decode steps composed of these."""
    return build_port({**SINGLE, **dict(replaced)}, **constants)


def decode_only(replaced=(), stage="locks_decode", **constants):
    """The same port, of which nothing but one decode stage can be called."""
    return SimpleNamespace(**{stage: getattr(whole_port(replaced, **constants), stage)}, **constants)


def small_cases(stage):
    """The quick cases of a decode stage that are no slices of a real capture, and not wide."""
    wide = ("capture", "d128", "d256")
    return [c for c in cases_of(stage) if c.profile == "quick" and not c.name.startswith(wide)]


def report_on(port, stage="locks_decode", cases=None):
    """The stage's report, notes included."""
    return judge_stage(LocalSession(port), STAGES[stage], small_cases(stage) if cases is None else cases)[0]


def bisection_lines(report):
    return [note for note in report.notes if note.startswith("bisection")]
