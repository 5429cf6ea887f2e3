"""ReadKV Prop. 6: from r = w on, every access class has the risk of a decoder that sees the whole record."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.readers import CLASSES, full_risk, risk
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-6",
    source="ReadKV Prop. 6",
    claim="If r >= w, every access class has exactly the full-message risk.",
    hypotheses="r >= w; the same encoder and inputs.",
    kind=Kind.IDENTITY,
    tight="Every problem.",
    no_constant="an identity; there is no bound to scale",
    finding="Exhaustive over all readers of w <= 3, for lossy encoders of up to 6 sources.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """r >= w."""
    for problem in instance["problems"]:
        require(problem["probes"] >= problem["width"], "r >= w", (problem["probes"], problem["width"]))


def left(instance: Instance) -> FloatArray:
    """The class's risk. [N]."""
    return np.array([risk(p["class"], p["width"], p["probes"], p["codes"], p["answers"]) for p in instance["problems"]])


def right(instance: Instance) -> FloatArray:
    """The full-message risk. [N]."""
    return np.array([full_risk(p["codes"], p["answers"]) for p in instance["problems"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """Four sources in two records, every class.

    >>> check(tight_instance()).left.tolist()
    [0.25, 0.25, 0.25, 0.25, 0.25, 0.25]
    """
    codes, answers = np.array([0, 0, 1, 1]), np.array([[0.0, 1.0, 5.0, 6.0]])
    base = {"width": 1, "probes": 1, "codes": codes, "answers": answers}
    return {"problems": [{**base, "class": name} for name in CLASSES]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random encoders and answers."""
    problems = []
    for _ in range(min(count, 4)):
        width, sources = small(rng, 1, 3), small(rng, 2, 6)
        problems.append(
            {
                "width": width,
                "probes": small(rng, width, 3),
                "codes": rng.integers(0, 2**width, sources),
                "answers": rng.integers(-4, 5, (small(rng, 1, 3), sources)).astype(np.float64),
                "class": CLASSES[small(rng, 0, 5)],
            }
        )
    return {"problems": problems}
