"""One row of the stage table: a stage's keywords, results, reference, check and source; all else follows from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.judge.checks.general import Check, within
from proofs_checks.numbers import FORMATS, round_to
from refimpl import port as reference

CARRIERS = {"int8": np.int8, "uint8": np.uint8, "index": np.int64}


@dataclass(frozen=True)
class Stage:
    """One row.

    ``arguments`` maps keywords to roles: "input" (arrives rounded to the port's input dtype), "float" (arrives as
    float32), "int8", "uint8", "index" (int64), "plain" (a number, boolean, string or None). ``results`` maps names to
    roles: "output" (the declared output dtype), "float" (the accumulation dtype), "floats" (a list of such arrays),
    "int8", "uint8", "index".
    """

    name: str
    arguments: Mapping[str, str]
    results: Mapping[str, str]
    source: str
    check: Check
    bound: Callable[..., Any] | None = None
    optional: tuple[str, ...] = ("softmax_scale",)

    @property
    def reference(self) -> Callable[..., Any]:
        """The float64 function of this stage."""
        function: Callable[..., Any] = getattr(reference, self.name)
        return function

    @property
    def lists(self) -> list[str]:
        """The results that are lists of arrays."""
        return [name for name, role in self.results.items() if role == "floats"]

    def signature(self) -> str:
        """The call as a port author writes it.

        >>> from proofs_checks.judge.stages import STAGES
        >>> STAGES["locks_score_pages"].signature()
        'locks_score_pages(*, queries, centroid, basis, coefficients)'
        """
        return f"{self.name}(*, {', '.join(self.arguments)})"

    def named(self, result: Any) -> dict[str, Any]:
        """A result as a dict: one result comes as the array itself, several as a dict."""
        if len(self.results) == 1:
            return {next(iter(self.results)): result}
        return dict(result)

    def round_inputs(self, inputs: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        """Inputs as a port receives them: arrays rounded to ``dtype``, float32 or their integer type."""
        return {name: _carry(self.arguments.get(name, "plain"), value, dtype) for name, value in inputs.items()}

    def exact_inputs(self, carried: Mapping[str, Any]) -> dict[str, Any]:
        """The same bits in float64 and int64, as the reference and the bounds take them."""
        return {name: _widen(value) for name, value in carried.items()}


def _carry(role: str, value: Any, dtype: str) -> Any:
    if role == "input":
        return round_to(value, dtype)
    if role == "float":
        return np.asarray(value).astype(FORMATS["float32"].carrier)
    if role in CARRIERS and not isinstance(value, int):  # a depth may be one whole number
        return np.asarray(value).astype(CARRIERS[role])
    return value


def _widen(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.astype(np.float64 if value.dtype.kind == "f" else np.int64)
    return value


def bounded(
    name: str, arguments: Mapping[str, str], results: Mapping[str, str], source: str, bound: Callable[..., Any]
) -> Stage:
    """A row whose check is its bound."""
    return Stage(name, arguments, results, source, within(bound), bound)
