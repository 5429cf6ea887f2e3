"""Judging a selection: MUST and MAY pages from enclosures of the shares, distinctness, range, forced pages, budget."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from proofs_checks.judge.judgement import Call, Fault, Judgement
from proofs_checks.judge.pictures import PageRow, page_row
from refimpl.checks import FloatArray
from refimpl.locks.select import pages_within_budget


def must_and_may(
    low: FloatArray, high: FloatArray, kept: int, forced: set[int] | None = None
) -> tuple[set[int], set[int]]:
    """Pages that every right selection holds, and pages that some right selection may hold.

    ``low`` and ``high`` [P] enclose the true shares; ``forced`` are always kept, pages 0 and P-1 where it is not given.
    A page must be kept when fewer than the free slots can reach its low end; it may be kept when fewer than the free
    slots surely lie above its high end.

    >>> low = high = np.array([0.0, 0.3, 0.1, 0.1, 0.0])
    >>> must_and_may(low, high, 4)
    ({0, 1, 4}, {0, 1, 2, 3, 4})
    """
    P = len(low)
    if forced is None:
        forced = {0, P - 1} if P else set()
    if kept >= P:
        return set(range(P)), set(range(P))
    free = kept - len(forced)
    rest = np.setdiff1d(np.arange(P), list(forced))
    sorted_high, sorted_low = np.sort(high[rest]), np.sort(low[rest])
    reach = len(rest) - np.searchsorted(sorted_high, low[rest], side="left") - 1  # others with high >= my low
    above = len(rest) - np.searchsorted(sorted_low, high[rest], side="right")  # others with low > my high
    must = forced | set(rest[reach < free].tolist())
    may = forced | set(rest[above < free].tolist())
    return must, may


def judge_pages(
    judgement: Judgement, row: Any, low: FloatArray, high: FloatArray, kept: int, where: tuple[int, ...]
) -> bool:
    """Judge one KV head's pages [min(k, P)]; returns whether they can be attended (distinct and in range)."""
    P = len(low)
    chosen = [int(p) for p in row]
    if any(not 0 <= p < P for p in chosen):
        bad = next(p for p in chosen if not 0 <= p < P)
        _fault(judgement, where, f"page {bad} is out of range 0..{P - 1}")
        return False
    if len(set(chosen)) < len(chosen):
        twice = next(p for p in chosen if chosen.count(p) > 1)
        _fault(judgement, where, f"page {twice} is kept twice; {len(set(chosen))} distinct pages of {kept}")
        return False
    must, may = must_and_may(low, high, kept)
    picture = page_row(where, low, high, must, may, chosen)
    last_full = P - 1 not in chosen and {0, P - 2} <= set(chosen)  # the page before the last taken for the most recent
    free = set(chosen) - {0, P - 1}
    for page in sorted(must - set(chosen)):
        if page in (0, P - 1):
            reason = "the sink page" if page == 0 else "the most recent page"
        else:
            rival = min(free, key=lambda p: high[p])
            reason = f"share at least {low[page]:.4g}; page {rival} is kept with at most {high[rival]:.4g}"
        suspect = "A" if page == P - 1 and last_full else None
        _fault(judgement, where, f"page {page} is missing ({reason}); kept {listed(chosen)}", picture, suspect)
    better = np.sort(low[1 : P - 1])[::-1]  # of the pages that compete
    for page in sorted(set(chosen) - may):
        slots = kept - min(P, 2)
        rest = f"{slots} others have at least {better[slots - 1]:.4g}" if slots else "no slot is free"
        text = f"page {page} is kept with share at most {high[page]:.4g}; {rest}"
        _fault(judgement, where, text, picture)
    return True


def listed(pages: Iterable[int], most: int = 12) -> str:
    """Pages in ascending order, cut short where there are many.

    >>> listed([2, 1]), listed(range(100), most=2)
    ('[1, 2]', '[0, 1, ... 100 in all]')
    """
    ordered = sorted(pages)
    if len(ordered) <= most:
        return str(ordered)
    return f"[{', '.join(map(str, ordered[:most]))}, ... {len(ordered)} in all]"


def _fault(
    judgement: Judgement,
    where: tuple[int, ...],
    message: str,
    picture: PageRow | None = None,
    suspect: str | None = None,
) -> None:
    place = f"pages{list(where)}" if where else "pages"
    judgement.faults.append(Fault("pages", where, f"{place}: {message}", suspect=suspect, picture=picture))


def selected(call: Call) -> Judgement:
    """`locks_select_pages`: the shares are given exactly, so only equal shares leave a choice."""
    judgement = Judgement()
    shares, pages = call.inputs["shares"], np.asarray(call.answer["pages"])
    kept = pages_within_budget(int(call.inputs["budget_tokens"]), int(call.inputs["page_size"]), shares.shape[1])
    for h, row in enumerate(pages):
        usable = judge_pages(judgement, row, shares[h], shares[h], kept, (h,))
        wanted = set(call.reference["pages"][h].tolist())
        if usable and call.lowest_index and not judgement.faults and set(row.tolist()) != wanted:
            _fault(judgement, (h,), f"ties go to the lower index as declared: expected {sorted(wanted)}")
    return judgement
