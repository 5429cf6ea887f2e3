"""Golden cases of Locks: near-equal pages, constant pages, open pages of one token, head maps, planted spectra."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.decode_inputs import spread_pages
from proofs_checks.judge.cases.inputs import planted_pages, pooled

BUFFER = 16384
"""Candidates that a fixed buffer of a real selection kernel held: pages beyond were lost without a word."""

BITS = (2, 4, 8, "fp", None)
LATE = "10 slots for {} near-equal pages; the best stand last, where a buffer of 16,384 ends"
OPEN = "17 tokens in pages of 4: the last page holds one token, whose score is exact and nothing is padded"
HEADS = "{} query heads on one KV head: h // G, shares averaged over {}"
WIDE = ("float32",)
"""Keys of planted spectra lose their shape on a half-precision grid."""


def cases() -> list[Case]:
    """Cases of the Locks stages."""
    return [*_build(), *_scores(), *_shares(), *_select(), *_decode(), *_decode_paged()]


def _build() -> list[Case]:
    stage = Family("locks_build_summary", "H")
    planted = "a planted spectrum: projector and reconstruction, not vectors"
    return [
        stage.probe("constant-pages", "D", "identical keys have no modes", _constant_pages),
        stage.probe("golden-rank-2-of-4", "H", planted, partial(_planted, 8, 8, [8.0, 4.0, 1.0, 0.5], 2)),
        stage.probe("golden-full-rank", "H", planted, partial(_planted, 4, 8, [8.0, 4.0, 2.0], 4)),
        stage.probe("golden-B16-d16", "H", planted, partial(_planted, 16, 16, [9.0, 6.0, 4.0, 1.0, 0.7], 3)),
        stage.probe("equal-modes-both-kept", "H", "two equal singular values, both kept: any basis", _equal_modes),
        stage.probe(
            "golden-weak-mode", "H", "a mode of 1% of the largest is a mode", partial(_planted, 6, 8, [8.0, 0.08], 2)
        ),
        stage.probe("two-tokens", "A", "B = 2: one mode, the other columns are 0", partial(_planted, 2, 4, [3.0], 2)),
    ]


def _constant_pages() -> Inputs:
    levels = np.array([0.0, 1.0, -2.5, 3.0])[:, None] * np.array([1.0, -0.5, 0.25, 2.0, 1.0, 0.0, -1.0, 4.0])
    return {"key_pages": np.broadcast_to(levels[None, :, None], (1, 4, 4, 8)), "rank": 3}


def _planted(B: int, d: int, spectrum: list[float], rank: int) -> Inputs:
    return {"key_pages": planted_pages(generator("golden", f"{B},{d}"), 1, 3, B, d, spectrum), "rank": rank}


def _equal_modes() -> Inputs:
    pages = np.zeros((1, 1, 4, 8))
    pages[0, 0, 0, 1], pages[0, 0, 1, 1], pages[0, 0, 2, 6], pages[0, 0, 3, 6] = 2.0, -2.0, 2.0, -2.0
    return {"key_pages": pages, "rank": 2}


def _scores() -> list[Case]:
    stage, exact = Family("locks_score_pages", "H"), Family("exact_page_scores", "B")
    return [
        *[stage.probe(f"head-map-G{G}", "G", HEADS.format(G, G), partial(_head_scores, G)) for G in (3, 6, 7)],
        exact.probe("head-map-G7", "G", HEADS.format(7, 7), _head_keys),
    ]


def _head_scores(G: int) -> Inputs:
    rng = generator("golden", "heads", f"{G}")
    return {
        "queries": rng.integers(-8, 9, size=(2, G, 8)) / 4.0,
        "centroid": rng.integers(-8, 9, size=(2, 3, 8)) / 2.0 + np.array([0.0, 4.0])[:, None, None],
        "basis": rng.integers(-4, 5, size=(2, 3, 8, 2)) / 8.0,
        "coefficients": rng.integers(-8, 9, size=(2, 3, 4, 2)) / 4.0,
    }


def _head_keys() -> Inputs:
    rng = generator("golden", "keys")
    pages = rng.integers(-8, 9, size=(2, 3, 4, 8)) / 4.0 + np.array([0.0, 4.0])[:, None, None, None]
    return {"queries": rng.integers(-8, 9, size=(2, 7, 8)) / 4.0, "key_pages": pages}


def _shares() -> list[Case]:
    stage = Family("locks_page_shares", "C")
    low = "16,385 pages whose scores differ by at most 2^-9: every one counts in the denominator"
    return [
        stage.probe("low-contrast-16385", "C", low, lambda: {"scores": _low_contrast(BUFFER + 1) / 8}),
        *[stage.probe(f"head-map-G{G}", "G", HEADS.format(G, G), partial(_share_heads, G)) for G in (3, 6, 7)],
    ]


def _share_heads(G: int) -> Inputs:
    """Head g prefers page g: a wrong group, or a sum over the wrong number of heads, moves every share."""
    scores = np.zeros((2, G, G + 1))
    scores[0, np.arange(G), np.arange(G)] = np.arange(1.0, G + 1)
    scores[1, np.arange(G), np.arange(G)] = np.arange(G, 0.0, -1) / 2
    return {"scores": scores}


def _low_contrast(P: int) -> Any:
    """Numbers [1, 1, P] from 1 to 1 + 2^-8 in steps of 2^-20, the eight largest just before the last page."""
    steps = generator("golden", "low", f"{P}").integers(0, 2048, size=(1, 1, P))
    steps[..., -9:-1] = 2048 + np.arange(8)
    return 1 + steps * 2.0**-20


def _select() -> list[Case]:
    stage = Family("locks_select_pages", "C")

    def late(P: int) -> Inputs:
        shares = _low_contrast(P)[0] * 2.0 ** -math.ceil(math.log2(P))
        return {"shares": shares, "budget_tokens": 160, "page_size": 16}

    ties = "ties at the last free slot: two of four equal pages, any two"
    tied = np.array([[0.0, 0.125, 0.25, 0.125, 0.125, 0.125, 0.0625, 0.0]])
    return [
        *[
            stage.probe(f"low-contrast-{P}", "C", LATE.format(P), partial(late, P), kind="set")
            for P in (BUFFER, BUFFER + 1, BUFFER + 16)
        ],
        stage.probe(
            "threshold-ties",
            "C",
            ties,
            lambda: {"shares": tied, "budget_tokens": 20, "page_size": 4},
            kind="set",
        ),
    ]


def _decode() -> list[Case]:
    stage = Family("locks_decode", "C")

    def decode(name: str, suspect: str, why: str, make: Any) -> Case:
        return stage.probe(name, suspect, why, make, kind="set", dtypes=WIDE)

    spread = partial(spread_pages, d=8, B=4, rank=4, budget=20)
    return [
        *[
            decode(f"golden-bits-{bits}", "D", f"basis_bits {bits}", partial(spread, 36, G=2, bits=bits))
            for bits in BITS
        ],
        decode(
            "golden-rank-8",
            "H",
            "rank 8 of 16 tokens, nothing quantised",
            partial(spread_pages, 80, d=16, budget=48, bits=None, G=1, H=1),
        ),
        decode("golden-open-page-of-one", "A", OPEN, partial(spread, 33, G=2, bits=8)),
        *[
            decode(f"head-map-G{G}", "G", HEADS.format(G, G), partial(spread, 32, G=G, bits=8, apart=3.0))
            for G in (3, 6, 7)
        ],
        decode("constant-pages", "D", "pages of identical keys: no modes, nothing divided by 0", _constant_decode),
        decode("tied-pages", "C", "two pages of equal share for one slot: either is right", _tied_decode),
    ]


def _constant_decode() -> Inputs:
    levels = np.array([0.0, 4.0, 1.0, 8.0, 2.0, 6.0, 3.0])
    keys = np.repeat(levels, 4)[None, :25, None] * np.array([1.0, 0.5, -0.25, 0.0])
    values = np.arange(25.0)[None, :, None] * np.array([1.0, -1.0, 0.5, 0.25])
    settings = {"rank": 2, "basis_bits": 4, "budget_tokens": 16, "page_size": 4}
    return {
        "queries": np.array([[[4.0, 0.0, 0.0, 1.0], [2.0, 2.0, 0.0, 0.0]]]),
        "keys": keys,
        "values": values,
        **settings,
    }


def _tied_decode() -> Inputs:
    inputs = _constant_decode()
    levels = np.array([0.0, 4.0, 1.0, 4.0, 2.0, 0.5, 3.0])
    keys = np.repeat(levels, 4)[None, :25, None] * np.array([1.0, 0.5, -0.25, 0.0])
    return {**inputs, "keys": keys, "budget_tokens": 12}


def _decode_paged() -> list[Case]:
    stage = Family("locks_decode_paged", "C")
    rows = "an empty sequence, one open token and eight pages in one batch: -1 only where a row's pages run out"
    return [
        stage.probe("short-empty-and-long", "A", rows, partial(_batch, 2, [1, 0, 32]), kind="set", dtypes=WIDE),
        stage.probe("open-page-of-one", "A", OPEN, partial(_batch, 3, [17]), kind="set", dtypes=WIDE),
    ]


def _batch(G: int, lengths: list[int]) -> Inputs:
    drawn = [spread_pages(max(T, 4), d=8, B=4, rank=4, budget=16, G=G, bits=8, apart=3.0) for T in lengths]
    counts = [-(-T // 4) for T in lengths]
    last = sum(counts) + 1
    table = [[last - sum(counts[:n]) - i for i in range(count)] for n, count in enumerate(counts)]
    pool = pooled([x["keys"] for x in drawn], [x["values"] for x in drawn], lengths, 4, table, last + 1, fill=1.0)
    settings = {n: drawn[0][n] for n in ("rank", "basis_bits", "budget_tokens")}
    return {"queries": np.stack([x["queries"] for x in drawn]), **pool, **settings}
