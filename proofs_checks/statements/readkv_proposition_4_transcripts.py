"""ReadKV Prop. 4, the simulations: one probe at a time gives a staged reader's transcript, and the other way round."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.sampling import small
from proofs_checks.statements.statement import About, Instance, Kind, checker, no_rounding, require
from refimpl.checks import FloatArray
from refimpl.readkv.access_model import BRANCHING, Protocol, View, run_protocol, staged

ABOUT = About(
    id="readkv-proposition-4-transcripts",
    source="ReadKV Prop. 4, simulations",
    claim="A branching reader that probes a staged reader's batch one address at a time, withholding the bits until "
    "the "
    "batch is complete, produces its transcript; a branching reader of at most r probes is staged(r) with singletons.",
    hypotheses="The same encoder, record and probe budget r.",
    kind=Kind.IDENTITY,
    tight="Every policy and record.",
    no_constant="an identity between transcripts; there is no bound to scale",
    finding="Run through the reference's access model, which refuses any information a class may not use.",
    exhaustive=True,
)


def hypotheses(instance: Instance) -> None:
    """Policies over w addresses with at most r probes on every path."""
    for policy in instance["policies"]:
        require(probes_of(policy) <= instance["probes"], "at most r probes", probes_of(policy))


Policy = tuple[tuple[int, ...], dict[tuple[int, ...], Any]]  # a batch, and the next policy by its bits; () stops


def probes_of(policy: Policy | tuple[()]) -> int:
    """The most probes on any path.

    >>> probes_of(((0, 1), {(0, 0): ((2,), {})}))
    3
    """
    if not policy:
        return 0
    batch, following = policy
    return len(batch) + max([probes_of(p) for p in following.values()], default=0)


def depth_of(policy: Policy | tuple[()]) -> int:
    """The most batches on any path."""
    return 1 + max([depth_of(p) for p in policy[1].values()], default=0) if policy else 0


def staged_reader(policy: Policy) -> Any:
    """The reader that follows a policy batch by batch."""

    def read(view: View) -> tuple[int, ...]:
        here: Any = policy
        for _ in range(view.batch):
            batch, following = here
            here = following.get(tuple(view.returned[a] for a in batch), ())
            if not here:
                return ()
        return tuple(here[0]) if here else ()

    return read


def one_at_a_time(policy: Policy) -> Any:
    """The branching simulation: the next unread address of the batch, the policy shown complete batches only."""

    def read(view: View) -> tuple[int, ...]:
        here: Any = policy
        while here:
            batch, following = here
            for address in batch:
                if address not in view.returned:
                    return (address,)
            here = following.get(tuple(view.returned[a] for a in batch), ())
        return ()

    return read


def transcript(reader: Any, access: Any, record: list[int], probes: int) -> tuple[tuple[int, int], ...]:
    """Addresses and bits in the order of reading, without repeats."""
    protocol = Protocol(
        access, len(record), probes, lambda x, coins: x, reader, lambda seen: tuple(seen.returned.items())
    )
    return tuple(run_protocol(protocol, record, None).answer)


def left(instance: Instance) -> FloatArray:
    """Records on which a simulation's transcript differs, by policy. [N]."""
    width, probes = instance["width"], instance["probes"]
    records = [[record >> a & 1 for a in range(width)] for record in range(2**width)]
    counts = []
    for policy in instance["policies"]:
        staged_class = staged(max(1, depth_of(policy)))
        singles = one_at_a_time(policy)
        differ = 0
        for record in records:
            original = transcript(staged_reader(policy), staged_class, record, probes)
            differ += original != transcript(singles, BRANCHING, record, probes)
            differ += original != transcript(singles, staged(max(1, probes)), record, probes)
        counts.append(float(differ))
    return np.array(counts)


def right(instance: Instance) -> FloatArray:
    """None. [N]."""
    return np.zeros(len(instance["policies"]))


check = checker(ABOUT, hypotheses, left, right, no_rounding)


def tight_instance() -> Instance:
    """Read bits 0 and 1 together, then bit 2 if they differ.

    >>> check(tight_instance()).left.tolist()
    [0.0]
    """
    follow: dict[tuple[int, ...], Any] = {(0, 1): ((2,), {}), (1, 0): ((2,), {})}
    return {"policies": [((0, 1), follow)], "width": 3, "probes": 3}


def random_policy(rng: np.random.Generator, width: int, probes: int) -> Policy | tuple[()]:
    """A random staged policy that may stop anywhere."""
    if probes == 0 or rng.random() < 0.2:
        return ()
    size = small(rng, 1, min(probes, width))
    batch = tuple(int(a) for a in rng.permutation(width)[:size])
    bits = [tuple(pattern >> i & 1 for i in range(size)) for pattern in range(2**size)]
    return batch, {b: p for b in bits if (p := random_policy(rng, width, probes - size))}


def sample(rng: np.random.Generator, count: int) -> Instance:
    """Random policies with w <= 4, r <= 4."""
    width, probes = small(rng, 1, 4), small(rng, 1, 4)
    drawn = [random_policy(rng, width, probes) for _ in range(min(count, 10))]
    return {"policies": [p for p in drawn if p] or [((0,), {})], "width": width, "probes": probes}
