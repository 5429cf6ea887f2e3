"""What a check says about one answer: how far it is off in bounds, where, and which departures it shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from proofs_checks.judge.pictures import Picture, ratio_map
from proofs_checks.numbers import Precision

Kind = Literal["exact", "bounded", "set", "metamorphic"]


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: which result, where in it, a sentence, and error / bound where there is a bound."""

    result: str
    index: tuple[int, ...] | None
    message: str
    ratio: float | None = None
    suspect: str | None = None
    """The class of fault where the answer itself tells it, more surely than the case."""
    picture: Picture | None = None


@dataclass(frozen=True)
class Departure:
    """A documented difference from the paper dialect that is no failure (the AMB id is part of ``id``)."""

    id: str
    what: str
    cost: str = ""


@dataclass
class Judgement:
    """The outcome of one case: no faults is a pass; ``refused`` says that the bound could not tell right from wrong."""

    faults: list[Fault] = field(default_factory=list)
    worst_ratio: float | None = None
    departures: list[Departure] = field(default_factory=list)
    refused: str | None = None
    bounds: dict[str, Any] = field(default_factory=dict)
    """What results were compared within, by result."""

    def see(self, ratio: float) -> None:
        """Remember the largest error / bound."""
        self.worst_ratio = max(ratio, self.worst_ratio or 0.0)


@dataclass(frozen=True)
class Call:
    """One stage call to judge: inputs on exactly the port's bits in float64, the reference's and the port's results."""

    stage: str
    inputs: Mapping[str, Any]
    reference: Mapping[str, Any]
    answer: Mapping[str, Any]
    precision: Precision
    kind: Kind = "bounded"
    lowest_index: bool = False
    judged: tuple[str, ...] | None = None
    ask: Callable[[Any], Mapping[str, Any] | None] = lambda case: None
    """The port's own results for another case (`proofs_checks.judge.ask`); None where it has none."""

    def names(self) -> tuple[str, ...]:
        """The results that this case judges."""
        return self.judged or tuple(self.reference)


def compare(
    judgement: Judgement, name: str, answer: Any, reference: Any, bound: Any, where: tuple[int, ...] = ()
) -> None:
    """Add to ``judgement`` the worst |answer - reference| / bound, and a fault where it exceeds 1.

    Equal infinities agree; a bound of 0 asks for equality; NaN never agrees. ``where`` is the part of the result that
    ``answer`` is.
    """
    answer, reference = np.asarray(answer, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if answer.size == 0:
        return
    bound = np.broadcast_to(np.asarray(bound, dtype=np.float64), answer.shape)
    judgement.bounds.setdefault(name, bound)
    with np.errstate(invalid="ignore", divide="ignore"):
        error = np.where(answer == reference, 0.0, np.abs(answer - reference))
        ratio = np.where(error == 0, 0.0, error / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    worst = np.unravel_index(int(np.argmax(ratio)), ratio.shape)
    judgement.see(float(ratio[worst]))
    if ratio[worst] > 1:
        wrong = int(np.count_nonzero(ratio > 1))
        judgement.faults.append(
            Fault(
                name,
                (*where, *(int(i) for i in worst)),
                f"{name}{[*where, *map(int, worst)]} is {answer[worst]:.9g}, expected {reference[worst]:.9g} "
                f"within {bound[worst]:.3g}; {wrong} of {ratio.size} elements are out of bound",
                float(ratio[worst]),
                picture=ratio_map(name, ratio),
            )
        )


def compare_exactly(judgement: Judgement, name: str, answer: Any, reference: Any) -> None:
    """Add a fault where any element differs at all."""
    answer, reference = np.asarray(answer), np.asarray(reference)
    different = ~(answer == reference)
    if different.any():
        where = tuple(int(i) for i in np.argwhere(different)[0])
        count = int(np.count_nonzero(different))
        judgement.faults.append(
            Fault(
                name,
                where,
                f"{name}{list(where)} is {answer[where]!s}, expected exactly {reference[where]!s}; "
                f"{count} of {answer.size} elements differ",
                picture=ratio_map(name, np.where(different, np.inf, 0.0)),
            )
        )


def says_nothing(reference: Mapping[str, Any], bounds: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether ``other`` (zeros, or another case's answer) would pass everywhere: then the bound says nothing."""
    for name, bound in bounds.items():
        want, got = np.asarray(reference[name]), np.asarray(other[name])
        if want.shape != got.shape:
            return False
        with np.errstate(invalid="ignore"):
            error = np.where(want == got, 0.0, np.abs(want - got))
        if not np.all(error <= bound):
            return False
    return True
