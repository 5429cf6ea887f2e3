"""Cases of the dialect locks-kv-0.1.4 for whole decode steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases import locks_decode
from proofs_checks.judge.cases.decode_inputs import carried_pages, shaped_pages, spread_pages
from proofs_checks.judge.cases.inputs import planted_pages

# Masses of pages 0..P-1, a line per query head (the second stands for two heads): the dialect keeps one of pages 1..4.
# Peaks leave out the last page: page 1 has 30/30 + 2 4/6 = 2.33, page 2 has 24/30 + 2 6/6 = 2.8. Shares, or a peak over
# all pages, make page 1 the best.
PEAK_NOT_SHARE = [[1.0, 30.0, 24.0, 1.0, 1.0, 1.0], [1.0, 4.0, 6.0, 1.0, 1.0, 86.0]]
# Page 1 has 1 + 2/10, page 2 has 60/100 + 2; the largest mass of any head, and the mass of all heads, are page 1's.
SUM_NOT_MAX = [[1.0, 100.0, 60.0, 1.0, 1.0, 1.0], [1.0, 1.0, 10.0, 1.0, 1.0, 1.0]]
# Page 1 has 0.735 + 2 0.001, page 2 has 0.286 + 2 0.165; with logits smaller by sqrt(80/128), or in bits, page 2 leads.
NOT_FLATTER = [[0.49, 0.36, 0.14, 1e-3, 1e-3, 1e-3], [0.85, 1e-3, 0.14, 1e-3, 1e-3, 1e-3]]
# Page 1 has 0.7, page 2 has 0.5 + 2 0.2; squared, 0.49 against 0.33.
NOT_SHARPER = [[0.5, 0.35, 0.25, 1e-3, 1e-3, 1e-3], [0.8, 1e-3, 0.16, 1e-3, 1e-3, 1e-3]]

FIRST = ("no-tokens", "one-open-token", "open-page-of-one", "open-page-of-15", "complete-last-page", "all-kept")
PAPERS = ("own-summary", "codes-to-nearest", "ternary-codes")
"""Probes of the paper whose inputs and reasons serve here too."""


def decode_cases() -> list[Case]:
    """Cases of `locks_decode`."""
    stage = Family("locks_decode", "C")
    papers = [c for c in locks_decode.decode_cases() if c.inputs().get("basis_bits") in (2, 4, 8)]

    def probe(name: str, suspect: str, why: str, inputs: Callable[[], Inputs]) -> Case:
        return stage.probe(name, suspect, why, inputs, kind="set")

    def shaped(masses: Any, **more: Any) -> Callable[[], Inputs]:
        """Three query heads, the first line's and twice the second's; rank 8 of pages with 4 modes."""
        return lambda: shaped_pages([masses[0], masses[1], masses[1]], budget=16, bits=4, **more) | {"rank": 8}

    return [
        *[c for c in papers if c.name in FIRST],
        probe("one-between", "C", "b = 16: one page between the forced ones", partial(spread_pages, 250, budget=16)),
        probe("odd-budget", "C", "b = 65: five pages and the forced ones", partial(spread_pages, 250, budget=65)),
        probe("peak-not-share", "C", "masses over the head's peak rank, not shares", shaped(PEAK_NOT_SHARE)),
        probe("peak-without-open-page", "C", "the open page has no part in the peak", shaped(PEAK_NOT_SHARE, tail=5)),
        probe("sum-not-max-of-heads", "C", "the group's sum ranks, not its largest mass", shaped(SUM_NOT_MAX)),
        probe("nats", "B", "scores are in nats", shaped(NOT_SHARPER)),
        probe("scale-of-80", "A", "the scale is 1/sqrt(80), whatever the padding", shaped(NOT_FLATTER, d=80)),
        probe("not-flatter", "B", "scores are in nats, not in bits", shaped(NOT_FLATTER)),
        probe("scale-per-query-head", "D", "each query head is rounded by its own scale", _sizes),
        probe("page-of-zeros", "D", "a page of zeros and one of equal keys: nothing is divided by 0", _zeros),
        probe("int8-query", "D", "0.4 steps of the query count nothing", _int8_query),
        probe("sum-not-max", "B", "a page of many tokens outweighs one high token", _carried(0, 3.5, 2.0)),
        probe("largest-modes", "H", "the largest modes are kept", _carried(0, 8.0, 2.5)),
        probe("centred-modes", "H", "the mean takes no mode", _carried(1, 8.0, 2.5)),
        probe("found-page", "C", "one page holds the key that the query looks for", _found),
        *[c for c in papers if c.name in PAPERS],
        *[c for c in papers if not c.probe],
    ]


def _carried(carrier: int, peak: float, rival: float) -> Callable[[], Inputs]:
    def inputs() -> Inputs:
        return carried_pages(carrier, peak, rival, bits=8) | {"budget_tokens": 16}

    return inputs


def _found() -> Inputs:
    found = next(c for c in locks_decode.decode_cases() if c.name == "found-page")
    return found.inputs() | {"budget_tokens": 16}


def _sizes() -> Inputs:
    """The first query head is 300 times as long as the others, and meets keys 300 times as short: by its scale the
    others would be rounded to 0, and only the first would choose. Page 1 has 1 + 2/10, page 2 less than 1 + 2.
    """
    others = [1.0, 16.0, 160.0, 1.0, 1.0, 1.0]
    inputs = shaped_pages([SUM_NOT_MAX[0], others, others], budget=16, bits=4) | {"rank": 8}
    inputs["queries"][:, 0] *= 300.0
    inputs["keys"][..., 0] /= 300.0
    return inputs


def _zeros() -> Inputs:
    inputs = spread_pages(250, budget=48)
    inputs["keys"][:, 48:64] = 0.0
    inputs["keys"][:, 96:112] = inputs["keys"][:, 96:97]
    return inputs


def _int8_query() -> Inputs:
    """Page 3 meets 60 entries of 0.4 steps, 6 nats that rounding takes away; page 5 has 3 nats by the largest entry."""
    rng = generator("locks-kv", "int8-query")
    d, P = 64, 8
    queries = np.zeros((2, 2, d))
    queries[..., 0], queries[..., 1:61] = 32.0, 0.4 * 32 / 127
    pages = planted_pages(rng, 2, P, 16, d, [0.08, 0.04, 0.02, 0.01])
    pages = pages - pages.mean(axis=2, keepdims=True)
    pages[0, 3, :, 1:61] += 8.0
    pages[0, 5, :, 0] += 0.75
    pages[1] = pages[0, [0, *range(P - 2, 0, -1), P - 1]]
    values = rng.normal(size=(2, 16 * P, d)) + np.arange(16 * P)[:, None] // 16
    settings = {"rank": 8, "basis_bits": 4, "budget_tokens": 16, "page_size": 16}
    return {"queries": queries, "keys": pages.reshape(2, 16 * P, d), "values": values, **settings}


def decode_paged_cases() -> list[Case]:
    """Cases of `locks_decode_paged`: the paper's inputs; two pages more are kept of them."""
    why = {"short-beside-long": "a row whose pages are fewer than the budget and the forced ones ends in -1"}
    papers = [c for c in locks_decode.decode_paged_cases() if c.inputs()["basis_bits"] in (2, 4, 8)]
    return [replace(c, why=why.get(c.name, c.why)) for c in papers]
