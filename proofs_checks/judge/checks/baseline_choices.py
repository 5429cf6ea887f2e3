"""Judging the selectors that choose from given scores: Quest's pages, evictions, KVzip, ShadowKV, RocketKV."""

from __future__ import annotations

import numpy as np

from proofs_checks.bounds import baseline_reads as bounds
from proofs_checks.bounds.common import gamma, logit_bound
from proofs_checks.bounds.readkv_reader import weight_bound
from proofs_checks.judge.checks.choice import judge_choice, tie_rule
from proofs_checks.judge.judgement import Call, Departure, Fault, Judgement, compare, compare_exactly
from refimpl.attention import scale_of
from refimpl.baselines.choose import protected_tokens
from refimpl.baselines.rocketkv import chunk_scores
from refimpl.baselines.shadowkv import CHUNK
from refimpl.locks.combine import head_shares


def quest_chosen(call: Call) -> Judgement:
    """`quest_pages`: pages per query head from the given scores, and the union over the group of the port's own."""
    judgement, scores, pages = Judgement(), call.inputs["scores"], np.asarray(call.answer["pages"])
    H, _, P = scores.shape
    forced = range(P - int(call.inputs.get("recent_pages", 0)), P)
    lowest = call.reference["pages"] if call.lowest_index else None
    usable = judge_choice(judgement, "pages", pages, (scores, scores), forced=forced, lowest=lowest)
    if usable and "read" in call.names():
        union = np.zeros((H, P), dtype=np.uint8)
        np.put_along_axis(union, pages.reshape(H, -1).astype(np.int64), 1, axis=1)
        compare_exactly(judgement, "read", call.answer["read"], union)
    return judgement


def stayed(call: Call) -> Judgement:
    """`evict_tokens`: the protected ends, and the best of the rest by the given scores."""
    judgement, scores = Judgement(), call.inputs["scores"]
    ends = (int(call.inputs.get(name, 0)) for name in ("first_tokens", "recent_tokens"))
    forced = protected_tokens(scores.shape[1], *ends).tolist()
    lowest = call.reference["tokens"] if call.lowest_index else None
    judge_choice(judgement, "tokens", call.answer["tokens"], (scores, scores), forced=forced, lowest=lowest)
    return judgement


def zipped(call: Call) -> Judgement:
    """`kvzip_keep`: one threshold for all exactly, or the best of every head.

    Keeping the score at the threshold too, as another release does, is the departure AMB-63.
    """
    judgement, scores, keep = Judgement(), call.inputs["scores"], np.asarray(call.answer["keep"])
    ratio = float(call.inputs["ratio"])
    if call.inputs.get("level", "pair") == "pair" or ratio >= 1:
        compare_exactly(judgement, "keep", keep, call.reference["keep"])
        kept = int(scores.size * ratio)
        if judgement.faults and 0 < kept < scores.size:
            threshold = np.sort(scores, axis=None)[::-1][kept - 1]
            if np.array_equal(keep, scores >= threshold):
                what = "the score at the threshold stays too"
                return Judgement(departures=[Departure("kvzip-AMB-63-threshold", what, "one token of all layers more")])
        return judgement
    if (keep > 1).any() or (keep.sum(axis=-1) != int(scores.shape[-1] * ratio)).any():
        text = f"keep: expected 0 or 1 and {int(scores.shape[-1] * ratio)} tokens per head, got sums {keep.sum(-1)}"
        judgement.faults.append(Fault("keep", None, text))
        return judgement
    rows = [np.flatnonzero(row) for row in keep.reshape(-1, scores.shape[-1])]
    flat = scores.reshape(-1, scores.shape[-1])
    wanted = call.reference["keep"].reshape(flat.shape)
    lowest = np.stack([np.flatnonzero(row) for row in wanted]) if call.lowest_index else None
    judge_choice(judgement, "keep", np.stack(rows), (flat, flat), lowest=lowest)
    return judgement


def landmarks_chosen(call: Call) -> Judgement:
    """`shadowkv_landmarks`: mean keys within their bound, outliers by enclosures of the worst cosine."""
    judgement, keys = Judgement(), call.inputs["keys"]
    size = int(call.inputs.get("chunk_size", CHUNK))
    landmarks = call.reference["landmarks"]
    H, C, d = landmarks.shape
    chunks = keys[:, : C * size].reshape(H, C, size, d)
    if "landmarks" in call.names():
        error = bounds.landmark_error(chunks, call.precision) + call.precision.tiny
        compare(judgement, "landmarks", call.answer["landmarks"], landmarks, error)
    if "outliers" in call.names():
        low, high = bounds.worst_cosine_range(chunks, landmarks, call.precision)
        judge_choice(judgement, "outliers", call.answer["outliers"], (-high, -low), lowest=tie_rule(call, "outliers"))
    return judgement


def chunks_chosen(call: Call) -> Judgement:
    """`shadowkv_chunks`: the group's largest shares."""
    judgement, queries, landmarks = Judgement(), call.inputs["queries"], call.inputs["landmarks"]
    scale = scale_of(call.inputs.get("softmax_scale"), queries.shape[-1])
    logits = scale * queries @ np.swapaxes(landmarks, 1, 2)
    off = logit_bound(queries, landmarks, scale, call.precision.roundoff)
    shares, error = head_shares(logits), weight_bound(logits, off, call.precision)
    ends = (shares - error).max(axis=1), (shares + error).max(axis=1)
    judge_choice(judgement, "chunks", call.answer["chunks"], ends, lowest=tie_rule(call, "chunks"))
    return judgement


def factored(call: Call) -> Judgement:
    """`shadowkv_low_rank`: the fit's error is the least possible of rank r, up to a backward stable SVD's rounding.

    The factors are free within their product. |X - L R|_F <= sqrt(tail) + p u |X|_F, p = 4 (m + n) + 10 r: a stable
    SVD's polynomial, twice each side, and the product of the factors.
    """
    judgement, keys = Judgement(), call.inputs["keys"]
    H, T, d = keys.shape
    rank = int(call.inputs["rank"])
    x = np.moveaxis(keys, 0, 1).reshape(T, H * d)
    left, right = (np.asarray(call.answer[name], dtype=np.float64) for name in ("left", "right"))
    fit = left @ np.moveaxis(right, 0, 1).reshape(rank, H * d)
    tail = np.linalg.svd(x, compute_uv=False)[rank:]
    best = float(np.sqrt(np.sum(tail**2)))
    slack = gamma(4 * (T + H * d) + 10 * rank, call.precision.roundoff) * float(np.linalg.norm(x))
    error = float(np.linalg.norm(x - fit))
    judgement.see(max(error - best, 0.0) / slack if slack else 0.0)
    if error > best + slack:
        text = f"left @ right: |X - L R| is {error:.6g}; rank {rank} reaches {best:.6g}, allowed {slack:.3g} more"
        judgement.faults.append(Fault("right", None, text, (error - best) / slack if slack else None))
    elif best + slack >= np.linalg.norm(x) > 0:
        judgement.refused = f"zeros would pass at {call.precision.accumulate} accumulation"
    return judgement


def snapped(call: Call) -> Judgement:
    """`rocketkv_snap`: the window, and the prompt tokens of most pooled votes."""
    judgement, queries, keys = Judgement(), call.inputs["queries"], call.inputs["keys"]
    w, T = queries.shape[2], keys.shape[1]
    scale = scale_of(call.inputs.get("softmax_scale"), queries.shape[-1])
    low, high = bounds.votes_range(queries, keys, int(call.inputs.get("kernel", 63)), scale, call.precision)
    never = np.zeros((len(keys), w))  # the window's own ends: forced, whatever they are
    ends = np.concatenate([low, never], axis=1), np.concatenate([high, never], axis=1)
    lowest = tie_rule(call, "tokens")
    judge_choice(judgement, "tokens", call.answer["tokens"], ends, forced=range(T - w, T), lowest=lowest)
    return judgement


def rocket_chosen(call: Call) -> Judgement:
    """`rocketkv_tokens`: channels by the queries, tokens by their chunks' extremes on the port's own channels."""
    judgement, queries, keys = Judgement(), call.inputs["queries"], call.inputs["keys"]
    channels = np.asarray(call.answer["channels"])
    ends = bounds.channel_range(queries, call.precision)
    rule, named = tie_rule(call, "channels"), "channels" in call.names()
    if not judge_choice(judgement, "channels", channels, ends, lowest=rule, named=named):
        return judgement
    channels, size, T = channels.astype(np.int64), int(call.inputs["chunk_size"]), keys.shape[1]
    scale = scale_of(call.inputs.get("softmax_scale"), queries.shape[-1])
    scores = chunk_scores(queries, keys, channels, size, scale)
    error = bounds.chunk_score_error(queries, keys, channels, size, scale, call.precision)
    scores, error = (np.repeat(x, size, axis=-1)[..., :T] for x in (scores, error))
    low, high = bounds.pooled_range(scores, error, "weights", call.precision)
    if "tokens" in call.names():
        judge_choice(judgement, "tokens", call.answer["tokens"], (low, high), lowest=tie_rule(call, "tokens"))
    return judgement
