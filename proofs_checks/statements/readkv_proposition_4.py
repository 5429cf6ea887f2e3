"""ReadKV Prop. 4: a reader class that contains another has no larger risk."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.readers import CLASSES, risk
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray

ABOUT = About(
    id="readkv-proposition-4",
    source="ReadKV Prop. 4, risks",
    claim="oblivious, staged(1), ..., staged(J), branching: each class's optimal risk is at most that of the classes "
    "it "
    "contains; staged(J) equals branching for J >= r, and all coincide at r = 0.",
    hypotheses="The same encoder, inputs, loss, storage and probes for both classes.",
    kind=Kind.UPPER_BOUND,
    tight="r = 0, and staged(J) against branching at J >= r: equality.",
    finding="Exhaustive over all readers of w, r <= 3 with deterministic decoders. The chain leaves out "
    "query-independent "
    "branching, which contains oblivious, is contained in branching, and is incomparable with staged(1).",
    exhaustive=True,
)

# (stronger, weaker) pairs of the chain, with the class that Table 1 lists and the chain leaves out.
CHAIN = (
    *[(CLASSES[i], "oblivious") for i in range(2, 6)],
    *[("staged-2", "staged-1"), ("staged-3", "staged-2"), ("branching", "staged-3"), ("branching", "staged-1")],
    *[("query-independent", "oblivious"), ("branching", "query-independent")],
)


def hypotheses(instance: Instance) -> None:
    """Problems with records of at most 3 bits and legal codes; pairs of the chain."""
    for problem in instance["problems"]:
        require(0 <= problem["probes"] <= 3 and problem["width"] <= 3, "w, r <= 3")
        require((problem["codes"] >= 0) & (problem["codes"] < 2 ** problem["width"]), "codes are records of w bits")
        equal = problem["stronger"] == "staged-3" and problem["weaker"] == "branching" and problem["probes"] <= 3
        require((problem["stronger"], problem["weaker"]) in CHAIN or equal or problem["probes"] == 0, "an inclusion")


def class_risks(instance: Instance, which: str) -> FloatArray:
    """The risk of one class of every problem. [N]."""
    return np.array([risk(p[which], p["width"], p["probes"], p["codes"], p["answers"]) for p in instance["problems"]])


def left(instance: Instance) -> FloatArray:
    """Risk of the containing class. [N]."""
    return class_risks(instance, "stronger")


def right(instance: Instance) -> FloatArray:
    """Risk of the contained class. [N]."""
    return class_risks(instance, "weaker")


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def bits_problem(width: int, probes: int, stronger: str, weaker: str) -> dict[str, object]:
    """Sources are all records, query i asks for bit i."""
    codes = np.arange(2**width)
    answers = np.array([codes >> i & 1 for i in range(width)], dtype=np.float64)
    return {
        "width": width,
        "probes": probes,
        "codes": codes,
        "answers": answers,
        "stronger": stronger,
        "weaker": weaker,
    }


def tight_instance() -> Instance:
    """Equality at r = 0 between the ends of the chain, and staged(3) against branching with two probes.

    >>> check(tight_instance()).tightest
    1.0
    """
    address = bits_problem(3, 2, "branching", "staged-3")
    codes = np.arange(8)
    address["answers"] = np.array([np.where(codes & 1, codes >> 1 & 1, codes >> 2 & 1) + (codes >> 1 & 1) * 2.0])
    return {"problems": [bits_problem(2, 0, "branching", "oblivious"), address]}


def families() -> list[Instance]:
    """Every pair of the chain on the bit problems, w, r <= 3, and both directions of staged(J >= r) = branching."""
    grid = [(w, r) for w in (1, 2, 3) for r in range(4)]
    pairs = [bits_problem(w, r, *pair) for w, r in grid for pair in CHAIN]
    both = [bits_problem(w, r, "staged-3", "branching") for w, r in grid]
    return [{"problems": pairs}, {"problems": both}]


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random encoders of up to 6 sources and random integer answers."""
    problems = []
    for _ in range(min(count, 6)):
        width, sources = small(rng, 1, 3), small(rng, 2, 6)
        pair = [*CHAIN, ("staged-3", "branching")][small(rng, 0, len(CHAIN))]
        problems.append(
            {
                "width": width,
                "probes": small(rng, 0, 3),
                "codes": rng.integers(0, 2**width, sources),
                "answers": rng.integers(-4, 5, (small(rng, 1, 3), sources)).astype(np.float64),
                "stronger": pair[0],
                "weaker": pair[1],
            }
        )
    return {"problems": problems}
