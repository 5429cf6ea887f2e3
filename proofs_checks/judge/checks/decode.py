"""Judging whole decode steps: the pages as a set, then the output on the port's own pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import sparse_attention_bound
from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.judge.checks.general import BoundFunction, Check
from proofs_checks.judge.checks.selection import judge_pages
from proofs_checks.judge.judgement import Call, Fault, Judgement, compare
from proofs_checks.numbers import Precision
from refimpl.attention import sparse_attention
from refimpl.locks.select import pages_within_budget
from refimpl.paging import gather_sequence, page_count


@dataclass(frozen=True)
class DecodeRules:
    """What a decode step is judged by: how pages rank, how many are kept, and the bound of the output."""

    enclosure: Callable[..., tuple[Any, Any]]
    """As `decode_enclosure`: low and high ends [H, P] of what pages are ranked by."""
    kept: Callable[[int, int, int], int]
    """Pages kept of budget_tokens, page_size and P."""
    bound: BoundFunction


PAPER = DecodeRules(decode_enclosure, pages_within_budget, sparse_attention_bound)


def decoder(rules: DecodeRules) -> Check:
    """The check of `locks_decode`: pages by MUST and MAY sets, output against attention over exactly these pages."""

    def check(call: Call) -> Judgement:
        judgement = Judgement()
        pages = np.asarray(call.answer["pages"])
        page_size = int(call.inputs["page_size"])
        count = page_count(call.inputs["keys"].shape[1], page_size)
        kept = rules.kept(int(call.inputs["budget_tokens"]), page_size, count)
        output = np.asarray(call.answer["output"], dtype=np.float64)
        _judge_sequence(judgement, rules, call.inputs, call.precision, pages[:, :kept], output, page_size, ())
        return judgement

    return check


def paged_decoder(rules: DecodeRules) -> Check:
    """The check of `locks_decode_paged`: every sequence as `decoder`; -1 stands only where a row's pages run out."""

    def check(call: Call) -> Judgement:
        judgement = Judgement()
        inputs, page_size = call.inputs, call.inputs["key_pool"].shape[1]
        pages = np.asarray(call.answer["pages"])
        output = np.asarray(call.answer["output"], dtype=np.float64)
        for n, tokens in enumerate(int(t) for t in inputs["tokens"]):
            kept = rules.kept(int(inputs["budget_tokens"]), page_size, page_count(tokens, page_size))
            if (pages[n, :, kept:] != -1).any():
                text = f"pages[{n}]: expected -1 after {kept} pages, got {pages[n].tolist()}"
                judgement.faults.append(Fault("pages", (n,), text))
                continue
            sequence = {
                "queries": inputs["queries"][n],
                "keys": gather_sequence(inputs["key_pool"], inputs["block_table"][n], tokens),
                "values": gather_sequence(inputs["value_pool"], inputs["block_table"][n], tokens),
            }
            settings = {
                k: v for k, v in inputs.items() if k in ("rank", "basis_bits", "budget_tokens", "softmax_scale")
            }
            chosen = pages[n, :, :kept]
            _judge_sequence(judgement, rules, sequence | settings, call.precision, chosen, output[n], page_size, (n,))
        return judgement

    return check


decoded, decoded_paged = decoder(PAPER), paged_decoder(PAPER)


def _judge_sequence(
    judgement: Judgement,
    rules: DecodeRules,
    inputs: Mapping[str, Any],
    precision: Precision,
    pages: Any,
    output: Any,
    page_size: int,
    where: tuple[int, ...],
) -> None:
    queries, keys, values = inputs["queries"], inputs["keys"], inputs["values"]
    if keys.shape[1] == 0:
        compare(judgement, "output", output, np.zeros(queries.shape), 0.0, where)
        return
    scale = inputs.get("softmax_scale")
    low, high = rules.enclosure(queries, keys, int(inputs["rank"]), inputs["basis_bits"], page_size, scale, precision)
    kept = rules.kept(int(inputs["budget_tokens"]), page_size, low.shape[1])
    usable = [judge_pages(judgement, row, low[h], high[h], kept, (*where, h)) for h, row in enumerate(pages)]
    if not all(usable):
        return
    call = {"queries": queries, "keys": keys, "values": values, "pages": pages, "page_size": page_size}
    reference = sparse_attention(**call, softmax_scale=scale)
    bounds = rules.bound(call | {"softmax_scale": scale}, reference, precision)
    compare(judgement, "output", output, reference["output"], bounds["output"], where)
