"""The register of deliberately wrong ports: each replaces one stage of a right port and says which fault it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

StageFunction = Callable[..., Any]


@dataclass(frozen=True)
class Mutant:
    """A wrong port: ``stage`` is replaced by ``function``; ``suspect`` is its class of fault.

    ``sized`` says that it is wrong at unusual sizes alone.
    """

    id: str
    stage: str
    suspect: str
    what: str
    function: StageFunction
    constants: tuple[tuple[str, Any], ...] = ()
    sized: bool = False


_REGISTER: dict[str, Mutant] = {}


def mutant(
    name: str, stage: str, suspect: str, what: str, *, sized: bool = False, **constants: Any
) -> Callable[[StageFunction], StageFunction]:
    """Register the decorated function as a mutant of ``stage``. ``constants`` are what the port declares."""

    def register(function: StageFunction) -> StageFunction:
        if name in _REGISTER:
            raise ValueError(f"mutant {name} is registered twice")
        _REGISTER[name] = Mutant(name, stage, suspect, what, function, tuple(constants.items()), sized)
        return function

    return register


def mutants() -> dict[str, Mutant]:
    """All mutants by id, in the order of the stage table."""
    from proofs_checks.judge.stages import STAGES
    from proofs_checks.mutants import (  # noqa: F401  (importing registers)
        attention,
        baseline_evictions,
        baseline_kivi,
        baseline_pages,
        baseline_selections,
        baseline_steps,
        baseline_token_scores,
        baseline_turboquant,
        locks_codec,
        locks_packing,
        locks_score,
        locks_select,
        one_size,
        one_size_locks,
        paging,
        readkv_allocation,
        readkv_codec,
        readkv_quantiser,
        readkv_reader,
        readkv_restricted,
    )

    order = {stage: i for i, stage in enumerate(STAGES)}
    return dict(sorted(_REGISTER.items(), key=lambda item: order[item[1].stage]))
