"""Judging ReadKV's readers: depths by what they buy, then weights and output on the port's own depths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.bounds import readkv_reader as bounds
from proofs_checks.judge.checks.allocation import Purchase, judge_purchase, single_costs
from proofs_checks.judge.checks.readkv_tree import port_order, port_table
from proofs_checks.judge.judgement import Call, Fault, Judgement, compare, compare_exactly, says_nothing
from proofs_checks.numbers import Precision
from refimpl.attention import log_sum_exp, scale_of
from refimpl.checks import FloatArray, IntArray
from refimpl.readkv.budgets import budget_of_rate
from refimpl.readkv.policies import read_schedule
from refimpl.readkv.reader import PrefixCache, reconstructed_keys, reconstructed_values
from refimpl.readkv.restricted import pair_costs
from refimpl.readkv.rotation import readkv_rotate
from refimpl.readkv.tree import LEAF_DEPTH

CHANNELWISE = ("key_codes", "value_codes", "key_mean", "key_scale", "value_mean", "value_scale")
"""Inputs whose last axis is rotated channels, in the port's own order of them (AMB-16)."""


@dataclass(frozen=True)
class Reading:
    """One read step in the reference's coordinates: the inputs, and the port's depths [H, d] and [H, T]."""

    queries: FloatArray
    cache: PrefixCache
    key_depths: IntArray
    value_depths: IntArray
    weights: FloatArray
    scale: float


Rule = Callable[[Judgement, str, IntArray, FloatArray, FloatArray, Call, FloatArray], bool]
"""Judges depths [H, N] by the ends of the importances [H, N] and the gains; whether they are in range."""


def reading(call: Call) -> Reading:
    """The port's answer as a read, in the reference's order of coordinates."""
    inputs: dict[str, Any] = dict(call.inputs)
    depths: Any = np.asarray(call.answer["key_depths"], dtype=np.int64)
    order = port_order(call.ask, inputs["queries"].shape[-1])
    if order is not None:
        inverse = np.argsort(order)
        inputs |= {name: inputs[name][..., inverse] for name in CHANNELWISE}
        depths = depths[..., inverse]
    fields = (*CHANNELWISE, "key_signs", "value_signs")
    stored = int(inputs.get("stored_depth", LEAF_DEPTH))
    cache = PrefixCache(**{n: inputs[n] for n in fields}, stored_depth=stored, table=port_table(call.ask))
    return Reading(
        inputs["queries"],
        cache,
        depths,
        np.asarray(call.answer["value_depths"], dtype=np.int64),
        np.asarray(call.answer["weights"], dtype=np.float64),
        scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1]),
    )


def reader(rule: Rule) -> Callable[[Call], Judgement]:
    """The check of a reader whose allocations are judged by ``rule``."""

    def check(call: Call) -> Judgement:
        judgement, read = Judgement(), reading(call)
        rotated = readkv_rotate(x=read.queries, signs=read.cache.key_signs)
        error = bounds.rotated_query_error(read.queries, rotated, call.precision)
        low, high = bounds.key_importance_range(rotated, error, read.cache.key_scale, call.precision)
        found = Judgement()
        usable = rule(found, "key_depths", read.key_depths, low, high, call, read.cache.gains)
        if not usable or "key_depths" in call.names():
            judgement.faults += found.faults
        if usable:
            _judge_reads(judgement, rule, call, read, rotated, error)
        if call.kind == "exact" and call.lowest_index and not judgement.faults:
            for name in ("key_depths", "value_depths"):
                compare_exactly(judgement, name, call.answer[name], call.reference[name])
        return judgement

    return check


def logits_of(
    read: Reading, rotated: FloatArray, query_error: FloatArray, precision: Precision
) -> tuple[FloatArray, FloatArray]:
    """The logits [H, G, T] of a read at its own key depths, and how far a right port's may lie from them."""
    keys = reconstructed_keys(read.cache, read.key_depths)
    logits = read.scale * np.einsum("hgd,htd->hgt", rotated, keys, optimize=True)
    magnitude = _magnitude(keys, read.cache.key_mean)
    return logits, bounds.reader_logit_error(rotated, query_error, keys, magnitude, read.scale, precision)


def read_bounds(
    read: Reading, logits: FloatArray, error: FloatArray, output: FloatArray, precision: Precision
) -> dict[str, FloatArray]:
    """Bounds of the weights and of the right ``output`` at the read's own depths."""
    values = reconstructed_values(read.cache, read.value_depths)
    mixed = np.einsum("hgt,htd->hgd", _weights(logits), values, optimize=True)
    magnitude = _magnitude(values, read.cache.value_mean)
    return {
        "weights": bounds.weight_bound(logits, error, precision),
        "output": bounds.reader_output_bound(logits, error, values, magnitude, mixed, output, precision),
    }


def _judge_reads(
    judgement: Judgement, rule: Rule, call: Call, read: Reading, rotated: FloatArray, query_error: FloatArray
) -> None:
    """Weights on the port's key depths, value depths by the port's weights, output on both depths."""
    logits, error = logits_of(read, rotated, query_error, call.precision)
    low, high = bounds.value_importance_range(read.weights, logits, call.precision)
    found = Judgement()
    usable = rule(found, "value_depths", read.value_depths, low, high, call, read.cache.gains)
    if not usable or "value_depths" in call.names():
        judgement.faults += found.faults
    if not usable:
        return
    exact = read_schedule(
        queries=read.queries,
        cache=read.cache,
        key_depths=read.key_depths,
        value_depths=read.value_depths,
        softmax_scale=read.scale,
    )
    allowed = read_bounds(read, logits, error, exact["output"], call.precision)
    for name in ("weights", "output"):
        if name in call.names():
            compare(judgement, name, call.answer[name], exact[name], allowed[name])
    judgement.refused = _refusal(call, exact, allowed)


def _weights(logits: FloatArray) -> FloatArray:
    lse = log_sum_exp(logits)[..., None]
    weights: FloatArray = np.exp(logits - np.where(np.isneginf(lse), 0.0, lse))
    return weights


def _magnitude(reconstructed: FloatArray, mean: FloatArray) -> FloatArray:
    """|mean| + |scale * centroid| of mean + scale * centroid, [H, T, d]."""
    magnitude: FloatArray = np.abs(mean)[:, None] + np.abs(reconstructed - mean[:, None])
    return magnitude


def _refusal(call: Call, exact: Mapping[str, Any], allowed: Mapping[str, FloatArray]) -> str | None:
    """Why the bounds say nothing, if zeros would pass for everything that is judged by one."""
    names = [n for n in ("weights", "output") if n in call.names() and np.any(exact[n] != 0)]
    if not names or not says_nothing(exact, {n: allowed[n] for n in names}, {n: 0 * exact[n] for n in names}):
        return None
    return f"zeros would pass at {call.precision.input} inputs and {call.precision.accumulate} accumulation"


def pooled(
    judgement: Judgement,
    name: str,
    depths: IntArray,
    low: FloatArray,
    high: FloatArray,
    call: Call,
    gains: FloatArray,
) -> bool:
    """`readkv_attention`: one budget over all heads (AMB-21)."""
    budget = int(call.inputs[name.replace("depths", "budget")])
    costs, flush = single_costs(low.size), call.precision.tiny
    problem = Purchase(low.ravel(), high.ravel(), gains, budget, 0, costs, flush, low.shape)
    return judge_purchase(judgement, name, depths.ravel(), problem)


def per_head(
    judgement: Judgement,
    name: str,
    depths: IntArray,
    low: FloatArray,
    high: FloatArray,
    call: Call,
    gains: FloatArray,
) -> bool:
    """`readkv_restricted_attention`: a budget per head, depth 1 at least, value tokens 2i and 2i+1 alike."""
    N = low.shape[1]
    costs = single_costs(N) if name == "key_depths" else pair_costs(N)
    starts = np.cumsum(costs) - costs
    apart = depths != np.repeat(depths[:, starts], costs, axis=1)
    if apart.any():
        where = tuple(int(i) for i in np.argwhere(apart)[0])
        text = f"{name}{list(where)} is {depths[where]}, its pair has {depths[where[0], where[1] - 1]}"
        judgement.faults.append(Fault(name, where, text))
        return bool((depths >= 0).all() and (depths <= len(gains)).all())
    usable = True
    for h in range(len(low)):
        ends = [np.add.reduceat(end[h], starts) if N else end[h] for end in (low, high)]
        budget = budget_of_rate(rate=call.inputs["rate"], items=N, stored_depth=len(gains))
        problem = Purchase(ends[0], ends[1], gains, budget, 1 if N else 0, costs, call.precision.tiny)
        usable &= judge_purchase(judgement, f"{name}[{h}]", depths[h, starts], problem)
    return usable
