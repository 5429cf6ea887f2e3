"""Cases that every stage gets: a general case again, delivered as views, or in buffers that held something else."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from proofs_checks.judge.case import Case, Inputs
from proofs_checks.judge.cases import repeats
from proofs_checks.judge.delivery import older

VIEWS = "the same inputs as strided views with poison around them"
REUSED = "the same buffers held other content in the call before"
FAR = "blocks of the pools lie over more than 2^31 elements"
HALVES = "key and value pool are halves of one buffer [blocks, 2, B, H, d]"


def hygiene_cases(cases: Sequence[Case]) -> list[Case]:
    """Deliver the stage's first small general case (a probe where there is none) in every other way."""
    small = [
        c
        for c in cases
        if c.profile == "quick" and c.relation is None and not c.must_raise and c.poison is None and c.judged is None
    ]
    base = next((c for c in small if not c.probe and "capture" not in c.name), small[-1])
    again = replace(base, probe=True, base=base.name)
    ways = [
        replace(again, name="strided-views", suspect="A", why=VIEWS, delivery="strided"),
        replace(again, name="reused-buffers", suspect="K", why=REUSED, delivery="reuse", inputs=_rolled(base)),
    ]
    if base.stage.startswith("paged") or base.stage.endswith("_paged"):
        ways.append(replace(again, name="interleaved-pools", suspect="A", why=HALVES, delivery="interleaved"))
        ways.append(replace(again, name="far-blocks", suspect="I", why=FAR, delivery="far"))
    trial = replace(again, kind="metamorphic", suspect="K")
    ways.append(replace(trial, name="called-again", why=repeats.AGAIN, trial=repeats.called_again))
    if "block_table" in base.inputs():
        ways.append(replace(trial, name="batch-of-one", why=repeats.ALONE, trial=repeats.batch_of_one))
    return ways


def _rolled(base: Case) -> Callable[[], Inputs]:
    """The case's arrays rolled: the same shapes with content that no other case has shown to the port."""

    def inputs() -> Inputs:
        return {n: older(n, value) if isinstance(value, np.ndarray) else value for n, value in base.inputs().items()}

    return inputs
