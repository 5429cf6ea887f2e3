"""Judging whole decode steps: the pages as a set, then the output on the port's own pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from proofs_checks.bounds.attention import sparse_attention_bound
from proofs_checks.bounds.locks_decode import decode_enclosure
from proofs_checks.judge.checks.selection import judge_pages
from proofs_checks.judge.judgement import Call, Fault, Judgement, compare
from proofs_checks.numbers import Precision
from refimpl.attention import sparse_attention
from refimpl.locks.select import pages_within_budget
from refimpl.paging import gather_sequence, page_count


def decoded(call: Call) -> Judgement:
    """`locks_decode`: pages by their MUST and MAY sets, output against attention over exactly these pages."""
    judgement = Judgement()
    pages = np.asarray(call.answer["pages"])
    page_size = int(call.inputs["page_size"])
    kept = pages_within_budget(
        int(call.inputs["budget_tokens"]), page_size, page_count(call.inputs["keys"].shape[1], page_size)
    )
    output = np.asarray(call.answer["output"], dtype=np.float64)
    _judge_sequence(judgement, call.inputs, call.precision, pages[:, :kept], output, page_size, ())
    return judgement


def decoded_paged(call: Call) -> Judgement:
    """`locks_decode_paged`: every sequence as `locks_decode`; -1 stands only where a row's pages run out."""
    judgement = Judgement()
    inputs, page_size = call.inputs, call.inputs["key_pool"].shape[1]
    pages = np.asarray(call.answer["pages"])
    output = np.asarray(call.answer["output"], dtype=np.float64)
    for n, tokens in enumerate(int(t) for t in inputs["tokens"]):
        count = page_count(tokens, page_size)
        kept = min(pages.shape[-1], count)
        if (pages[n, :, kept:] != -1).any():
            text = f"pages[{n}]: expected -1 after {kept} pages, got {pages[n].tolist()}"
            judgement.faults.append(Fault("pages", (n,), text))
            continue
        sequence = {
            "queries": inputs["queries"][n],
            "keys": gather_sequence(inputs["key_pool"], inputs["block_table"][n], tokens),
            "values": gather_sequence(inputs["value_pool"], inputs["block_table"][n], tokens),
        }
        settings = {k: v for k, v in inputs.items() if k in ("rank", "basis_bits", "budget_tokens", "softmax_scale")}
        _judge_sequence(judgement, sequence | settings, call.precision, pages[n, :, :kept], output[n], page_size, (n,))
    return judgement


def _judge_sequence(
    judgement: Judgement,
    inputs: Mapping[str, Any],
    precision: Precision,
    pages: Any,
    output: Any,
    page_size: int,
    where: tuple[int, ...],
) -> None:
    queries, keys, values = inputs["queries"], inputs["keys"], inputs["values"]
    if keys.shape[1] == 0:
        compare(judgement, "output", output, np.zeros(queries.shape), 0.0)
        return
    scale = inputs.get("softmax_scale")
    low, high = decode_enclosure(queries, keys, int(inputs["rank"]), inputs["basis_bits"], page_size, scale, precision)
    kept = pages_within_budget(int(inputs["budget_tokens"]), page_size, low.shape[1])
    usable = [judge_pages(judgement, row, low[h], high[h], kept, (*where, h)) for h, row in enumerate(pages)]
    if not all(usable):
        return
    call = {"queries": queries, "keys": keys, "values": values, "pages": pages, "page_size": page_size}
    reference = sparse_attention(**call, softmax_scale=scale)
    bounds = sparse_attention_bound(call | {"softmax_scale": scale}, reference, precision)
    compare(judgement, "output", output, reference["output"], bounds["output"])
