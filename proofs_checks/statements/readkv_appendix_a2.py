"""ReadKV App. A.2: the traffic formulas equal a count of every write and read, step by step."""

from __future__ import annotations

import numpy as np

from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.reuse_model import payload_traffic

ABOUT = About(
    id="readkv-appendix-a2",
    source="ReadKV App. A.2, traffic",
    claim="W (N + L) + R [LN + L(L-1)/2] counts one write per token and one R-bit read per historical token and step.",
    hypotheses="N >= 0 prompt tokens, L >= 1 steps, whole W and R.",
    kind=Kind.IDENTITY,
    tight="Every run.",
    no_constant="an identity between whole numbers; there is no bound to scale",
)


def hypotheses(instance: Instance) -> None:
    """Legal runs."""
    for stored, read, prompt, steps in instance["runs"]:
        require(stored >= 0 and read >= 0 and prompt >= 0 and steps >= 1, "W, R, N >= 0 and L >= 1", instance["runs"])


def left(instance: Instance) -> FloatArray:
    """The formula. [N]."""
    return np.array([float(payload_traffic(stored=w, read=r, prompt=n, steps=s)) for w, r, n, s in instance["runs"]])


def right(instance: Instance) -> FloatArray:
    """The count. [N]."""
    return np.array([float(count(*run)) for run in instance["runs"]])


def count(stored: int, read: int, prompt: int, steps: int) -> int:
    """Write the prompt; at every step read all tokens so far, then write one.

    >>> count(8, 2, 2, 3)          # 16 written, then 4 + 8, 6 + 8, 8 + 8
    58
    """
    bits, tokens = stored * prompt, prompt
    for _ in range(steps):
        bits += read * tokens + stored
        tokens += 1
    return bits


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """Two prompt tokens, three steps.

    >>> check(tight_instance()).left.tolist()
    [58.0]
    """
    return {"runs": [(8, 2, 2, 3)]}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random runs."""
    drawn = [
        (small(rng, 1, 8), small(rng, 0, 8), small(rng, 0, 500), small(rng, 1, 200)) for _ in range(min(count, 40))
    ]
    return {"runs": drawn}
