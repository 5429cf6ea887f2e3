"""The search that tries to break a statement: hill climbing with SciPy, and Hypothesis with a target."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.statements.statement import HypothesisError, Instance, Slack, StatementModule, fields
from refimpl.checks import FloatArray


def pick(instance: Instance, index: int) -> Instance:
    """The single instance at ``index`` of a batch (arrays and lists are batched); other fields are kept.

    >>> pick({"a": np.array([[1.0], [2.0]]), "rank": 3}, 1)
    {'a': array([[2.]]), 'rank': 3}
    """
    return {k: v[index : index + 1] if isinstance(v, (np.ndarray, list)) else v for k, v in fields(instance).items()}


def flatten(instance: Instance, names: tuple[str, ...]) -> FloatArray:
    """The real fields of a single instance as one vector."""
    return np.concatenate([np.asarray(instance[f], dtype=np.float64).ravel() for f in names])


def replace(instance: Instance, names: tuple[str, ...], vector: FloatArray) -> Instance:
    """``instance`` with its real fields read back out of ``vector``.

    >>> replace({"a": np.zeros((1, 2)), "b": 1}, ("a",), np.array([3.0, 4.0]))
    {'a': array([[3., 4.]]), 'b': 1}
    """
    result, start = fields(instance), 0
    for field in names:
        size = instance[field].size
        result[field] = vector[start : start + size].reshape(instance[field].shape)
        start += size
    return result


class Hunt:
    """Evaluates a statement over and over, and keeps the tightest instance and every violation it meets."""

    def __init__(self, module: StatementModule) -> None:
        self.module, self.instances = module, 0
        self.tightest: float | None = None
        self.best: Instance | None = None
        self.violations: list[Instance] = []
        self.undecided: list[Instance] = []
        self.undecided_count = 0

    def look(self, instance: Instance) -> float:
        """Check one batch; returns its tightest ratio (-1 if none)."""
        slack = self.module.check(instance)
        self.instances += len(slack.left)
        for index in np.flatnonzero(slack.violated)[:3]:
            self.violations.append(pick(instance, int(index)))
        self.undecided_count += int(np.sum(slack.undecided))
        for index in np.flatnonzero(slack.undecided)[: max(0, 3 - len(self.undecided))]:
            self.undecided.append(pick(instance, int(index)))
        return self._keep(instance, slack)

    def _keep(self, instance: Instance, slack: Slack) -> float:
        ratio = slack.tightest
        if ratio is None:
            return -1.0
        if self.tightest is None or ratio > self.tightest:
            self.tightest, self.best = ratio, pick(instance, int(np.nanargmax(slack.ratios)))
        return ratio

    def try_look(self, instance: Instance) -> float:
        """`look`, where the searcher may have broken a hypothesis: such an instance is refused and counts -1."""
        try:
            return self.look(instance)
        except HypothesisError:
            return -1.0


def climb(hunt: Hunt, start: Instance, names: tuple[str, ...], evaluations: int) -> None:
    """Nelder-Mead on the tightness ratio from ``start``, in units of each entry's own size."""
    from scipy.optimize import minimize

    origin = flatten(start, names)
    unit = np.where(origin != 0, np.abs(origin), 1e-3 + np.mean(np.abs(origin)))

    def objective(step: FloatArray) -> float:
        return -hunt.try_look(replace(start, names, origin + unit * step))

    minimize(objective, np.zeros(origin.size), method="Nelder-Mead", options={"maxfev": evaluations, "adaptive": True})


def target(hunt: Hunt, start: Instance, names: tuple[str, ...], examples: int) -> None:
    """Hypothesis drives the same fields towards a larger ratio; skipped where Hypothesis is not installed."""
    try:
        import hypothesis
        from hypothesis import strategies
    except ImportError:  # pragma: no cover - depends on the machine
        return
    origin = flatten(start, names)
    entries = strategies.lists(strategies.floats(-1, 1), min_size=origin.size, max_size=origin.size)

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(entries, strategies.integers(-4, 2))
    def drive(vector: list[float], exponent: int) -> None:
        hypothesis.target(hunt.try_look(replace(start, names, np.array(vector) * 10.0**exponent)))

    drive()


def fields_of(module: Any) -> tuple[str, ...]:
    """The real fields that the search may move; empty for statements about finite families."""
    return getattr(module, "SEARCH", ())
