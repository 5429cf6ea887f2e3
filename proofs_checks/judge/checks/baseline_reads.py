"""Judging sparse attention steps on the port's own channels and tokens: SparQ, SparQ on the nested code, Loki."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from proofs_checks.bounds import baseline_reads as bounds
from proofs_checks.bounds import readkv_reader as coded
from proofs_checks.bounds.attention import one_head
from proofs_checks.bounds.common import gamma, rounded
from proofs_checks.bounds.readkv_codec import rotate_error
from proofs_checks.judge.checks.choice import judge_choice, tie_rule
from proofs_checks.judge.checks.reader import CHANNELWISE
from proofs_checks.judge.checks.readkv_tree import port_order, port_table
from proofs_checks.judge.judgement import Call, Judgement, compare, says_nothing
from refimpl.attention import attend, scale_of
from refimpl.baselines.loki import loki_scores
from refimpl.baselines.sparq import probe_scores, sparse_step
from refimpl.baselines.sparq_nested import nested_reads
from refimpl.checks import FloatArray, IntArray
from refimpl.readkv.reader import PrefixCache
from refimpl.readkv.rotation import readkv_rotate, unrotate


@dataclass(frozen=True)
class Read:
    """One step in the coordinates that it is computed in, and how far its parts may err beyond their own sums."""

    queries: FloatArray
    probe: FloatArray
    keys: FloatArray
    values: FloatArray
    scale: float
    query_error: FloatArray | float = 0.0
    probe_error: FloatArray | float = 0.0
    logit_error: FloatArray | float = 0.0
    value_error: FloatArray | float = 0.0


def sparq_judged(call: Call) -> Judgement:
    """`sparq_attention`: channels, then tokens on the port's channels, then output and mass on both."""
    inputs = call.inputs
    scale = scale_of(inputs.get("softmax_scale"), inputs["queries"].shape[-1])
    read = Read(inputs["queries"], inputs["keys"], inputs["keys"], inputs["values"], scale)
    channels = np.asarray(call.answer["channels"])
    judgement = Judgement()
    tokens = _judge_sets(judgement, call, read, channels)
    if tokens is not None:
        step, error, off = _step(call, read, channels.astype(np.int64), tokens)
        allowed = {"output": rounded(error, step["output"], call.precision), "mass": off + call.precision.tiny}
        _judge_values(judgement, call, step, allowed)
    return judgement


def nested_judged(call: Call) -> Judgement:
    """`sparq_nested_attention`: the same in rotated coordinates, on the port's own tree and order of channels."""
    inputs: dict[str, Any] = dict(call.inputs)
    channels, precision = np.asarray(call.answer["channels"]), call.precision
    order = port_order(call.ask, inputs["queries"].shape[-1])
    if order is not None:
        inputs |= {name: inputs[name][..., np.argsort(order)] for name in CHANNELWISE}
        if ((channels >= 0) & (channels < len(order))).all():
            channels = order[channels]
    signs = ("key_signs", "value_signs")
    cache = PrefixCache(**{n: inputs[n] for n in (*CHANNELWISE, *signs)}, table=port_table(call.ask))
    rotated = readkv_rotate(x=inputs["queries"], signs=cache.key_signs)
    query_error = coded.rotated_query_error(inputs["queries"], rotated, precision)
    probe, keys, values = nested_reads(cache)
    scale = scale_of(inputs.get("softmax_scale"), rotated.shape[-1])
    sizes = [np.abs(m)[:, None] + np.abs(x - m[:, None])
             for x, m in ((probe, cache.key_mean), (keys, cache.key_mean), (values, cache.value_mean))]  # fmt: skip
    two, cast = gamma(3, precision.roundoff), precision.weight_roundoff
    logit_error = coded.reader_logit_error(rotated, query_error, keys, sizes[1], scale, precision)
    read = Read(
        rotated, probe, keys, values, scale, query_error, two * sizes[0] + cast * np.abs(probe), logit_error,
        two * sizes[2] + cast * np.abs(values),
    )  # fmt: skip
    judgement = Judgement()
    tokens = _judge_sets(judgement, call, read, channels)
    if tokens is None:
        return judgement
    step, error, off = _step(call, read, channels.astype(np.int64), tokens)
    mixed, d = step["output"], rotated.shape[-1]
    error = error + cast * np.abs(mixed)
    spread = error.sum(axis=-1, keepdims=True) / np.sqrt(d) + rotate_error(np.abs(mixed) + error, precision.roundoff)
    step = {**step, "output": unrotate(x=mixed, signs=cache.value_signs)}
    output = rounded(np.broadcast_to(spread, mixed.shape), step["output"], precision)
    _judge_values(judgement, call, step, {"output": output, "mass": off + precision.tiny})
    return judgement


def _judge_sets(judgement: Judgement, call: Call, read: Read, channels: Any) -> IntArray | None:
    """Judge channels and tokens; the port's tokens if they can be read."""
    low, high = bounds.channel_range(read.queries, call.precision, read.query_error)
    names, rule = call.names(), tie_rule(call, "channels")
    if not judge_choice(judgement, "channels", channels, (low, high), lowest=rule, named="channels" in names):
        return None
    scores, error = _probe(call, read, channels.astype(np.int64))
    ends = bounds.pooled_range(scores, error, call.inputs.get("ranking", "scores"), call.precision)
    T = read.keys.shape[1]
    forced = range(max(T - 1 - int(call.inputs.get("local_tokens", 0)), 0), T)
    tokens = np.asarray(call.answer["tokens"])
    rule, named = tie_rule(call, "tokens"), "tokens" in names
    usable = judge_choice(judgement, "tokens", tokens, ends, forced=forced, lowest=rule, named=named)
    return tokens.astype(np.int64) if usable else None


def _probe(call: Call, read: Read, channels: IntArray) -> tuple[FloatArray, FloatArray]:
    scores = probe_scores(read.queries, read.probe, channels, read.scale)
    error = bounds.probe_error(
        read.queries, read.probe, channels, read.scale, call.precision, read.query_error, read.probe_error
    )
    return scores, error


def _step(call: Call, read: Read, channels: IntArray, tokens: IntArray) -> tuple[dict[str, Any], Any, Any]:
    """The exact step on the port's choices, and the errors of output (not yet stored) and mass."""
    probe = _probe(call, read, channels)
    step = sparse_step(read.queries, read.keys, read.values, probe[0], tokens, read.scale)
    error, off = bounds.step_bound(
        read.queries, read.keys, read.values, probe, tokens, read.scale, call.precision, read.logit_error,
        read.value_error,
    )  # fmt: skip
    return step, error, off


def _judge_values(judgement: Judgement, call: Call, exact: dict[str, Any], allowed: dict[str, FloatArray]) -> None:
    judged = {name: bound for name, bound in allowed.items() if name in call.names()}
    for name, bound in judged.items():
        compare(judgement, name, call.answer[name], exact[name], bound)
    told = {name: bound for name, bound in judged.items() if np.any(exact[name] != 0)}
    if told and says_nothing(exact, told, {name: 0 * exact[name] for name in told}):
        judgement.refused = f"zeros would pass at {call.precision.input} inputs"


def loki_judged(call: Call) -> Judgement:
    """`loki_attention`: every query head's tokens by enclosures, its output on its own tokens."""
    judgement, inputs, precision = Judgement(), call.inputs, call.precision
    queries, keys, values, parts = (inputs[n] for n in ("queries", "keys", "values", "components"))
    rank, scale = int(inputs["rank"]), scale_of(inputs.get("softmax_scale"), queries.shape[-1])
    scores = loki_scores(queries, keys, parts, rank, scale)
    ends = bounds.around(scores, bounds.loki_error(queries, keys, parts, rank, scale, precision))
    tokens = np.asarray(call.answer["tokens"])
    rule, named = tie_rule(call, "tokens"), "tokens" in call.names()
    if not judge_choice(judgement, "tokens", tokens, ends, lowest=rule, named=named):
        return judgement
    exact, allowed = np.zeros(queries.shape), np.zeros(queries.shape)
    for h, g in np.ndindex(queries.shape[:2]):
        index = tokens[h, g].astype(np.int64)
        q, k, v = queries[h, g][None], keys[h][index], values[h][index]
        exact[h, g] = attend(q[None], k[None], v[None], scale)["output"][0, 0]
        allowed[h, g] = one_head(q, k, v, scale, precision)[0][0]
    _judge_values(judgement, call, {"output": exact}, {"output": allowed})
    return judgement
