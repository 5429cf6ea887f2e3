"""What a statement of the papers is here: five functions on a batch of instances, and the slack between two sides."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from refimpl.checks import FloatArray

# An instance is a dict of named fields. Arrays and lists carry a leading batch axis N (a single instance has N = 1);
# whole numbers such as a rank hold for the entire batch.
Instance = dict[str, Any]


def memo(instance: Instance, name: str, build: Callable[[], Any]) -> Any:
    """What ``build`` returns, kept in the instance under a name that starts with "_".

    Both sides and the guard need the same decompositions. Whoever copies an instance to change it drops these names
    (`fields`).

    >>> instance: Instance = {}
    >>> memo(instance, "_twice", lambda: [1]) is memo(instance, "_twice", lambda: [2])
    True
    """
    if name not in instance:
        instance[name] = build()
    return instance[name]


def fields(instance: Instance) -> Instance:
    """The instance without what `memo` keeps in it."""
    return {name: value for name, value in instance.items() if not name.startswith("_")}


class HypothesisError(ValueError):
    """An instance breaks a hypothesis of the statement it was given to; the message names the hypothesis."""


class VacuousError(HypothesisError):
    """A certificate is infinite for this instance: it holds, and says nothing."""


def require(condition: Any, hypothesis: str, got: object = "", error: type[HypothesisError] = HypothesisError) -> None:
    """Refuse the instance unless ``condition`` holds (everywhere, for an array).

    >>> require(2 >= 1, "k >= 1")
    >>> require(np.array([True, False]), "the kept set is nonempty", "row 1 keeps nothing")
    Traceback (most recent call last):
    ...
    proofs_checks.statements.statement.HypothesisError: hypothesis 'the kept set is nonempty' fails: row 1 keeps nothing
    """
    if not np.all(condition):
        detail = f": {got}" if got != "" else ""
        raise error(f"hypothesis '{hypothesis}' fails{detail}")


class Kind(Enum):
    """What sort of claim a statement makes; it decides what ``--scale-bound`` means for it."""

    UPPER_BOUND = "upper bound"  # left <= right; scaling multiplies right
    LOWER_BOUND = "lower bound"  # left >= right; scaling divides right
    IDENTITY = "identity"  # left == right; nothing to scale
    IMPOSSIBILITY = "impossibility"  # two objects that a class cannot tell apart; nothing to scale


@dataclass(frozen=True)
class Slack:
    """Both sides of a statement on a batch, with a derived bound on the rounding of their difference. All [N]."""

    kind: Kind
    left: FloatArray
    right: FloatArray
    guard: FloatArray

    @property
    def margin(self) -> FloatArray:
        """How far the claim is from failing, in the units of its sides; negative is a float64 violation. [N]."""
        if self.kind is Kind.UPPER_BOUND:
            return self.right - self.left
        if self.kind is Kind.LOWER_BOUND:
            return self.left - self.right
        return -np.abs(self.left - self.right)

    @property
    def violated(self) -> Any:
        """Instances that fail by more than rounding can explain. Bool [N]. NaN counts as a failure."""
        with np.errstate(invalid="ignore"):
            return ~(self.margin >= -self.guard)

    @property
    def undecided(self) -> Any:
        """Instances that float64 calls a violation, but within the guard: ball arithmetic may decide. Bool [N]."""
        return ~self.violated & (self.margin < 0) & (self.kind in (Kind.UPPER_BOUND, Kind.LOWER_BOUND))

    @property
    def ratios(self) -> FloatArray:
        """Certified tightness of every instance, at most 1 where the claim holds; NaN where a ratio says nothing. [N].

        The guard is subtracted from the tight side, so a ratio of rounding noise to rounding noise reads 0.

        >>> half = Slack(Kind.UPPER_BOUND, np.array([1.0]), np.array([2.0]), np.array([0.0]))
        >>> half.ratios.tolist(), half.tightest
        ([0.5], 0.5)
        """
        if self.kind is Kind.UPPER_BOUND:
            small, large = self.left - self.guard, self.right
        elif self.kind is Kind.LOWER_BOUND:
            small, large = self.right, self.left + self.guard
        else:
            return np.full(self.left.shape, np.nan)
        usable = np.isfinite(large) & (large > 0)
        return np.where(usable, small / np.where(usable, large, 1.0), np.nan)

    @property
    def tightest(self) -> float | None:
        """The largest certified ratio of the batch, or None if no instance has one."""
        ratios = self.ratios
        return None if np.all(np.isnan(ratios)) else float(np.nanmax(ratios))


@dataclass(frozen=True)
class About:
    """What the registry, the runner and docs/theorems.md say about one statement."""

    id: str  # such as "locks-theorem-1-ii"
    source: str  # such as "Locks Thm. 1(ii)"
    claim: str  # in our words
    hypotheses: str  # in our words
    kind: Kind
    tight: str  # the tight instance in words
    no_constant: str = ""  # why scaling cannot refute it; empty if it can
    hazard: str = ""  # where float64 misleads, and the guard
    finding: str = ""  # what we found to be loose, sharp or missing
    ours: bool = False  # a sharper or additional form that the papers do not state
    proof: str = ""  # for ours: the proof
    exhaustive: bool = False  # its instances are finite families that are enumerated, not sampled


class StatementModule(Protocol):
    """The names that every statement file provides."""

    ABOUT: About
    __name__: str

    def hypotheses(self, instance: Instance) -> None:
        """Raise HypothesisError, naming the hypothesis, unless the instance satisfies all of them."""

    def left(self, instance: Instance) -> FloatArray:
        """Left side. [N]."""

    def right(self, instance: Instance) -> FloatArray:
        """Right side. [N]."""

    def check(self, instance: Instance, scale: float = 1.0) -> Slack:
        """Both sides with the guard, the bound scaled."""

    def tight_instance(self) -> Instance:
        """The tightest instance we know."""

    def sample(self, rng: np.random.Generator, count: int) -> Instance:
        """``count`` random instances of one random shape."""


Side = Callable[[Instance], FloatArray]
Check = Callable[..., Slack]


def checker(about: About, hypotheses: Callable[[Instance], None], left: Side, right: Side, guard: Side) -> Check:
    """The ``check`` of a statement file: refuse broken hypotheses, evaluate both sides, scale the bound.

    >>> about = About("x", "", "", "", Kind.LOWER_BOUND, "")
    >>> check = checker(about, lambda i: None, lambda i: i["a"], lambda i: i["b"], lambda i: 0 * i["a"])
    >>> check({"a": np.array([1.0]), "b": np.array([0.95])}).violated.tolist()
    [False]
    >>> check({"a": np.array([1.0]), "b": np.array([0.95])}, scale=0.9).violated.tolist()
    [True]
    """

    def check(instance: Instance, scale: float = 1.0) -> Slack:
        hypotheses(instance)
        first, second = np.atleast_1d(left(instance)), np.atleast_1d(right(instance))
        width = np.broadcast_to(np.atleast_1d(guard(instance)), first.shape)
        if about.kind is Kind.UPPER_BOUND:
            second = second * scale
        elif about.kind is Kind.LOWER_BOUND:
            second = second / scale
        return Slack(about.kind, first, np.broadcast_to(second, first.shape), width)

    check.__doc__ = f"Both sides of {about.source} on a batch, the bound scaled by ``scale``."
    return check


def no_rounding(instance: Instance) -> FloatArray:
    """The guard of a statement whose sides are computed exactly (small integers, rationals, comparisons)."""
    return np.zeros(1)
