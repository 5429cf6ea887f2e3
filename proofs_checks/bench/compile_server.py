"""Compiles each kernel in a process of its own, forked from one that has loaded the compiler already.

A back end may abort, so the compile needs a process; loading torch and Triton takes as long as most compiles, so the
process is a copy. One JSON line comes back for each line "KERNEL TARGET BRANCH" on standard input.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import IO, Any

TIMEOUT = 600.0
NOTHING = {"registers": None, "spills": None, "shared_bytes": None}
Job = tuple[str, str, str]
"""Kernel, target, branch."""


def apart(job: Job) -> dict[str, Any]:
    """Compile in a fork of this process: ok, registers, spills, shared_bytes, message."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            _compile_and_leave(job, out, err)
        status = _wait(child)
        out.seek(0)
        err.seek(0)
        said = [line.strip() for line in err.read().splitlines() if "rror" in line or "operands" in line]
        text = out.read()
    if status == 0 and text:
        return {"ok": True, **json.loads(text), "message": ""}
    why = f"no result within {TIMEOUT:g} s" if status is None else said[-1] if said else f"exit status {status}"
    return {"ok": False, **NOTHING, "message": why[:300]}


def _compile_and_leave(job: Job, out: IO[str], err: IO[str]) -> None:
    for said in (1, 2):  # assemblers print where they like; this process's own output is a protocol
        os.dup2(err.fileno(), said)
    code = 1
    try:
        out.write(json.dumps(importlib.import_module("proofs_checks.bench.compile_only").compile_here(*job)))
        out.flush()
        code = 0
    except BaseException as error:
        os.write(2, f"{type(error).__name__}: Error: {error}".encode())
    finally:
        os._exit(code)


def _wait(child: int) -> int | None:
    """Exit status, negative for a signal; None if it took too long and was ended."""
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@contextlib.contextmanager
def _server() -> Iterator[subprocess.Popen[str]]:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "proofs_checks.bench.compile_server"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment) as server:
        yield server
        assert server.stdin is not None
        server.stdin.close()


def compile_jobs(jobs: list[Job], workers: int) -> list[dict[str, Any]]:
    """The result of each job, ``workers`` of them at a time."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(workers) as pool:
        idle: SimpleQueue[subprocess.Popen[str]] = SimpleQueue()
        for _ in range(min(workers, len(jobs))):
            idle.put(stack.enter_context(_server()))

        def ask(job: Job) -> dict[str, Any]:
            server = idle.get()
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(" ".join(job) + "\n")
            server.stdin.flush()
            line = server.stdout.readline()
            idle.put(server)
            return json.loads(line) if line else {"ok": False, **NOTHING, "message": "the compiling process ended"}

        return list(pool.map(ask, jobs))


if __name__ == "__main__":
    importlib.import_module("fastimpl.port")  # loads torch and Triton
    for line in sys.stdin:
        kernel, target, branch = line.split()
        print(json.dumps(apart((kernel, target, branch))), flush=True)
