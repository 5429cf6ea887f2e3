"""ReadKV App. A.4: the progressive code moves fewer bits exactly above the root of its quadratic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.reuse_model import traffic_saving

ABOUT = About(
    id="readkv-appendix-a4",
    source="ReadKV App. A.4, crossover",
    claim="With W > W0 > R the progressive code has lower traffic exactly when L > (-c + sqrt(c^2 + 2 delta a N)) / "
    "delta, "
    "a = W - W0, delta = W0 - R, c = delta (N - 1/2) - a; from an empty cache when L > 1 + 2a / delta.",
    hypotheses="W > W0 > R >= 0; N >= 0; L >= 1.",
    kind=Kind.IDENTITY,
    tight="Every run, those at the root included (no saving there).",
    no_constant="an equivalence; there is no bound to scale",
    hazard="At the root a float square root decides either way: L delta + c > sqrt(D) is decided in rationals, by "
    "squaring.",
    finding="Exact at the integer crossovers, such as W = 8, W0 = 4, R = 2, N = 0, L = 5.",
)


def hypotheses(instance: Instance) -> None:
    """Legal runs."""
    for stored, fixed, read, prompt, steps in instance["runs"]:
        require(stored > fixed > read >= 0, "W > W0 > R >= 0", (stored, fixed, read))
        require(prompt >= 0 and steps >= 1, "N >= 0 and L >= 1", (prompt, steps))


def left(instance: Instance) -> FloatArray:
    """1 where the progressive code moves fewer bits, by counting. [N]."""
    saved = [traffic_saving(stored=w, fixed=v, read=r, prompt=n, steps=s) > 0 for w, v, r, n, s in instance["runs"]]
    return np.array(saved, dtype=np.float64)


def above_root(stored: int, fixed: int, read: int, prompt: int, steps: int) -> bool:
    """Whether L lies above the root, in rationals: L delta + c > sqrt(c^2 + 2 delta a N).

    >>> above_root(8, 4, 2, 0, 5), above_root(8, 4, 2, 0, 6)
    (False, True)
    """
    a, delta = stored - fixed, fixed - read
    c = delta * (prompt - Fraction(1, 2)) - a
    side = steps * delta + c
    return side > 0 and side * side > c * c + 2 * delta * a * prompt


def right(instance: Instance) -> FloatArray:
    """1 where L lies above the root. [N]."""
    return np.array([float(above_root(*run)) for run in instance["runs"]])


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """At and above the crossover from an empty cache.

    >>> check(tight_instance()).left.tolist()
    [0.0, 1.0]
    """
    return {"runs": [(8, 4, 2, 0, 5), (8, 4, 2, 0, 6)]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random runs near the crossover."""
    runs = []
    for _ in range(min(count, 50)):
        read = small(rng, 0, 5)
        fixed = small(rng, read + 1, 6)
        runs.append((small(rng, fixed + 1, 8), fixed, read, small(rng, 0, 60) * small(rng, 0, 1), small(rng, 1, 30)))
    return {"runs": runs}
