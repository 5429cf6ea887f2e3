"""How much memory a port's process holds, and how much it may.

Watched rather than limited by the kernel: RLIMIT_AS and RLIMIT_DATA count address space, of which CUDA reserves far
more than it uses, and a cgroup needs rights that a test run does not have.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

MIB = 1 << 20
MOST = 8192
"""MiB: enough for the largest case in a framework with its libraries, far from filling a workstation."""

CGROUP = Path("/sys/fs/cgroup/memory.max")


def default_limit() -> int:
    """MiB that a port's process may hold: MOST, or half of what this machine or container has.

    >>> 0 < default_limit() <= MOST
    True
    """
    there = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with contextlib.suppress(OSError, ValueError):  # no cgroup, or "max"
        there = min(there, int(CGROUP.read_text()))
    return min(MOST, there // MIB // 2)


def held(pid: int) -> int | None:
    """MiB of its own (not of mapped files) that a process and its descendants hold; None where /proc cannot say.

    >>> held(0) is None
    True
    """
    amounts = [amount for amount in map(_own, family(pid)) if amount is not None]
    return sum(amounts) // MIB if amounts else None


def family(pid: int) -> Iterator[int]:
    """A process and its descendants, as far as /proc tells."""
    yield pid
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = task.read_text().split()
        except OSError:  # it ended meanwhile
            continue
        for child in children:
            yield from family(int(child))


def _own(pid: int) -> int | None:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    sizes = [int(line.split()[1]) for line in lines if line.startswith(("RssAnon:", "RssShmem:"))]
    return sum(sizes) * 1024 if sizes else None
