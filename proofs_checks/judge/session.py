"""Where answers come from: a port's live process, or files that some program wrote. Judging knows no difference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from proofs_checks.judge.case import Case
from proofs_checks.judge.declared import Declared, PortError
from proofs_checks.judge.judging import Prepared
from proofs_checks.judge.runner import PortProcess, PortStopped


class Session(Protocol):
    """One port being judged."""

    @property
    def spec(self) -> str:
        """The port as its user names it."""

    @property
    def declared(self) -> Declared:
        """What the port says of itself."""

    @property
    def answers(self) -> dict[str, Any]:
        """What it answered to cases that checks asked for, by case id (`proofs_checks.judge.ask`)."""

    def takes(self, case: Case) -> bool:
        """Whether this way of calling can deliver the case at all."""

    def renew(self) -> bool:
        """Make the port forget its earlier calls; False where that is impossible or changes nothing."""

    def call(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """One call: "status" ok, wrong, error or not_provided; "results", else "message" and perhaps "suspect"."""


@dataclass(frozen=True)
class LiveSession:
    """A port in a process of its own."""

    spec: str
    process: PortProcess
    declared: Declared
    timeout: float
    answers: dict[str, Any] = field(default_factory=dict)

    def takes(self, case: Case) -> bool:
        """A live port is called with every case."""
        return True

    def renew(self) -> bool:
        """End the process; the next call starts another."""
        self.process.close()
        return True

    def call(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """One call; the reply's header with the results under "results". Restarts a process that has ended."""
        if not self.process.alive:
            self.process.load()
        stage, sent = prepared.stage, prepared.sent
        arrays = {k: v for k, v in sent.items() if hasattr(v, "dtype")}
        header = {
            "op": "call",
            "stage": stage.name,
            "plain": {k: v for k, v in sent.items() if k not in arrays},
            "dtypes": {k: dtype for k in arrays if stage.arguments.get(k) == "input"},
            "optional": list(stage.optional),
            "results": list(stage.results),
            "delivery": prepared.case.delivery,
            "lists": stage.lists,
            "out": self._out(prepared, dtype),
            "poison": len(prepared.case.name),  # any number that differs from case to case
        }
        reply, results = self.process.ask(header, arrays, self.timeout, f"running {prepared.case.id}")
        try:
            return answered(reply, results, stage.results)
        except (KeyError, TypeError, ValueError, AttributeError):
            self.process.close()
            text = f"sent a reply of its own making while running {prepared.case.id}"
            raise PortStopped("ERROR", text) from None

    def _out(self, prepared: Prepared, dtype: str) -> dict[str, Any]:
        """Shapes and dtypes of preallocated results, one per part of a list; none where the call must raise."""
        if prepared.case.must_raise:
            return {}
        types = {"output": self.declared.output or dtype, "float": self.declared.accumulate, "index": "int64"}

        def described(value: Any, role: str) -> list[Any]:
            if role == "floats":
                return [described(part, "float") for part in value]
            return [list(np.shape(value)), types.get(role, role)]

        return {name: described(prepared.reference[name], role) for name, role in prepared.stage.results.items()}


def answered(reply: Mapping[str, Any], results: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A reply with its results, lists put together. Raises KeyError or the like for what the worker never sends.

    A port can write into its own connection; judging must not stumble over it.

    >>> answered({"status": "ok", "lists": {"x": 2}}, {"x_0": 1, "x_1": 2}, ["x"])["results"]
    {'x': [1, 2]}
    """
    for name, count in reply.get("lists", {}).items():
        results[name] = [results.pop(f"{name}_{i}") for i in range(count)]
    if reply["status"] != "ok":
        known = {"wrong": "wrong", "error": "error", "not_provided": "not_provided"}
        return {"status": known[reply["status"]], "message": str(reply["message"]), "suspect": reply.get("suspect")}
    return {"status": "ok", "results": {name: results[name] for name in names}}


@contextmanager
def live_session(
    port: str,
    device: str | None = None,
    timeout: float = 20.0,
    memory_limit: int | None = None,
    python: str | None = None,
) -> Iterator[LiveSession]:
    """Load ``port`` in a process that ends with the block. Raises PortError where it cannot be used.

    ``timeout`` is seconds per call, ``memory_limit`` MiB of the process, ``python`` its interpreter.
    """
    with PortProcess(port, device, memory_limit, python) as process:
        yield LiveSession(port, process, load(process), timeout)


def load(process: PortProcess) -> Declared:
    """Start the process and read what the port declares. Raises PortError where it cannot be used."""
    if process.spec.endswith(".py") and not Path(process.spec).exists():
        raise PortError(f"cannot import {process.spec}: no such file")
    try:
        reply = process.load()
    except PortStopped as stopped:
        raise PortError(f"cannot import {process.spec}: {stopped}") from None
    if reply["status"] != "ok":
        raise PortError(f"cannot import {process.spec}: {reply['message']}")
    return Declared.read(reply)
