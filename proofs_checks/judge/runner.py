"""The parent's side of the port's process: start it, talk to it within limits, and turn its end into a sentence."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proofs_checks.judge import memory, wire

OUTPUT_LIMIT = 1 << 20
"""Bytes that a port may print during one call; a flood would fill the disk or the terminal of whoever judges it."""

PERTURB = "128"
"""glibc fills fresh memory with the complement of this byte, 0x7F: 3.39e38 in float32, so an unwritten result shows."""

CHUNK = 1 << 16
"""Bytes read or written at a time."""

REPLY_LIMIT = 1 << 30
"""Bytes of one reply; no stage's results come near, and whoever judges must hold them."""

TICK = 0.05
"""Seconds between two looks at the port's memory."""

IMPORT_TIMEOUT = 120.0
"""Seconds for importing a port, frameworks included."""


class PortStopped(Exception):  # noqa: N818  (an outcome of judging, not a fault of ours)
    """The port's process ended, hung or flooded; ``verdict`` is ERROR or TIMEOUT and the text says what happened."""

    def __init__(self, verdict: str, message: str) -> None:
        super().__init__(message)
        self.verdict = verdict


class PortProcess:
    """One child process that holds a port. Restarted by `load` after it stopped.

    ``memory_limit`` is MiB; ``python`` is the interpreter that runs it, this process's own where none is given.
    """

    def __init__(
        self, spec: str, device: str | None = None, memory_limit: int | None = None, python: str | None = None
    ) -> None:
        self.spec, self.device, self.python = spec, device, python or sys.executable
        self.memory_limit = memory.default_limit() if memory_limit is None else memory_limit
        self._looked = 0.0
        self._child: subprocess.Popen[bytes] | None = None
        self._write = self._read = -1

    def load(self) -> dict[str, Any]:
        """Start the process, import the port, and return what it declares. Raises PortStopped."""
        self.close()
        child_in, self._write = os.pipe()
        self._read, child_out = os.pipe()
        root = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH")) if p)
        self._child = subprocess.Popen(
            [self.python, "-P", "-m", "proofs_checks.judge.worker", self.spec, str(child_in), str(child_out)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(child_in, child_out),
            env={**os.environ, "PYTHONPATH": path, "MALLOC_PERTURB_": PERTURB},
            start_new_session=True,
        )
        os.close(child_in)
        os.close(child_out)
        os.set_blocking(self._write, False)
        reply, _ = self.ask({"op": "load", "device": self.device}, {}, IMPORT_TIMEOUT, "importing the port")
        return reply

    @property
    def alive(self) -> bool:
        """Whether the process can take another call."""
        return self._child is not None and self._child.poll() is None

    def ask(
        self, header: Mapping[str, Any], arrays: Mapping[str, Any], timeout: float, doing: str
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Send one message and wait for the reply. Raises PortStopped where none comes within ``timeout`` seconds."""
        outgoing = memoryview(wire.encode(header, arrays))
        message = self._exchange(outgoing, time.monotonic() + timeout, timeout, doing)
        try:
            reply, results = wire.decode(message)
            return {**reply, "status": str(reply["status"])}, results
        except Exception:  # whatever is in there, it is not what the worker writes
            raise self._ended("ERROR", f"wrote into its connection while {doing}") from None

    def _exchange(self, outgoing: memoryview, deadline: float, timeout: float, doing: str) -> bytes:
        """Write, read and drain what is printed in one loop, so that no full pipe can block another."""
        child = self._child
        if child is None or child.stdout is None:
            raise PortStopped("ERROR", "the port's process is not running")
        printed, message, needed = 0, bytearray(), wire.LENGTHS
        with selectors.DefaultSelector() as selector:
            selector.register(self._write, selectors.EVENT_WRITE)
            selector.register(self._read, selectors.EVENT_READ)
            selector.register(child.stdout, selectors.EVENT_READ)
            while len(message) < needed:
                left = deadline - time.monotonic()
                ready = selector.select(min(left, TICK)) if left > 0 else []
                self._look(child.pid, doing)
                if left <= 0:
                    raise self._ended("TIMEOUT", f"no answer within {timeout:g} s while {doing}")
                for key, _ in ready:
                    if key.fd == self._write:
                        outgoing = self._push(outgoing, doing)
                        if not outgoing:
                            selector.unregister(self._write)
                    elif key.fileobj is child.stdout:
                        chunk = os.read(key.fd, CHUNK)
                        printed += len(chunk)
                        if not chunk:
                            selector.unregister(child.stdout)
                        if printed > OUTPUT_LIMIT:
                            raise self._ended("ERROR", f"printed more than {OUTPUT_LIMIT >> 20} MiB while {doing}")
                    else:
                        needed = self._receive(message, needed, doing)
        return bytes(message)

    def _receive(self, message: bytearray, needed: int, doing: str) -> int:
        """Read on; the length of the whole message, as soon as its head tells it."""
        chunk = os.read(self._read, min(needed - len(message), CHUNK))
        if not chunk:
            raise self._stopped(doing)
        message += chunk
        if len(message) == wire.LENGTHS == needed:
            needed += wire.sizes(bytes(message))
            if needed > REPLY_LIMIT:
                raise self._ended("ERROR", f"answered with more than {REPLY_LIMIT >> 20} MiB while {doing}")
        return needed

    def _ended(self, verdict: str, message: str) -> PortStopped:
        """End the process; what is to be raised about it."""
        self.close()
        return PortStopped(verdict, message)

    def _look(self, pid: int, doing: str) -> None:
        """End a process that holds more memory than it may."""
        now = time.monotonic()
        if now - self._looked < TICK:
            return
        self._looked = now
        held = memory.held(pid)
        if held is not None and held > self.memory_limit:
            raise self._ended("ERROR", f"used more than {self.memory_limit} MiB of memory while {doing}")

    def _push(self, outgoing: memoryview, doing: str) -> memoryview:
        try:
            return outgoing[os.write(self._write, outgoing[:CHUNK]) :]
        except BlockingIOError:
            return outgoing
        except OSError:
            raise self._stopped(doing) from None

    def _stopped(self, doing: str) -> PortStopped:
        """Why the connection closed: the child's exit status, or that it closed its end."""
        child = self._child
        try:
            status = child.wait(timeout=2) if child else None
        except subprocess.TimeoutExpired:
            status = None
        self.close()
        if status is None:
            return PortStopped("ERROR", f"closed its connection while {doing}")
        if status < 0:
            return PortStopped("ERROR", f"killed by {signal.Signals(-status).name} while {doing}")
        return PortStopped("ERROR", f"exited with status {status} while {doing}")

    def close(self) -> None:
        """End the process and all it started."""
        if self._child is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, signal.SIGKILL)
            self._child.wait()
            if self._child.stdout is not None:
                self._child.stdout.close()
            os.close(self._write)
            os.close(self._read)
            self._child = None

    def __enter__(self) -> PortProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
