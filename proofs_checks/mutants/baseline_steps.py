"""Wrong sparse attention steps: SparQ, SparQ on the nested code, Loki."""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.mutants.registry import mutant
from refimpl.attention import scale_of
from refimpl.baselines import loki, sparq
from refimpl.baselines.choose import best
from refimpl.baselines.sparq_nested import nested_reads, sparq_nested_attention
from refimpl.locks.combine import head_shares
from refimpl.readkv.reader import check_cache, reconstructed_keys
from refimpl.readkv.rotation import readkv_rotate, unrotate
from refimpl.readkv.tree import LEAF_DEPTH

S = "sparq_attention"


def _step(
    queries: Any,
    keys: Any,
    values: Any,
    rank: int,
    kept: int,
    ranking: str = "scores",
    local: int = 0,
    scale: Any = None,
    *,
    channels: Any = sparq.sparq_channels,
    factor: Any = sparq.norm_factor,
    tokens: Any = None,
    mean: Any = lambda values, chosen: values.mean(axis=0),
) -> Any:
    """A step made of parts, each of which may be replaced."""
    scale = scale_of(scale, queries.shape[-1])
    picked = channels(queries, rank)
    q = np.take_along_axis(queries, picked[:, None], axis=2)
    k = np.take_along_axis(keys, picked[:, None], axis=2)
    scores = scale * factor(queries, picked)[..., None] * np.einsum("hgr,htr->hgt", q, k)
    chosen = tokens(scores, kept) if tokens else sparq.ranked_tokens(scores, kept, ranking, local)
    result = sparq.sparse_step(queries, keys, values, scores, chosen, scale)
    gap = np.stack([v.mean(axis=0) - mean(v, c) for v, c in zip(values, chosen, strict=True)])
    result["output"] = result["output"] - (1 - result["mass"][..., None]) * gap[:, None]
    return {**result, "channels": picked, "tokens": chosen}


def _sparq(name: str, suspect: str, what: str, **parts: Any) -> None:
    """Register a step with the parts replaced."""

    def broken(
        *,
        queries: Any,
        keys: Any,
        values: Any,
        rank: int,
        kept_tokens: int,
        ranking: str = "scores",
        local_tokens: int = 0,
        softmax_scale: Any = None,
    ) -> Any:
        return _step(queries, keys, values, rank, kept_tokens, ranking, local_tokens, softmax_scale, **parts)

    mutant(name, S, suspect, what)(broken)


def _l2_factor(queries: Any, channels: Any) -> Any:
    part = np.take_along_axis(queries, channels[:, None], axis=2)
    norm = np.linalg.norm(part, axis=-1)
    return np.sqrt(np.divide(np.linalg.norm(queries, axis=-1), norm, out=np.ones_like(norm), where=norm > 0))


def _all_channels(queries: Any, channels: Any) -> Any:
    return np.full(queries.shape[:2], np.sqrt(queries.shape[-1] / channels.shape[-1]))


def _signed(queries: Any, rank: int) -> Any:
    return best(queries.sum(axis=1), rank)


def _first_head(queries: Any, rank: int) -> Any:
    return best(np.abs(queries[:, 0]), rank)


def _of_the_sum(queries: Any, rank: int) -> Any:
    return best(np.abs(queries.sum(axis=1)), rank)


def _no_current(scores: Any, kept: int) -> Any:
    return best(scores.sum(axis=1), kept + 1)


def _one_fewer(scores: Any, kept: int) -> Any:
    return sparq.ranked_tokens(scores, max(kept - 1, 0), "scores", 0)


_sparq(
    "sparq-no-norm-factor",
    "B",
    "the probe's logits are not scaled by the query's norm",
    factor=lambda q, c: np.ones(q.shape[:2]),
)
_sparq("sparq-l2-norms", "B", "Euclidean norms stand in the factor", factor=_l2_factor)
_sparq("sparq-factor-not-rooted", "B", "the factor lacks its root", factor=lambda q, c: sparq.norm_factor(q, c) ** 2)
_sparq("sparq-factor-of-counts", "B", "d / r stands for the ratio of norms", factor=_all_channels)
_sparq("sparq-signed-channels", "C", "channels by the signed sum of q", channels=_signed)
_sparq("sparq-first-head-channels", "C", "channels by the group's first query head", channels=_first_head)
_sparq("sparq-sum-then-size", "C", "channels by the size of the sum of q, not the sum of sizes", channels=_of_the_sum)
_sparq("sparq-current-token-dropped", "C", "the current token competes like any other", tokens=_no_current)
_sparq("sparq-k-tokens", "C", "k tokens, the current one inside", tokens=_one_fewer)
_sparq(
    "sparq-mean-of-the-rest", "B", "the mean value is that of the tokens left out",
    mean=lambda v, c: np.delete(v, c, axis=0).mean(axis=0) if len(c) < len(v) else v.mean(axis=0),
)  # fmt: skip
_sparq("sparq-mean-of-chosen", "B", "the mean value is that of the chosen tokens", mean=lambda v, c: v[c].mean(axis=0))
_sparq("sparq-no-mean", "B", "the tokens left out count as values of 0", mean=lambda v, c: 0 * v[0])


@mutant("sparq-other-ranking", S, "C", "tokens are ranked by weights where scores are asked, and the other way round")
def other_ranking(*, ranking: str = "scores", **rest: Any) -> Any:
    """The switch turned."""
    return sparq.sparq_attention(ranking="weights" if ranking == "scores" else "scores", **rest)


@mutant("sparq-mass-of-kept-softmax", S, "B", "the mass is that of a softmax over the chosen tokens: always 1")
def full_mass(*, values: Any, **rest: Any) -> Any:
    """No value correction."""
    right = sparq.sparq_attention(values=values, **rest)
    mean = values.mean(axis=1)[:, None]
    mass = right["mass"][..., None]
    own = (right["output"] - (1 - mass) * mean) / mass
    return {**right, "output": own, "mass": np.ones_like(right["mass"])}


@mutant("sparq-probe-weights-used", S, "B", "the kept tokens are weighed by the probe, not by exact logits")
def probe_weights(*, queries: Any, keys: Any, values: Any, rank: int, kept_tokens: int, **rest: Any) -> Any:
    """Approximate attention."""
    call = {"queries": queries, "keys": keys, "values": values, "rank": rank, "kept_tokens": kept_tokens, **rest}
    right = sparq.sparq_attention(**call)
    scale = scale_of(rest.get("softmax_scale"), queries.shape[-1])
    weights = head_shares(sparq.probe_scores(queries, keys, right["channels"], scale))
    picked = np.take_along_axis(weights, right["tokens"][:, None], axis=2)
    own = np.einsum("hgk,hkd->hgd", picked, np.take_along_axis(values, right["tokens"][..., None], axis=1))
    return {**right, "output": own + (1 - right["mass"][..., None]) * values.mean(axis=1)[:, None]}


N = "sparq_nested_attention"


@mutant("nested-probe-one-bit", N, "D", "the probe decodes one bit of the code")
def one_bit(*, queries: Any, rank: int, kept_tokens: int, ranking: str = "scores", **arrays: Any) -> Any:
    """The sign."""
    scale = scale_of(arrays.pop("softmax_scale", None), queries.shape[-1])
    queries, cache = check_cache(queries, arrays, LEAF_DEPTH)
    rotated = readkv_rotate(x=queries, signs=cache.key_signs)
    channels = sparq.sparq_channels(rotated, rank)
    probe = reconstructed_keys(cache, np.ones(cache.key_mean.shape, dtype=np.int64))
    scores = sparq.probe_scores(rotated, probe, channels, scale)
    tokens = sparq.ranked_tokens(scores, kept_tokens, ranking, 0)
    _, keys, values = nested_reads(cache)
    step = sparq.sparse_step(rotated, keys, values, scores, tokens, scale)
    output = unrotate(x=step["output"], signs=cache.value_signs)
    return {"output": output, "channels": channels, "tokens": tokens, "mass": step["mass"]}


@mutant("nested-signs-first-on-the-way-back", N, "E", "the output is rotated back with the signs applied first")
def back(*, value_signs: Any, **inputs: Any) -> Any:
    """U for its transpose."""
    plain = sparq_nested_attention(value_signs=np.ones_like(value_signs), **inputs)
    mixed = readkv_rotate(x=plain["output"], signs=np.ones_like(value_signs))
    return {**plain, "output": readkv_rotate(x=mixed, signs=value_signs)}


@mutant("nested-shallow-values", N, "D", "values are read to depth 2")
def shallow_values(*, value_codes: Any, **inputs: Any) -> Any:
    """Low bits lost."""
    return sparq_nested_attention(value_codes=value_codes & 0xC0, **inputs)


@mutant("nested-value-mean-forgotten", N, "D", "the calibrated value mean is left out")
def no_value_mean(*, value_mean: Any, **inputs: Any) -> Any:
    """Scales only. Without the key mean every logit of a query moves alike, so that is right."""
    return sparq_nested_attention(value_mean=np.zeros_like(value_mean), **inputs)


L = "loki_attention"


@mutant("loki-top-k-minus-one", L, "C", "the k-th token is left out for the next best")
def off_by_one(*, queries: Any, keys: Any, components: Any, rank: int, kept_tokens: int, **rest: Any) -> Any:
    """Ranks 1..k-1 and k+1."""
    scale = scale_of(rest.get("softmax_scale"), queries.shape[-1])
    scores = loki.loki_scores(queries, keys, components, rank, scale)
    order = np.argsort(-scores, axis=-1, kind="stable")
    skipped = min(kept_tokens, keys.shape[1]) - 1
    tokens = order[..., : kept_tokens + 1]
    if kept_tokens < keys.shape[1]:
        tokens = np.delete(tokens, skipped, axis=-1)
    return _attended(queries, keys, tokens=tokens, scale=scale, values=rest["values"])


def _attended(queries: Any, keys: Any, *, tokens: Any, scale: float, values: Any) -> Any:
    output = np.zeros(queries.shape)
    for h, g in np.ndindex(queries.shape[:2]):
        weights = head_shares(scale * queries[h, g] @ keys[h][tokens[h, g]].T)
        output[h, g] = weights @ values[h][tokens[h, g]]
    return {"output": output, "tokens": tokens}


@mutant("loki-rows-for-columns", L, "H", "rows of the component matrix are taken for directions")
def rows(*, components: Any, **rest: Any) -> Any:
    """The transpose."""
    return loki.loki_attention(components=np.swapaxes(components, 1, 2), **rest)


@mutant("loki-smallest-directions", L, "H", "directions of least variance first")
def smallest(*, components: Any, **rest: Any) -> Any:
    """Ascending, as eigh returns them."""
    return loki.loki_attention(components=components[..., ::-1], **rest)


@mutant("loki-group-shared", L, "G", "one token set for the whole group")
def shared(*, queries: Any, keys: Any, components: Any, rank: int, kept_tokens: int, **rest: Any) -> Any:
    """Per KV head."""
    scale = scale_of(rest.get("softmax_scale"), queries.shape[-1])
    scores = loki.loki_scores(queries, keys, components, rank, scale)
    pooled = np.broadcast_to(scores.sum(axis=1, keepdims=True), scores.shape)
    return _attended(queries, keys, tokens=best(pooled, kept_tokens), scale=scale, values=rest["values"])


@mutant("loki-approximate-attention", L, "B", "the kept tokens are attended by their approximate logits")
def approximate(*, queries: Any, keys: Any, components: Any, rank: int, **rest: Any) -> Any:
    """No exact second pass."""
    right = loki.loki_attention(queries=queries, keys=keys, components=components, rank=rank, **rest)
    scores = loki.loki_scores(queries, keys, components, rank, scale_of(rest.get("softmax_scale"), queries.shape[-1]))
    output = np.zeros(queries.shape)
    for h, g in np.ndindex(queries.shape[:2]):
        index = right["tokens"][h, g]
        output[h, g] = head_shares(scores[h, g, index]) @ rest["values"][h][index]
    return {**right, "output": output}
