"""Cases of selecting pages."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_sizes
from proofs_checks.judge.cases.locks_select import share_needle
from refimpl.locks.combine import locks_page_shares

TIED = np.array([[8.0, 3.0, 5.0, 3.0, 1.0, 3.0], [3.0, 3.0, 5.0, 3.0, 1.0, 8.0]]) / 32


def select_cases() -> list[Case]:
    """Cases of `locks_select_pages`."""
    stage = Family("locks_select_pages", "C")

    def probe(name: str, why: str, shares: Any, budget: int, page_size: int = 16, suspect: str = "C") -> Case:
        def inputs() -> Inputs:
            return {"shares": np.asarray(shares), "budget_tokens": budget, "page_size": page_size}

        return stage.probe(name, suspect, why, inputs, kind="set")

    def drawn(name: str, why: str, make: Any, **more: Any) -> Case:
        return stage.general(name, why, make, kind="set", **more)

    ramp = np.arange(1.0, 9.0)[None] / 64
    return [
        probe("forced-inside", "budget 64: 4 pages in all, sink and most recent among them", ramp[:, ::-1], 64),
        probe("forced-once", "sink and most recent have the largest shares: they are kept once", _edges(), 64),
        probe("two-pages", "k = 2: only sink and most recent", ramp, 32),
        probe("ceil-budget", "budget 65 at page size 16: 5 pages", ramp, 65),
        probe("more-budget-than-pages", "3 pages, k = 6: all of them", ramp[:, :3], 96),
        probe("one-page", "P = 1: that page once", [[1.0]], 16),
        probe("two-of-two", "P = 2, k = 2", [[0.5, 0.5]], 32),
        probe("three-of-three", "P = 3 = k: the middle page fits", [[0.2, 0.0, 0.8]], 48),
        probe("all-equal", "all shares equal: any middle pages, the forced ones kept", np.full((2, 9), 1 / 16), 64),
        probe("last-page-ties", "the most recent page ties at the threshold: it takes no other's place", TIED[:1], 64),
        probe("first-page-ties", "so does the sink", TIED[1:], 64),
        probe("zeros-and-signs", "+0 and -0 are equal", [[0.0, -0.0, 0.0, 0.25, -0.0, 0.0]], 64),
        probe("own-heads", "each KV head selects for itself", np.stack([ramp[0], ramp[0, ::-1]]), 80, suspect="G"),
        probe("tiny-shares", "shares of 2^-100 still rank", ramp * 2.0**-100, 64),
        drawn("low-contrast-16400", "near-equal pages, the best of them last", partial(_low_contrast, 16400, 2048)),
        *locks_sizes.select_sizes(),
        drawn("capture-needle", "real shares, 128 pages, k = 16", _select_needle),
        drawn("low-contrast-70000", "70,000 pages", partial(_low_contrast, 70000, 4096), profile="default"),
    ]


def _edges() -> Any:
    shares = np.arange(8.0)[None] / 64
    shares[0, 0], shares[0, -1] = 0.5, 0.4
    return shares


def _low_contrast(P: int, budget: int) -> Inputs:
    """Shares within 2^-9 of each other, all multiples of one float32 step, with many ties."""
    step = generator("low", f"{P}").integers(0, 4096, size=(1, P))
    step[0, -8:-1] = 4096 + np.arange(7)  # past the 16,384 candidates that a fixed buffer holds
    return {"shares": (1 + step * 2.0**-21) * 2.0 ** -math.ceil(math.log2(P)), "budget_tokens": budget, "page_size": 16}


def _select_needle() -> Inputs:
    shares = locks_page_shares(scores=share_needle()["scores"])
    return {"shares": shares, "budget_tokens": 256, "page_size": 16}
