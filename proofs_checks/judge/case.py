"""A case: one input of one stage, why it is there, and how its answer is judged."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from proofs_checks.judge.judgement import Judgement, Kind
from proofs_checks.numbers import Precision

Inputs = dict[str, Any]
PROFILES = ("interpreter", "quick", "default", "deep")
"""Each has all cases of the one before; "interpreter" is for ports that pay for every operation."""


@dataclass(frozen=True)
class Relation:
    """A metamorphic relation: how to change the inputs, and what must then hold between the two answers.

    ``allowance`` is how many bounds of the reference the two answers together may be apart.
    """

    change: Callable[[Inputs], Inputs]
    expect: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    allowance: float = 2.0


class Calls(Protocol):
    """A port as a trial sees it (`proofs_checks.judge.trials`)."""

    @property
    def precision(self) -> Precision:
        """What the port declares for the trial's dtype."""

    @property
    def reproducible(self) -> bool:
        """Whether the port declares the same bits over runs and batch sizes."""

    def provides(self, stage: str) -> bool:
        """Whether the port has the stage."""

    def ask(self, inputs: Inputs, shapes: Mapping[str, tuple[int, ...]], stage: str | None = None) -> dict[str, Any]:
        """The port's results, of these shapes and finite; ``inputs`` are as the port receives them."""

    def judged(self, inputs: Inputs, calls: int = 1) -> list[tuple[dict[str, Any], Judgement]]:
        """The port's results, call by call, and what the stage's own check says of each; for inputs of a usual size."""


Trial = Callable[[Calls, Inputs], Judgement]
"""What a trial does with a port, from the case's inputs as the port receives them."""


@dataclass(frozen=True)
class Case:
    """One case.

    ``name`` is unique within the stage. ``suspect`` is the class of fault that the case isolates; ``probe`` says that
    it does isolate it (a general case fails for many reasons and takes the stage's diagnosis). ``judged`` limits the
    results that are looked at. ``poison`` changes what the port sees and the reference does not, in places that the
    stage must never read. ``dtypes`` limits the input dtypes in which the inputs are representable. ``delivery`` says
    how the port's arrays lie in memory (`proofs_checks.judge.delivery`); such a case repeats the case named ``base``,
    so it diagnoses only where that one passes. ``must_raise`` inputs are illegal: a port that answers them is wrong.
    ``sized`` says that a probe meets a fault of size (a tile, a count, an integer type): faults of every class show at
    an unusual size too, so such probes stand after all others.
    ``trial`` makes calls of its own and judges them together; such a case is metamorphic, needs a live port, and the
    reference is never run on its inputs as a whole.
    """

    stage: str
    name: str
    kind: Kind
    suspect: str
    why: str
    inputs: Callable[[], Inputs]
    probe: bool = True
    judged: tuple[str, ...] | None = None
    poison: Callable[[Inputs], Inputs] | None = None
    relation: Relation | None = None
    dtypes: tuple[str, ...] = ("float32", "float16", "bfloat16", "float64")
    profile: str = "quick"
    delivery: str = "plain"
    base: str | None = None
    must_raise: bool = False
    sized: bool = False
    trial: Trial | None = None

    @property
    def plain(self) -> bool:
        """Whether it is one call that is answered: no relation, no trial, nothing to be refused."""
        return self.relation is None and self.trial is None and not self.must_raise

    @property
    def id(self) -> str:
        """``stage/name``."""
        return f"{self.stage}/{self.name}"


def generator(*words: str) -> np.random.Generator:
    """A generator that depends on nothing but the words: the same inputs on every machine and in any order."""
    return np.random.default_rng([zlib.crc32(word.encode()) for word in words])


def within_profile(case: Case, profile: str) -> bool:
    """Whether a profile includes the case: quick is part of default, default of deep.

    Of quick, "interpreter" has the probes that isolate a fault on inputs of a usual size, and no general case.

    >>> PROFILES.index("quick") < PROFILES.index("deep")
    True
    """
    if profile == "interpreter":
        return case.profile == "quick" and case.probe and not case.sized
    return PROFILES.index(case.profile) <= PROFILES.index(profile)


@dataclass(frozen=True)
class Family:
    """Makes the cases of one stage: probes, which isolate one class of fault, and general cases."""

    stage: str
    suspect: str
    """The class that a general case names where no probe failed."""

    def exact(self, name: str, suspect: str, why: str, inputs: Callable[[], Inputs], **more: Any) -> Case:
        """A probe whose answer must match bit for bit."""
        return Case(self.stage, name, "exact", suspect, why, inputs, **more)

    def illegal(self, name: str, suspect: str, why: str, inputs: Callable[[], Inputs]) -> Case:
        """A probe whose inputs a port must refuse by raising."""
        return self.exact(name, suspect, why, inputs, must_raise=True)

    def probe(self, name: str, suspect: str, why: str, inputs: Callable[[], Inputs], **more: Any) -> Case:
        """A probe judged by the stage's own check (a bound, or a set)."""
        return Case(self.stage, name, more.pop("kind", "bounded"), suspect, why, inputs, **more)

    def size(self, name: str, suspect: str, why: str, inputs: Callable[[], Inputs], **more: Any) -> Case:
        """A probe of an unusual size; it isolates where everything of a usual size passes."""
        return self.probe(name, suspect, why, inputs, **more, sized=True)

    def general(self, name: str, why: str, inputs: Callable[[], Inputs], **more: Any) -> Case:
        """A general case: random or real inputs."""
        return Case(self.stage, name, more.pop("kind", "bounded"), self.suspect, why, inputs, probe=False, **more)

    def relation(
        self,
        name: str,
        why: str,
        inputs: Callable[[], Inputs],
        change: Callable[[Inputs], Inputs],
        expect: Callable[[Mapping[str, Any]], Mapping[str, Any]] = dict,
        **more: Any,
    ) -> Case:
        """A metamorphic case: two calls and what must hold between them."""
        link = Relation(change, expect)
        return Case(self.stage, name, "metamorphic", self.suspect, why, inputs, probe=False, relation=link, **more)
