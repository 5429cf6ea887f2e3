"""Timing on a CUDA device: captured graphs, replayed over rotating buffers that together exceed the L2 cache."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

ROTATION_BYTES = 240_000_000
"""Bytes that a rotation of buffers covers: four times the L2 cache of the largest current device."""

REPLAYS = 11


@dataclass(frozen=True)
class Timing:
    """Microseconds per call: the median over replays, and the smallest and largest replay."""

    median: float
    low: float
    high: float


def rotations(bytes_per_call: float, most: int = 48) -> int:
    """How many sets of buffers a timing rotates over.

    >>> rotations(10_000_000), rotations(1e9)
    (24, 2)
    """
    return int(min(most, max(2, -(-ROTATION_BYTES // max(bytes_per_call, 1)))))


def replay(torch: Any, calls: Sequence[Callable[[], Any]], least: int = 24, replays: int = REPLAYS) -> Timing:
    """Capture ``calls`` in turn, at least ``least`` of them, in one CUDA graph and time its replays."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[:2]:
            call()
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    count = max(len(calls), least // len(calls) * len(calls))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            calls[i % len(calls)]()
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    times = []
    for _ in range(replays):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / count)
    return Timing(statistics.median(times), min(times), max(times))
