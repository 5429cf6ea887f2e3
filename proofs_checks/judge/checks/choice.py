"""Judging what a selector chose, tokens, chunks, channels or pages: range, number, MUST and MAY from enclosures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from proofs_checks.judge.checks.selection import listed, must_and_may
from proofs_checks.judge.judgement import Call, Fault, Judgement
from refimpl.checks import FloatArray


def judge_choice(
    judgement: Judgement,
    name: str,
    chosen: Any,
    ends: tuple[FloatArray, FloatArray],
    *,
    forced: Iterable[int] = (),
    lowest: Any = None,
    named: bool = True,
) -> bool:
    """Judge every row of choices [..., K] by the ends [..., N] of what they are ranked by; whether all can be read.

    ``forced`` are always chosen. ``lowest`` is the reference's choice where ties must go to the lower index. Where the
    case judges other results only (not ``named``), a choice is a fault only if it cannot be read.
    """
    usable, found = True, Judgement()
    for where in np.ndindex(np.shape(chosen)[:-1]):
        usable &= _judge_row(found, name, chosen[where], (ends[0][where], ends[1][where]), set(forced), where)
        if usable and lowest is not None and not found.faults and set(chosen[where]) != set(lowest[where]):
            wanted = listed(int(i) for i in lowest[where])
            text = f"{name}{list(where)}: ties go to the lower index as declared: expected {wanted}"
            found.faults.append(Fault(name, where, text))
    if named or not usable:
        judgement.faults += found.faults
    return usable


def _judge_row(
    judgement: Judgement,
    name: str,
    row: Any,
    ends: tuple[FloatArray, FloatArray],
    forced: set[int],
    where: tuple[int, ...],
) -> bool:
    (low, high), place, N = ends, f"{name}{list(where)}", len(ends[0])
    kept = [int(i) for i in row]
    out = [i for i in kept if not 0 <= i < N]
    if out or len(set(kept)) < len(kept):
        twice = next((i for i in kept if kept.count(i) > 1), None)
        reason = f"{out[0]} is out of range 0..{N - 1}" if out else f"{twice} is chosen twice"
        judgement.faults.append(Fault(name, where, f"{place}: {reason}"))
        return False
    must, may = must_and_may(low, high, len(kept), forced)
    free = sorted(set(kept) - forced, key=lambda i: high[i])
    for item in sorted(must - set(kept)):
        poor = f"; {free[0]} is chosen with at most {high[free[0]]:.6g}" if free else ""
        reason = "it is always kept" if item in forced else f"it has at least {low[item]:.6g}{poor}"
        judgement.faults.append(Fault(name, where, f"{place}: {item} is missing ({reason}); chosen {listed(kept)}"))
    slots = len(kept) - len(forced)
    better = np.sort(low[np.setdiff1d(np.arange(N), list(forced))])[::-1]
    for item in sorted(set(kept) - may):
        rest = f"{slots} others have at least {better[slots - 1]:.6g}" if slots > 0 else "no slot is free"
        text = f"{place}: {item} is chosen with at most {high[item]:.6g}; {rest}"
        judgement.faults.append(Fault(name, where, text))
    return True


def tie_rule(call: Call, name: str) -> Any:
    """The reference's choice ``name`` where the case is exact about ties and the port declares their rule, or None."""
    return call.reference[name] if call.lowest_index and call.kind == "exact" else None
