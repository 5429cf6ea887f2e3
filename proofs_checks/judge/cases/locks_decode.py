"""Cases of the whole decode step, contiguous and paged."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from proofs_checks.capture import long_text_slice, needle_slice
from proofs_checks.judge.case import Case, Family, Inputs, generator
from proofs_checks.judge.cases.decode_inputs import (
    carried_pages,
    large_channel,
    large_mode,
    last_token_pages,
    shaped_pages,
    spread_pages,
    towards,
)
from proofs_checks.judge.cases.inputs import pooled
from proofs_checks.judge.cases.paging import poison_pool

# Masses of pages 0..P-1, a line per query head: what the shares say, and what a wrong rule would make of them.
AVERAGE_NOT_MAX = [[18.5, 30.0, 15.0, 0.5, 0.5, 0.5], [0.67, 0.01, 0.30, 0.01, 0.01, 0.01]]
AVERAGE_NOT_LOGS = [[8.0, 20.0, 4.0, 0.1, 0.1, 0.1], [0.85, 1e-4, 0.12, 1e-3, 1e-3, 1e-3]]
TAIL_HOLDS_HEAD_0 = [[0.01, 0.09, 0.001, 1e-3, 1e-3, 0.9], [0.82, 0.001, 0.15, 1e-3, 1e-3, 0.01]]
UNEVEN_TAIL = [[1e4 * mass for mass in TAIL_HOLDS_HEAD_0[0]], [1e-3 * mass for mass in TAIL_HOLDS_HEAD_0[1]]]
UNPADDED = "an open page of 5 beside heads of mass .001: lanes of logit 0 would take their shares"
NOT_TWICE_AS_SHARP = [[0.49, 0.36, 0.14, 2e-3, 2e-3, 2e-3], [0.85, 1e-3, 0.14, 2e-3, 2e-3, 2e-3]]
NOT_FLATTER = [[0.35, 0.50, 0.14, 1e-3, 1e-3, 1e-3], [0.85, 1e-3, 0.14, 1e-3, 1e-3, 1e-3]]
LAST_QUERY = [[0.20, 0.31, 0.29, 0.06, 0.06, 0.08], [0.10, 0.05, 0.80, 0.01, 0.01, 0.03]]
POOLED_BUDGET = [
    [0.15, 0.55, 1e-3, 1e-3, 0.30, 1e-3, 1e-3],
    [0.20, 1e-3, 0.50, 1e-3, 0.30, 1e-3, 1e-3],
    [0.25, 1e-3, 1e-3, 0.45, 0.30, 1e-3, 1e-3],
]


STAGE = Family("locks_decode", "C")


def decode_cases() -> list[Case]:
    """Cases of `locks_decode`."""
    return [*_page_probes(), *_summary_probes(), *_sized_cases(STAGE), *_general_cases(STAGE)]


def probe(name: str, suspect: str, why: str, inputs: Any, **more: Any) -> Case:
    """A probe judged by its pages and the output on them."""
    return STAGE.probe(name, suspect, why, inputs, kind="set", **more)


def shaped(masses: Any, **more: Any) -> Any:
    """Three query heads: the first line's, and twice the second's."""
    return partial(shaped_pages, [masses[0], masses[1], masses[1]], **more)


def _page_probes() -> list[Case]:
    """What isolates faults of pages, budgets and the combination of heads."""
    return [
        probe("no-tokens", "B", "T = 0: output 0, no pages", partial(spread_pages, 0)),
        probe("two-complete-pages", "C", "k = 2 of 10 complete pages", partial(spread_pages, 160, budget=32)),
        probe("own-found-page", "G", "each KV head's page holds the key that its queries look for", _own_found),
        probe("one-open-token", "A", "T = 1: the open page alone", partial(spread_pages, 1)),
        probe("open-page-of-one", "A", "T = 161: the most recent page holds one token", partial(spread_pages, 161)),
        probe("open-page-of-15", "A", "T = 175: the most recent page lacks one token", partial(spread_pages, 175)),
        probe("complete-last-page", "A", "T = 160: the most recent page is complete", partial(spread_pages, 160)),
        probe("all-kept", "C", "fewer pages than the budget: dense attention", partial(spread_pages, 60)),
        probe("two-pages", "C", "k = 2: only sink and most recent", partial(spread_pages, 250, budget=32)),
        probe("odd-budget", "C", "b = 65: k = ceil(65 / 16) = 5", partial(spread_pages, 250, budget=65)),
        probe("found-page", "C", "one page holds the key that the query looks for", _found),
        probe("average-not-max", "C", "the group's mean share ranks, not its largest", shaped(AVERAGE_NOT_MAX)),
        probe("average-of-shares", "C", "shares are averaged, not scores or masses", shaped(AVERAGE_NOT_LOGS)),
        probe("open-page-counts", "C", "the open page is in every normaliser", shaped(TAIL_HOLDS_HEAD_0, tail=5)),
        probe("open-page-unpadded", "A", UNPADDED, shaped(UNEVEN_TAIL, tail=5)),
        probe("open-page-of-one-counts", "C", "so does an open page of one token", shaped(TAIL_HOLDS_HEAD_0, tail=1)),
        probe("last-token-counts", "A", "a complete last page counts with its last token", last_token_pages),
        probe("softmax-scale", "B", "an explicit scale, for scores and for attention", _half_scale),
        probe(
            "one-budget-per-group",
            "C",
            "a group's heads share k pages",
            partial(shaped_pages, POOLED_BUDGET, budget=80),
        ),
        probe("nats", "B", "scores are in nats", shaped(NOT_TWICE_AS_SHARP)),
        probe("scale-of-80", "A", "the scale is 1/sqrt(80), whatever the padding", shaped(NOT_FLATTER, d=80)),
        probe(
            "sum-not-max", "B", "a page of many tokens outweighs one high token", partial(carried_pages, 0, 3.5, 2.0)
        ),
    ]


def _summary_probes() -> list[Case]:
    """What isolates faults of the summaries and their codes."""
    return [
        probe("largest-modes", "H", "the largest modes are kept", partial(carried_pages, 0, 8.0, 2.5)),
        probe("centred-modes", "H", "the mean takes no mode", partial(carried_pages, 1, 8.0, 2.5)),
        probe("least-mode-dropped", "H", "modes beyond the rank are dropped", partial(carried_pages, 3, 8.0, 2.5)),
        probe("nothing-quantised", "D", "basis_bits None: a large channel rounds no other away", large_channel),
        probe("basis-unquantised", "D", "basis_bits 'fp': the basis is not rounded", partial(large_mode, "fp")),
        probe(
            "basis-of-8-bits", "D", "basis_bits 8: 1/16 of a column's largest entry is kept", partial(large_mode, 8, 16)
        ),
        probe("own-summary", "G", "three KV heads, each its own summary and queries", partial(spread_pages, 250, H=3)),
        probe("codes-to-nearest", "D", "int4 codes to nearest, a scale per column", partial(_level, 4, 160, 1)),
        probe("every-mode-of-4", "H", "rank 4 keeps four modes", partial(carried_pages, 3, 8.0, 2.5, rank=4)),
        probe("every-mode-of-8", "H", "rank 8 keeps eight modes", partial(carried_pages, 7, 8.0, 2.5, rank=8, modes=8)),
        probe("last-page-counts", "A", "a complete last page is in every normaliser", shaped(TAIL_HOLDS_HEAD_0)),
        probe("ternary-codes", "D", "int2 codes to nearest, a scale per column", partial(_level, 2, 320, 3)),
    ]


def _sized_cases(stage: Family) -> list[Case]:
    """Clear selections at every group size, and the scale at every head size."""

    def size(name: str, suspect: str, why: str, masses: Any, d: int = 64) -> Case:
        return stage.size(name, suspect, why, partial(shaped_pages, masses, d=d), kind="set")

    few, many, groups = NOT_TWICE_AS_SHARP, NOT_FLATTER, (2, 4, 5, 6, 7, 8)
    return [
        *[size(f"average-of-{G}", "C", AVERAGE.format(G), _one_and(G - 1, AVERAGE_NOT_MAX)) for G in groups],
        *[size(f"last-query-of-{G}", "G", LAST.format(G), _one_and(G - 1, LAST_QUERY[::-1])[::-1]) for G in groups],
        *[size(f"no-sharper-{d}", "A", SCALE.format(d), _one_and(2, few), d) for d in (80, 96, 128, 256)],
        *[size(f"no-flatter-{d}", "A", SCALE.format(d), _one_and(2, many), d) for d in (64, 96, 128, 256)],
        *_served_sizes(stage),
    ]


def _served_sizes(stage: Family) -> list[Case]:
    """d = 128, rank 8, int4: what kernels have a path of its own for. Each mode decides once, by either sign's code."""
    served: dict[str, Any] = {"bits": 4, "rank": 8, "modes": 8, "d": 128, "opposed": True}
    cases = []
    for mode, G in enumerate((8, 4, 7, 1, 8, 2, 5, 6)):
        where: dict[str, Any] = {"G": G, "token_at": (15 + 7 * mode) % 16, "channel": 7 + 17 * mode}
        inputs = partial(carried_pages, mode, 8.0, 4.85, **served, **where)
        cases.append(stage.size(f"served-mode-{mode}", "D", SERVED.format(G), inputs, kind="set"))
    least = partial(carried_pages, 0, 8.0, 5.27, **served, G=8)
    cases.append(stage.size("served-mode-no-larger", "D", "1% below another page: not kept", least, kind="set"))
    for G in (1, 4, 8):
        cases.append(stage.size(f"served-modes-of-{G}", "D", MODES, partial(_modes_decide, G), kind="set"))
    return cases


SERVED = "d = 128, rank 8, int4, groups of {}: a mode 7% smaller would not be kept"
MODES = "41 pages of one centroid logit, d = 128, rank 8, int4: their modes alone rank them"


def _modes_decide(G: int) -> Inputs:
    inputs = spread_pages(650, 128, 320, G=G, apart=0.0)
    return {**inputs, "queries": 8 * inputs["queries"]}


AVERAGE = "a group of {}: the mean share ranks, not the largest"
LAST = "a group of {}: the last query decides"
SCALE = "d = {}: the scale is 1/sqrt(d)"


def _one_and(others: int, masses: Any) -> Any:
    """The first line of masses and ``others`` times the second."""
    return [masses[0], *[masses[1]] * others]


def _general_cases(stage: Family) -> list[Case]:
    """Precisions, ranks, sizes and real tokens, after the probes."""

    def general(name: str, why: str, inputs: Any, **more: Any) -> Case:
        return stage.general(name, why, inputs, kind="set", **more)

    return [
        *[
            general(f"bits-{bits}", f"basis_bits {bits!r}", partial(spread_pages, 250, bits=bits))
            for bits in (None, "fp", 8, 4, 2)
        ],
        *[
            general(
                f"rank-4-bits-{bits}",
                f"rank 4, basis_bits {bits!r}",
                partial(spread_pages, 330, bits=bits, rank=4, apart=0.4),
            )
            for bits in (8, 4, 2)
        ],
        *[general(f"G{G}", f"{G} query heads of a group", partial(spread_pages, 250, G=G)) for G in (1, 2, 5, 6)],
        general("d80-G7", "d = 80, seven query heads", partial(spread_pages, 200, 80, G=7)),
        general("d96-B8", "d = 96, pages of 8", partial(spread_pages, 130, 96, 48, G=2, B=8, rank=4)),
        general("d128-G8", "d = 128, eight query heads", partial(spread_pages, 330, 128, 96, G=8)),
        general("d256-B32", "d = 256, pages of 32", partial(spread_pages, 410, 256, 160, G=4, B=32)),
        general("capture-needle", "the real needle prompt, k = 8", _needle),
        general("capture-needle-unquantised", "the same, nothing quantised", partial(_needle, None)),
        general("capture-first-layer", "another layer of it, ternary", partial(_needle, 2, 0, 1)),
        general("capture-8k", "8K real tokens, k = 32", _long, profile="default"),
    ]


def _own_found() -> Inputs:
    inputs = _found()
    keys = inputs["keys"].copy()
    keys[1] = np.roll(keys[1], 2 * 16, axis=0)
    return {**inputs, "keys": keys}


def _half_scale() -> Inputs:
    """Queries twice as long at half the default scale."""
    inputs = shaped_pages([NOT_TWICE_AS_SHARP[0], NOT_TWICE_AS_SHARP[1], NOT_TWICE_AS_SHARP[1]])
    return {**inputs, "queries": 2 * inputs["queries"], "softmax_scale": 1 / 16}


def _level(bits: int, budget: int, G: int) -> Inputs:
    """41 pages that nothing but their own modes tells apart: some lie close enough for codes to decide."""
    return spread_pages(650, budget=budget, bits=bits, G=G, rank=4, apart=0.0)


def _found() -> Inputs:
    """Page 5 of 10 holds one key along the query; its mass is all there is."""
    inputs = spread_pages(160, budget=48)
    queries = np.zeros((2, 3, 64))
    queries[..., 7] = 16.0
    keys = np.zeros((2, 160, 64))
    keys[:, ::3, 9] = 1.0
    keys[:, 5 * 16 + 4, 7] = 8.0
    return {**inputs, "queries": queries, "keys": keys}


def _needle(bits: Any = 4, layer: int = 2, step: int = 2) -> Inputs:
    return {**needle_slice(layer, step), "rank": 8, "basis_bits": bits, "budget_tokens": 128, "page_size": 16}


def _long() -> Inputs:
    return {**long_text_slice(5), "rank": 8, "basis_bits": 4, "budget_tokens": 512, "page_size": 16}


def decode_paged_cases() -> list[Case]:
    """Cases of `locks_decode_paged`."""
    stage = Family("locks_decode_paged", "A")
    return [
        stage.probe("never-read", "A", NEVER, partial(_batch, [130, 0, 33]), kind="set", poison=poison_pool),
        stage.probe("short-beside-long", "A", "a short row ends in -1", partial(_batch, [200, 20]), kind="set"),
        stage.probe(
            "fewer-pages-than-budget", "C", "K is the most pages of any row", partial(_batch, [33, 20]), kind="set"
        ),
        stage.probe("six-rows", "A", "a batch of six", partial(_batch, [5, 40, 0, 16, 97, 100]), kind="set"),
        stage.probe("second-mode-kept", "H", "rank 2 keeps two modes in every row", _carried_batch, kind="set"),
        *_paged_probes(stage),
        stage.size("token-32768", "A", FAR, _far_token, kind="set", profile="deep"),
        stage.general("batch", "three sequences of different lengths", partial(_batch, [130, 97, 160]), kind="set"),
    ]


NEVER = "slots past a sequence's end hold NaN, table entries past its pages are stale: neither is ever read"


def _paged_probes(stage: Family) -> list[Case]:
    """The probes of `locks_decode` in pools, so that a port of this stage alone is judged as closely."""
    alone = [case for case in decode_cases() if case.probe and case.name != "no-tokens"]
    fitting = [case for case in alone if case.inputs()["page_size"] == 16 and "softmax_scale" not in case.inputs()]
    return [replace(case, stage=stage.stage, inputs=partial(_twice, case)) for case in fitting]


def _twice(case: Case) -> Inputs:
    """A case's sequence, and the same one with its KV heads reversed."""
    one = case.inputs()
    other = {name: value[::-1] if isinstance(value, np.ndarray) else value for name, value in one.items()}
    return _in_pools([one, other], case.name)


def _batch(lengths: list[int]) -> Inputs:
    return _in_pools([spread_pages(T, budget=64) for T in lengths], str(lengths))


def _carried_batch() -> Inputs:
    return _in_pools([carried_pages(1, 8.0, 2.5), carried_pages(0, 8.0, 2.5)], "carried")


FAR = "token 32,768, alone in the open page, has all weight: token numbers of 16 bits are negative"


def _far_token() -> Inputs:
    inputs = spread_pages(2**15 + 1, budget=64, G=2)
    inputs["keys"][:, -1:] = towards(inputs["queries"], np.full((2, 2, 1), 2000.0))
    return _in_pools([inputs], "far")


def _in_pools(parts: list[Inputs], name: str) -> Inputs:
    """Decode inputs of equal settings as one batch in shuffled blocks of 16."""
    lengths = [p["keys"].shape[1] for p in parts]
    blocks = sum(-(-T // 16) for T in lengths) + 5
    order = generator("decode-paged", name).permutation(blocks).tolist()
    table = [[order.pop() for _ in range(-(-T // 16))] for T in lengths]
    pool = pooled([p["keys"] for p in parts], [p["values"] for p in parts], lengths, 16, table, blocks)
    settings = {key: parts[0][key] for key in ("rank", "basis_bits", "budget_tokens")}
    return {"queries": np.stack([p["queries"] for p in parts]), **pool, **settings}
