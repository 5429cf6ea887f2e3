"""ReadKV App. A.3: 201 decode steps keep the extra writes of (8, 4) over 4 bits within one percent, for any prompt."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from proofs_checks.statements.constants import float_up
from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.reuse_model import extra_write_fraction

ABOUT = About(
    id="readkv-appendix-a3",
    source="ReadKV App. A.3, 201 steps",
    claim="The extra-write fraction eta(N, L) = (W - W0)(N + L) / (W0 [LN + L(L-1)/2]) is at most "
    "2 (W - W0) / (W0 (L - 1)) for every N >= 0: one percent at W = 8, W0 = 4 from L = 201 on.",
    hypotheses="W > W0 >= 1; N >= 0; L >= 2.",
    kind=Kind.UPPER_BOUND,
    tight="N = 0: equality; L = 201 gives exactly .01.",
    hazard="Exact rationals, rounded against the claim.",
    finding="Sharp; eta(8192, 128) = .0078735 is exact to the printed digits.",
)


def hypotheses(instance: Instance) -> None:
    """Depths, a prompt length and at least two steps."""
    for stored, fixed, prompt, steps in instance["runs"]:
        require(stored > fixed >= 1, "W > W0 >= 1", (stored, fixed))
        require(prompt >= 0 and steps >= 2, "N >= 0 and L >= 2", (prompt, steps))


def left(instance: Instance) -> FloatArray:
    """eta(N, L), rounded up. [N]."""
    return np.array(
        [float_up(extra_write_fraction(stored=w, fixed=v, prompt=n, steps=s)) for w, v, n, s in instance["runs"]]
    )


def right(instance: Instance) -> FloatArray:
    """2 (W - W0) / (W0 (L - 1)), rounded up as well, which keeps equal rationals equal. [N]."""
    return np.array([float_up(Fraction(2 * (w - v), v * (s - 1))) for w, v, _, s in instance["runs"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """W = 8, W0 = 4, N = 0, L = 201.

    >>> check(tight_instance()).left.tolist()
    [0.01]
    """
    return {"runs": [(8, 4, 0, 201)]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random depths, prompts and lengths."""
    runs = []
    for _ in range(min(count, 50)):
        fixed = small(rng, 1, 7)
        runs.append((small(rng, fixed + 1, 8), fixed, small(rng, 0, 10000), small(rng, 2, 2000)))
    return {"runs": runs}


def cases() -> dict[str, Instance]:
    """The papers' N = 8192, L = 128."""
    return {"papers": {"runs": [(8, 4, 8192, 128)]}}
