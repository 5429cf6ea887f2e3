"""Cases of the whole decode step, contiguous and paged."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import long_text_slice, needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.inputs import planted_pages, pooled
from proofs_checks.judge.cases.paging import poison_pool

SPECTRUM = [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7]


def decode_cases() -> list[Case]:
    """Cases of `locks_decode`."""
    stage = Family("locks_decode", "C")

    def probe(name: str, suspect: str, why: str, inputs: Any, **more: Any) -> Case:
        return stage.probe(name, suspect, why, inputs, kind="set", **more)

    def general(name: str, why: str, inputs: Any, **more: Any) -> Case:
        return stage.general(name, why, inputs, kind="set", **more)

    return [
        probe("no-tokens", "B", "T = 0: output 0, no pages", _no_tokens),
        probe("one-open-token", "A", "T = 1: the open page alone", partial(_planted, 1, 64, 32)),
        probe("open-page-of-one", "A", "T = 161: the most recent page holds one token", partial(_planted, 161, 64, 64)),
        probe("all-kept", "C", "fewer pages than the budget: dense attention", partial(_planted, 60, 64, 256)),
        probe("two-pages", "C", "k = 2: only sink and most recent", partial(_planted, 250, 64, 32)),
        probe("found-page", "C", "one page holds the key that the query looks for", _found),
        probe("complete-last-page", "C", "T = 160: the most recent page is complete", partial(_planted, 160, 64, 64)),
        *[
            general(f"bits-{bits}", f"basis_bits {bits!r}", partial(_planted, 250, 64, 80, bits))
            for bits in (None, "fp", 8, 4, 2)
        ],
        general("d80-G7", "d = 80, seven query heads", partial(_planted, 200, 80, 80, 4, 7)),
        general("d128-G8", "d = 128, eight query heads", partial(_planted, 330, 128, 96, 4, 8)),
        general("capture-needle", "the real needle prompt, k = 8", _needle),
        general("capture-needle-unquantised", "the same, nothing quantised", partial(_needle, None)),
        general("capture-8k", "8K real tokens, k = 32", _long, profile="default"),
    ]


def _planted(T: int, d: int, budget: int, bits: Any = 4, G: int = 3) -> Inputs:
    rng = generator("decode", f"{T},{d},{G}")
    keys = planted_pages(rng, 2, -(-T // 16), 16, d, SPECTRUM).reshape(2, -1, d)[:, :T]
    values = rng.normal(size=(2, T, d)) + rng.normal(size=(2, 1, d))
    queries = 2 * rng.normal(size=(2, G, d))
    settings = {"rank": 8, "basis_bits": bits, "budget_tokens": budget, "page_size": 16}
    return {"queries": queries, "keys": keys, "values": values, **settings}


def _no_tokens() -> Inputs:
    return _planted(0, 64, 32)


def _found() -> Inputs:
    """Page 5 of 10 holds one key along the query; its mass is all there is."""
    inputs = _planted(160, 64, 48)
    queries = np.zeros((2, 3, 64))
    queries[..., 7] = 16.0
    keys = np.zeros((2, 160, 64))
    keys[:, ::3, 9] = 1.0
    keys[:, 5 * 16 + 4, 7] = 8.0
    return {**inputs, "queries": queries, "keys": keys}


def _needle(bits: Any = 4) -> Inputs:
    return {**needle_slice(2, 2), "rank": 8, "basis_bits": bits, "budget_tokens": 128, "page_size": 16}


def _long() -> Inputs:
    return {**long_text_slice(5), "rank": 8, "basis_bits": 4, "budget_tokens": 512, "page_size": 16}


def decode_paged_cases() -> list[Case]:
    """Cases of `locks_decode_paged`."""
    stage = Family("locks_decode_paged", "A")
    return [
        stage.probe("never-read", "A", NEVER, partial(_batch, [130, 0, 33]), kind="set", poison=poison_pool),
        stage.probe("short-beside-long", "A", "a short row ends in -1", partial(_batch, [200, 20]), kind="set"),
        stage.general("batch", "three sequences of different lengths", partial(_batch, [130, 97, 160]), kind="set"),
    ]


NEVER = "slots past a sequence's end hold NaN, table entries past its pages are stale: neither is ever read"


def _batch(lengths: list[int]) -> Inputs:
    parts = [_planted(T, 64, 64) for T in lengths]
    order = generator("decode-paged", str(lengths)).permutation(32).tolist()
    table = []
    for T in lengths:
        table.append([order.pop() for _ in range(-(-T // 16))])
    pool = pooled([p["keys"] for p in parts], [p["values"] for p in parts], lengths, 16, table, 32)
    settings = {"rank": 8, "basis_bits": 4, "budget_tokens": 64}
    return {"queries": np.stack([p["queries"] for p in parts]), **pool, **settings}
