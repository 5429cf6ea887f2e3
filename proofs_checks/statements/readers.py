"""Reader classes on small records, enumerated: the partitions of the records that their transcripts can produce.

A reader is a rule that names addresses; what it can tell apart is the partition of the 2^w records by transcript. A
deterministic decoder then answers the middle of each cell's range, so the risk of a partition is the largest squared
half-range. Query-blind classes must use one partition for all queries, the others choose one per query.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations, product

import numpy as np

from refimpl.checks import FloatArray

Partition = frozenset[frozenset[int]]
CLASSES = ("oblivious", "query-independent", "staged-1", "staged-2", "staged-3", "branching")


def split(records: frozenset[int], addresses: tuple[int, ...]) -> list[frozenset[int]]:
    """The nonempty cells of ``records`` by their bits at ``addresses``.

    >>> sorted(sorted(cell) for cell in split(frozenset(range(4)), (0,)))
    [[0, 2], [1, 3]]
    """
    cells: dict[tuple[int, ...], set[int]] = {}
    for record in records:
        cells.setdefault(tuple(record >> a & 1 for a in addresses), set()).add(record)
    return [frozenset(cell) for cell in cells.values()]


@lru_cache(maxsize=4096)
def partitions(records: frozenset[int], width: int, probes: int, batches: int) -> frozenset[Partition]:
    """All partitions that at most ``probes`` probes in at most ``batches`` adaptive batches can produce.

    >>> len(partitions(frozenset(range(4)), 2, 1, 1))     # nothing, bit 0, bit 1
    3
    """
    found = {frozenset({records})}
    if batches == 0:
        return frozenset(found)
    for size in range(1, min(probes, width) + 1):
        for addresses in combinations(range(width), size):
            cells = split(records, addresses)
            choices = [partitions(cell, width, probes - size, batches - 1) for cell in cells]
            found |= {frozenset().union(*choice) for choice in product(*choices)}
    return frozenset(found)


def class_partitions(name: str, width: int, probes: int) -> frozenset[Partition]:
    """The partitions that a reader class can produce on records of ``width`` bits."""
    records = frozenset(range(2**width))
    batches = {"oblivious": 1, "staged-1": 1, "staged-2": 2, "staged-3": 3}.get(name, max(probes, 1))
    return partitions(records, width, probes, batches)


def uses_query(name: str) -> bool:
    """Whether a class's addresses may depend on the query."""
    return name not in ("oblivious", "query-independent")


def half_range(cell: frozenset[int], codes: FloatArray, answers: FloatArray) -> float:
    """Squared half-range of the answers over the sources whose code lies in a cell: the best decoder's worst error."""
    inside = answers[np.isin(codes, list(cell))]
    return float((inside.max() - inside.min()) ** 2 / 4) if len(inside) else 0.0


def risk(name: str, width: int, probes: int, codes: FloatArray, answers: FloatArray) -> float:
    """Least worst-case squared error of a class for a fixed encoder.

    Args:
        codes: [n], the record (a whole number below 2^width) of every source.
        answers: [queries, n], the number that every query asks of every source.

    >>> codes, answers = np.arange(4), np.array([[0, 1, 0, 1], [0, 0, 1, 1]])       # query i asks for bit i
    >>> [risk(name, 2, 1, codes, answers) for name in ("oblivious", "staged-1")]
    [0.25, 0.0]
    """
    options = class_partitions(name, width, probes)
    table = np.array([[max(half_range(c, codes, row) for c in option) for row in answers] for option in options])
    return float(table.min(axis=0).max() if uses_query(name) else table.max(axis=1).min())


def full_risk(codes: FloatArray, answers: FloatArray) -> float:
    """Least worst-case squared error of a decoder that sees the whole record.

    >>> full_risk(np.array([0, 0, 1]), np.array([[0.0, 1.0, 5.0]]))
    0.25
    """
    cells = [frozenset({int(code)}) for code in np.unique(codes)]
    return max(half_range(cell, codes, row) for row in answers for cell in cells)
