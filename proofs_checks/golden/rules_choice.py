"""Golden cases of stages that the judge's own check decides: what it says of the right answer's neighbours is stored.

A stage that chooses (tokens, channels, chunks, pages) and computes on its choice has no bound of its own. Its check is
asked within which bounds it compared the right answer, and which exchanges of one chosen item it lets pass. What passes
is stored as may, what does not as must. So a new stage needs no rule of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from proofs_checks.bounds.common import gamma
from proofs_checks.golden.job import Array, DtypeError, GoldenError, Job, Judged, equal, precision, within
from proofs_checks.golden.rounding import rounded, three_digits_up
from proofs_checks.judge.judgement import Call, Judgement, says_nothing
from proofs_checks.numbers import FORMATS


def ask(job: Job, exact: Mapping[str, Array], answer: Mapping[str, Array], dtype: str) -> Judgement:
    """The judge's verdict on an answer of a port of ``dtype``."""
    call = Call(job.stage.name, job.inputs, exact, answer, precision(dtype), job.case.kind, judged=job.case.judged)
    return job.stage.check(call)


def asked(job: Job) -> dict[str, Judged]:
    """The judged results of a stage without a bound."""
    roles, exact = job.stage.results, job.exact()
    exact |= {n: v.astype(roles[n]) for n, v in exact.items() if roles[n] in ("int8", "uint8")}
    verdicts = {dtype: ask(job, exact, exact, dtype) for dtype in job.dtypes}
    for dtype, verdict in verdicts.items():
        if verdict.faults:
            raise GoldenError(f"{job.case.id}: the judge refuses the right answer: {verdict.faults[0].message}")
        if verdict.refused:
            raise DtypeError(f"{job.case.id}: {verdict.refused}", dtype)
    judged = {name: chosen(job, exact, name) for name, role in job.stage.results.items() if role == "index"}
    for name in job.names():
        if name in judged or hangs(job, exact, judged, name):
            continue  # a value on a choice that is free says nothing
        bounds = {dtype: verdict.bounds[name] for dtype, verdict in verdicts.items() if name in verdict.bounds}
        judged[name] = number(job, name, exact[name], bounds)
    if not set(judged) & set(job.names()):
        raise GoldenError(f"{job.case.id}: what it judges rests on a choice that is free")
    return judged


def hangs(job: Job, exact: Mapping[str, Array], choices: Mapping[str, Judged], name: str) -> bool:
    """Whether a value is another one for another choice that is right, if there is one."""
    for choice, judged in choices.items():
        if judged.rule != "pages":
            continue
        free = judged.tensors["may"] & ~judged.tensors["must"] & 1
        for row in np.argwhere(free.any(axis=-1)):
            own = exact[choice][tuple(row)].tolist()
            items = np.flatnonzero(free[tuple(row)])
            place = next(i for i, item in enumerate(own) if item in items)
            other = exact[choice].copy()
            other[(*row, place)] = next(j for j in items if j not in own)
            verdict = ask(job, exact, {**exact, choice: other}, job.dtypes[0])
            if any(fault.result == name for fault in verdict.faults):
                return True
    return False


def number(job: Job, name: str, exact: Array, bounds: Mapping[str, Array]) -> Judged:
    """A result within the bounds that the judge compared it within; exactly where it did not."""
    if job.stage.results[name] in ("int8", "uint8") or job.case.kind == "exact" or not bounds or exact.size == 0:
        return equal(exact)
    for dtype, bound in bounds.items():
        if np.any(exact) and says_nothing({name: exact}, {name: bound}, {name: 0 * exact}):
            raise DtypeError(f"{job.case.id}: zeros would pass in {dtype}", dtype)
    return within(exact, bounds)


def chosen(job: Job, exact: Mapping[str, Array], name: str) -> Judged:
    """Masks of what every right choice holds, and of what some right choice holds, in the case's coarsest dtype.

    Enclosures only widen with the roundoff of the inputs, so what binds its ports binds all.
    """
    right = exact[name]
    coarsest = max(job.dtypes, key=lambda dtype: FORMATS[dtype].unit_roundoff)
    items = max([*(n for v in job.inputs.values() for n in np.shape(v)), int(right.max(initial=-1)) + 1])
    must, may = (np.zeros((*right.shape[:-1], items), np.uint8) for _ in range(2))
    for row in np.ndindex(right.shape[:-1]):
        sets = row_sets(Exchange(job, exact, name, row, coarsest), items)
        for mask, held in zip((must, may), sets, strict=True):
            mask[row][sorted(held)] = 1
    count = np.full(right.shape[:-1], right.shape[-1])
    return Judged("pages", {"must": must, "may": may, "count": count})


@dataclass(frozen=True)
class Exchange:
    """One row of a choice, of which one item is exchanged."""

    job: Job
    exact: Mapping[str, Array]
    name: str
    row: tuple[int, ...]
    dtype: str

    @property
    def own(self) -> list[int]:
        """The right items."""
        found: list[int] = self.exact[self.name][self.row].tolist()
        return found

    def objections(self, place: int, other: int) -> int | None:
        """How many faults the judge finds with ``other`` in place of an item: None where there is no such item.

        One that every right choice holds may be missing, and one may be there that none holds: it says both.
        """
        answer = self.exact[self.name].copy()
        answer[(*self.row, place)] = other
        faults = ask(self.job, self.exact, {**self.exact, self.name: answer}, self.dtype).faults
        own = [fault for fault in faults if fault.result == self.name]
        return None if any("out of range" in fault.message for fault in own) else len(own)


def row_sets(row: Exchange, items: int) -> tuple[set[int], set[int]]:
    """MUST and MAY of one row: an exchange of i for j costs one fault where i is MUST, and one where j is not MAY.

    Where all items are MUST nothing else is MAY, so that one exchange per item settles most rows.
    """
    own, others = row.own, [j for j in range(items) if j not in row.own]
    first = next(((j, n) for j in others if own and (n := row.objections(0, j)) is not None), None)
    if first is None:
        return set(own), set(own)  # nothing, or everything, is chosen
    missed = [row.objections(i, first[0]) or 0 for i in range(len(own))]
    if min(missed) == 2:
        return set(own), set(own)
    costs = dict(takewhile(lambda pair: pair[1] is not None, ((j, row.objections(0, j)) for j in others)))
    base = min(n for n in costs.values() if n is not None)  # 1 where the first item is MUST, since something is MAY
    may = {j for j, n in costs.items() if n == base}
    surely = {item for item, n in zip(own, missed, strict=True) if n > (first[0] not in may)}
    return surely, set(own) | may


def low_rank(job: Job) -> dict[str, Judged]:
    """`shadowkv_low_rank`: the fit of keys by left and right, no worse than the best of its rank and rounding."""
    keys = job.inputs["keys"]
    H, T, d = keys.shape
    least = float(rounded(job.evaluate()["least"]))
    size = float(np.linalg.norm(keys))
    slack = gamma(4 * (T + H * d) + 10 * int(job.inputs["rank"]), precision("float32").roundoff) * size
    if least + slack >= size > 0:
        raise GoldenError(f"{job.case.id}: zeros would pass")
    return {"left": Judged("fit", {"target": keys, "limit": three_digits_up(least + slack)}), "right": Judged("fit")}


RULES = {"shadowkv_low_rank": low_rank}
