"""Judging codes and selections of the dialect locks-kv-0.1.4."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from proofs_checks.judge.checks.codes import Part, judge_codes, parts, rounding_departure
from proofs_checks.judge.checks.selection import selected
from proofs_checks.judge.judgement import Call, Fault, Judgement
from proofs_checks.numbers import round_bfloat16
from refimpl.locks.dialect import LOCKS_KV_0_1_4
from refimpl.locks.select import pages_within_budget
from refimpl.paging import page_count


def quantized(call: Call) -> Judgement:
    """`locks_quantize_summary`: codes by the exact scale max(absmax / level, floor), which is then stored in bf16."""
    judgement = Judgement()
    for part in parts(int(call.inputs["basis_bits"])):
        _judge_part(judgement, part, call)
    return judgement


def _judge_part(judgement: Judgement, part: Part, call: Call) -> None:
    x, u = call.inputs[part.name], call.precision.roundoff
    if x.size == 0:
        return
    codes = np.asarray(call.answer[part.codes], dtype=np.float64)
    stored = np.expand_dims(np.asarray(call.answer[part.scale], dtype=np.float64), part.axis)
    absmax = np.max(np.abs(x), axis=part.axis, keepdims=True)
    exact = np.maximum(absmax / part.level, LOCKS_KV_0_1_4.scale_floor)
    # rounding is monotone: a port's scale, right to 2 u, ends between these
    low, high = (round_bfloat16(exact * (1 + sign * 2 * u)).astype(np.float64) for sign in (-1, 1))
    wrong = ~((low <= stored) & (stored <= high) & (stored == round_bfloat16(stored)))
    wrong &= (absmax > 0) | ~np.isfinite(stored)  # a line of zeros: any finite scale (AMB-09)
    if wrong.any():
        where = tuple(int(i) for i in np.argwhere(wrong)[0])
        index = [int(i) for i in np.delete(where, part.axis)]
        text = (
            f"{part.scale}{index} is {stored[where]:.9g}, expected max(absmax / {part.level}, "
            f"{LOCKS_KV_0_1_4.scale_floor:g}) = {exact[where]:.9g} rounded to bf16, {low[where]:.9g}"
        )
        judgement.faults.append(Fault(part.scale, tuple(index), text))
        return
    judge_codes(judgement, part, x, codes, exact, 4 * u)
    if not judgement.faults:
        in_float32 = exact.astype(np.float32) == exact  # else a port's scale is another, and nothing is half a step
        rounding_departure(judgement, part, x, codes, np.where(in_float32, exact, 0.0))


def budget_with_forced(budget_tokens: int, page_size: int) -> int:
    """The paper's budget that keeps as many pages: ceil(b/B) between the forced ones, and these two.

    >>> budget_with_forced(33, 16)
    80
    """
    return (page_count(budget_tokens, page_size) + 2) * page_size


def kept_pages(budget_tokens: int, page_size: int, count: int) -> int:
    """Pages that the dialect keeps of ``count``.

    >>> kept_pages(32, 16, 9), kept_pages(32, 16, 3)
    (4, 3)
    """
    return pages_within_budget(budget_with_forced(budget_tokens, page_size), page_size, count)


def selected_besides_forced(call: Call) -> Judgement:
    """`locks_select_pages`: as the paper's, the budget counting the pages between sink and most recent page."""
    budget = budget_with_forced(int(call.inputs["budget_tokens"]), int(call.inputs["page_size"]))
    return selected(replace(call, inputs={**call.inputs, "budget_tokens": budget}))
