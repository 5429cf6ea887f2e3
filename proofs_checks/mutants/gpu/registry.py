"""The register of wrong kernels: each is one edit of one file of `fastimpl`, and says which fault it is.

An edit of the text, not a patch at run time: the mutated package is compiled from scratch in a process of its own, and
an edit whose text is gone says so, so that no mutant outlives the code that it spoils.
"""

from __future__ import annotations

from dataclasses import dataclass

from proofs_checks.judge.stages import STAGES


@dataclass(frozen=True)
class KernelMutant:
    """``fastimpl`` with ``old``, found once in ``file``, replaced by ``new``.

    ``stage`` is where it must be caught and ``suspect`` its class of fault. ``port`` is the module of `fastimpl` that
    is judged, ``first`` the case that is tried first: compiling takes longer than judging.
    """

    id: str
    stage: str
    suspect: str
    what: str
    file: str
    old: str
    new: str
    port: str = "port"
    first: str = ""


_REGISTER: dict[str, KernelMutant] = {}


def kernel_mutant(
    name: str,
    stage: str,
    suspect: str,
    what: str,
    *,
    file: str,
    old: str,
    new: str,
    port: str = "port",
    first: str = "",
) -> None:
    """Register a wrong kernel."""
    if name in _REGISTER:
        raise ValueError(f"kernel mutant {name} is registered twice")
    _REGISTER[name] = KernelMutant(name, stage, suspect, what, file, old, new, port, first)


def kernel_mutants() -> dict[str, KernelMutant]:
    """All of them by id, in the order of the stage table."""
    from proofs_checks.mutants.gpu import locks, readkv  # noqa: F401  (importing registers)

    order = {stage: i for i, stage in enumerate(STAGES)}
    return dict(sorted(_REGISTER.items(), key=lambda item: order[item[1].stage]))
