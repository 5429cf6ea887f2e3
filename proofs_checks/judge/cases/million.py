"""Trials of the deep profile: a million tokens, 65,536 pages, a million pages, without a reference of the whole.

Sums over a million float32 terms have no useful bound: gamma_n of n = 5 T operations exceeds 1. So all but some
hundreds of tokens, the carriers, lie a thousand nats below them. exp of that is zero in every format, a sum does not
round when zero is added, and the bound of the whole is that of the carriers alone. They stand where addresses go
wrong: at both ends, around powers of two, and anywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import attention_bound, merge_attention_bound, one_head
from proofs_checks.bounds.locks_score import score_bound
from proofs_checks.judge.case import Calls, Case, Family, Inputs, Trial, generator
from proofs_checks.judge.cases.inputs import random_qkv
from proofs_checks.judge.cases.planted import many_pages, planted_pages
from proofs_checks.judge.judgement import Fault, Judgement, compare
from proofs_checks.numbers import Precision
from refimpl.attention import attend, attention, merge_attention
from refimpl.locks.score import locks_score_pages

TOKENS = 2**20 + 5
"""The last page of 16 holds five of them."""

D, G, PAGE = 64, 2, 16
LOW = -1024.0
"""Logit of the tokens that weigh nothing."""

PAGES = 2**16
CHUNK = 4096
"""Pages whose bound is computed at a time."""

CUTS = (0, 1, 17, 4097, 65536, 2**19 + 3, 2**20, TOKENS)
"""Where the tokens are split: uneven, and one split of a single token."""


def carriers() -> Any:
    """Positions [n] of the tokens that weigh something, ascending."""
    edges = [2**k + off for k in (4, 8, 12, 15, 16, 17, 18, 19, 20) for off in (-1, 0, 1)]
    anywhere = generator("million", "carriers").integers(0, TOKENS, size=480)
    return np.unique([0, 1, *edges, TOKENS - 1, *anywhere])


def a_million_tokens() -> Inputs:
    """queries [1, 2, 64], keys and values [1, T, 64] in float32; a key's channel 0 is its logit's level: 8 k / 8."""
    rng = generator("million", "tokens")
    block = rng.standard_normal((4096, D), dtype=np.float32)
    keys, values = (np.resize(block[::step], (TOKENS, D)) for step in (1, -1))  # repeated as often as needed
    keys[:, 0] = LOW
    chosen = carriers()
    keys[chosen] = rng.standard_normal((len(chosen), D), dtype=np.float32)
    keys[chosen, 0] = 0.0
    values[chosen] = 4 + rng.standard_normal((len(chosen), D), dtype=np.float32)
    queries = rng.standard_normal((1, G, D), dtype=np.float32)
    queries[..., 0] = 8.0
    return {"queries": queries, "keys": keys[None], "values": values[None]}


SHAPES = {"output": (1, G, D), "lse": (1, G)}
State = tuple[Mapping[str, Any], Mapping[str, Any]]
"""Output and lse, and the bounds of both."""


def carried_state(inputs: Inputs, precision: Precision, start: int = 0) -> State:
    """The state of keys [1, t, d] that begin at token ``start``, from the carriers among them."""
    chosen = carriers() - start
    chosen = chosen[(chosen >= 0) & (chosen < inputs["keys"].shape[1])]
    queries = inputs["queries"][0].astype(np.float64)
    keys, values = (inputs[name][0, chosen].astype(np.float64) for name in ("keys", "values"))
    scale = 1 / np.sqrt(D)
    output, lse = one_head(queries, keys, values, scale, precision)
    return attend(queries[None], keys[None], values[None], scale), {"output": output[None], "lse": lse[None]}


def merged_state(states: Sequence[State]) -> State:
    """The exact merge of states that are known within bounds, and what remains of these.

    With |d lse| <= D everywhere, weights change by factors within e^(+-2D): output by at most
    sum_s w_s (e^2D E_s + (e^2D - 1) |o_s - o|), lse by D.
    """
    values, bounds = ([state[i] for state in states] for i in (0, 1))
    merged = merge_attention(**{f"{n}s": np.stack([v[n] for v in values]) for n in ("output", "lse")})
    error = np.max([bound["lse"] for bound in bounds], axis=0)  # [H, G]
    weights = [np.exp(value["lse"] - merged["lse"])[..., None] for value in values]
    grown, moved = np.exp(2 * error)[..., None], np.expm1(2 * error)[..., None]
    output = sum(
        w * (grown * b["output"] + moved * np.abs(v["output"] - merged["output"]))
        for w, v, b in zip(weights, values, bounds, strict=True)
    )
    return merged, {"output": output, "lse": error}


def split_and_merged(calls: Calls, inputs: Inputs, cuts: Sequence[int], state: Callable[..., State]) -> Judgement:
    """The tokens at once against the same tokens in splits, merged here: within both bounds, and right at once."""
    shapes = {name: np.shape(value) for name, value in state(inputs, calls.precision)[0].items()}
    whole = calls.ask(inputs, shapes)
    right, bounds = state(inputs, calls.precision)
    answers, parts = [], []
    for start, stop in pairwise(cuts):
        part = {**inputs, **{name: inputs[name][:, start:stop] for name in ("keys", "values")}}
        answers.append(calls.ask(part, shapes))
        parts.append(state(part, calls.precision, start))
    merged = merge_attention(**{f"{n}s": np.stack([a[n] for a in answers]).astype(float) for n in ("output", "lse")})
    _, slack = merged_state(parts)
    judgement = Judgement()
    for name in right:
        compare(judgement, name, whole[name], right[name], bounds[name])
        compare(judgement, name, whole[name], merged[name], bounds[name] + slack[name])
    return judgement


def small_state(inputs: Inputs, precision: Precision, start: int = 0) -> State:
    """The state of a few tokens, by the reference."""
    exact: dict[str, Any] = {name: np.asarray(value, np.float64) for name, value in inputs.items()}
    right = attention(**exact)
    return right, attention_bound(exact, right, precision)


def shifted_logits(calls: Calls, inputs: Inputs) -> Judgement:
    """Four more in every key's channel 0, which the query reads times 8 / 8: the lse grows by 4, nothing else moves."""
    first, (right, bounds) = calls.ask(inputs, SHAPES), carried_state(inputs, calls.precision)
    keys = inputs["keys"].copy()
    keys[..., 0] += 4
    moved = {**inputs, "keys": keys}
    second, (_, others) = calls.ask(moved, SHAPES), carried_state(moved, calls.precision)
    judgement = Judgement()
    for name, by in (("output", 0.0), ("lse", 4.0)):
        compare(judgement, name, first[name], right[name], bounds[name])
        compare(judgement, name, second[name], first[name].astype(float) + by, bounds[name] + others[name])
    return judgement


def every_page(calls: Calls, inputs: Inputs) -> Judgement:
    """Attention over all pages, shuffled, is attention; the port's own, where it has that stage."""
    right, bounds = carried_state(inputs, calls.precision)
    sparse = calls.ask(inputs, SHAPES)
    judgement = Judgement()
    for name in right:
        compare(judgement, name, sparse[name], right[name], bounds[name])
    if calls.provides("attention"):
        dense = calls.ask({name: inputs[name] for name in ("queries", "keys", "values")}, SHAPES, "attention")
        for name in right:
            compare(judgement, name, sparse[name], dense[name], 2 * bounds[name])
    return judgement


def with_every_page() -> Inputs:
    """All pages, the last of five tokens among them, in random order."""
    pages = generator("million", "pages").permutation(-(-TOKENS // PAGE))[None]
    return {**a_million_tokens(), "pages": pages, "page_size": PAGE}


def many_summaries() -> Inputs:
    """65,536 page summaries of rank 8; bases and coefficients repeat, centroids do not."""
    rng = generator("million", "summaries")
    basis = np.linalg.qr(rng.standard_normal((CHUNK, D, 8)))[0]
    coefficients = rng.standard_normal((CHUNK, PAGE, 8)) * np.linspace(3, 0.5, 8)
    return {
        "queries": 2 * rng.standard_normal((1, G, D), dtype=np.float32),
        "centroid": rng.standard_normal((1, PAGES, D), dtype=np.float32),
        "basis": np.resize(basis.astype(np.float32), (1, PAGES, D, 8)),
        "coefficients": np.resize(coefficients.astype(np.float32), (1, PAGES, PAGE, 8)),
    }


def pages_permuted(calls: Calls, inputs: Inputs) -> Judgement:
    """A page's score does not depend on where the page stands; the bound is computed some pages at a time."""
    order = generator("million", "order").permutation(PAGES)
    shapes = {"scores": (1, G, PAGES)}
    first = calls.ask(inputs, shapes)["scores"]
    moved = {n: a if n == "queries" else a[:, order] for n, a in inputs.items()}
    second = calls.ask(moved, shapes)["scores"]
    judgement = Judgement()
    for start in range(0, PAGES, CHUNK):
        part = {n: a if n == "queries" else a[:, start : start + CHUNK] for n, a in moved.items()}
        exact = {name: array.astype(np.float64) for name, array in part.items()}
        bound = score_bound(exact, {}, calls.precision)["scores"]
        here = slice(start, start + CHUNK)
        compare(judgement, "scores", second[..., here], first[..., order[here]], 2 * bound)
        right = locks_score_pages(**exact)
        compare(judgement, "scores", second[..., here], right, bound)
    return judgement


def a_million_shares() -> Inputs:
    """Shares that all differ: the numbers 1 to 2^20, shuffled, times 2^-40."""
    order = generator("million", "shares").permutation(2**20)[None]
    return {"shares": (order + 1) * 2.0**-40, "budget_tokens": 4096 * PAGE, "page_size": PAGE}


def selection_permuted(calls: Calls, inputs: Inputs) -> Judgement:
    """The 4,094 largest and both forced pages, wherever they stand: two orders of the pages between the forced ones."""
    count, judgement = inputs["shares"].shape[1], Judgement()
    kept = inputs["budget_tokens"] // inputs["page_size"]
    order = 1 + generator("million", "order").permutation(count - 2)
    for middle in (np.arange(1, count - 1), order):
        shares = inputs["shares"][:, [0, *middle, count - 1]]
        pages = calls.ask({**inputs, "shares": shares}, {"pages": (1, kept)})["pages"][0]
        right = 1 + np.argpartition(-shares[0, 1:-1], kept - 3)[: kept - 2]
        wrong = np.setxor1d(pages, [0, *right, count - 1])
        if wrong.size or len(np.unique(pages)) < kept:
            text = f"pages[0]: {wrong.size} of {kept} pages are missing or too many, page {wrong[:1].tolist()} first"
            judgement.faults.append(Fault("pages", (0,), text))
    return judgement


def many_splits() -> Inputs:
    """65,536 split states of one KV head, every 97th of them empty."""
    rng = generator("million", "splits")
    lses = 2 * rng.standard_normal((PAGES, 1, G), dtype=np.float32)
    lses[::97] = -np.inf
    return {"outputs": 10 + rng.standard_normal((PAGES, 1, G, D), dtype=np.float32), "lses": lses}


def merged_in_two_steps(calls: Calls, inputs: Inputs) -> Judgement:
    """All splits at once against 256 merges of 256 each (as 256 heads of one call), merged in a second call."""
    whole = calls.ask(inputs, SHAPES)
    groups = {n: a.reshape(256, 256, *a.shape[2:]) for n, a in inputs.items()}
    first = calls.ask(groups, {"output": (256, G, D), "lse": (256, G)})
    states = {"outputs": first["output"].astype(np.float32)[:, None], "lses": first["lse"].astype(np.float32)[:, None]}
    second = calls.ask(states, SHAPES)
    right, bounds = _merged(inputs, calls.precision)
    _, of_groups = _merged(groups, calls.precision)
    exact, of_second = _merged(states, calls.precision)
    parts = [({n: states[f"{n}s"][i] for n in exact}, {n: of_groups[n][i][None] for n in exact}) for i in range(256)]
    _, slack = merged_state(parts)
    judgement = Judgement()
    for name in right:
        compare(judgement, name, whole[name], right[name], bounds[name])
        compare(judgement, name, second[name], whole[name], bounds[name] + slack[name] + of_second[name])
    return judgement


def _merged(inputs: Inputs, precision: Precision) -> tuple[dict[str, Any], dict[str, Any]]:
    exact: dict[str, Any] = {name: array.astype(np.float64) for name, array in inputs.items()}
    right = merge_attention(**exact)
    return right, merge_attention_bound(exact, right, precision)


def seventeen_tokens() -> Inputs:
    """Unequal heads, 17 tokens."""
    return dict(random_qkv(generator("million", "seventeen"), 2, 3, 17, D, 2.0))


SPLIT = "17 tokens at once against 16 and 1, merged"
MILLION = "2^20 + 5 tokens at once against seven splits, merged: no token is lost, no address overflows"
SHIFT = "a constant added to a million logits moves the lse alone"
EVERY = "attention over all 65,537 pages, shuffled, is attention"
MOVED = "65,536 pages in another order have the same scores"
RANKED = "4,096 of a million pages, in two orders"
PLANTED = "126 of 32,768 pages outweigh the rest: a ring of copies goes round more than once"
STEPS = "65,536 splits merged at once and in two steps"
HALVES = ("float32", "bfloat16", "float16")
MILLION_SPLIT = partial(split_and_merged, cuts=CUTS, state=carried_state)
SEVENTEEN_SPLIT = partial(split_and_merged, cuts=(0, 16, 17), state=small_state)

TRIALS: dict[str, tuple[tuple[str, str, Callable[[], Inputs], Trial, dict[str, Any]], ...]] = {
    "attention": (
        ("split-and-merge", SPLIT, seventeen_tokens, SEVENTEEN_SPLIT, {"profile": "quick"}),
        ("million-tokens-split", MILLION, a_million_tokens, MILLION_SPLIT, {"dtypes": HALVES}),
        ("million-tokens-shifted", SHIFT, a_million_tokens, shifted_logits, {"dtypes": HALVES}),
    ),
    "merge_attention": (("65536-splits", STEPS, many_splits, merged_in_two_steps, {}),),
    "sparse_attention": (("every-page", EVERY, with_every_page, every_page, {"dtypes": HALVES}),),
    "locks_score_pages": (("65536-pages-permuted", MOVED, many_summaries, pages_permuted, {}),),
    "locks_select_pages": (("million-pages", RANKED, a_million_shares, selection_permuted, {}),),
    "locks_decode": (("planted-pages-of-32768", PLANTED, many_pages, planted_pages, {"dtypes": HALVES}),),
}


def trial_cases(stage: str) -> list[Case]:
    """The trials of one stage that are its own; `proofs_checks.judge.cases.hygiene` has those of every stage."""
    family = Family(stage, "B")
    return [
        family.general(name, why, inputs, trial=trial, **{"kind": "metamorphic", "profile": "deep", **more})
        for name, why, inputs, trial, more in TRIALS.get(stage, ())
    ]
