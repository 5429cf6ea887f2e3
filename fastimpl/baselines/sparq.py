"""SparQ: a probe on r channels of all keys, attention on k tokens, a mean value. Mirrors `refimpl.baselines.sparq`.

probe    grid (ceil(T / BLOCK), H)   reads r of the d channels of a key: 2 r bytes of 2 d in bf16
the chosen tokens are gathered and attended by `fastimpl.attention`, in float32
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.attention import attention
from fastimpl.baselines.choose import best
from fastimpl.checks import FLOATS, ArgumentError, Sizes, scale_of, whole
from fastimpl.device import dot, padded

BLOCK = 64


@triton.jit
def probe_kernel(
    probes, channels, keys, factors, scores, length,
    BLOCK: tl.constexpr, RANK: tl.constexpr, R_PAD: tl.constexpr, D: tl.constexpr, G: tl.constexpr,
    G_PAD: tl.constexpr,
):  # fmt: skip
    """Scores [H, G, T]: probes [H, G, RANK] times the RANK channels of keys [H, T, D], times factors [H, G]."""
    token, head = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.program_id(1).to(tl.int64)
    mode, group = tl.arange(0, R_PAD), tl.arange(0, G_PAD)
    channel = tl.load(channels + head * RANK + mode, mask=mode < RANK, other=0)
    row = head * G + group
    probe = tl.load(probes + row[:, None] * RANK + mode[None, :],
                    mask=(group < G)[:, None] & (mode < RANK)[None, :], other=0.0)  # fmt: skip
    factor = tl.load(factors + row, mask=group < G, other=0.0)
    key = tl.load(keys + (head * length + token)[:, None] * D + channel[None, :],
                  mask=(token < length)[:, None] & (mode < RANK)[None, :], other=0.0)  # fmt: skip
    score = dot(probe, tl.trans(key.to(tl.float32))) * factor[:, None]
    tl.store(scores + row[:, None] * length + token[None, :], score,
             mask=(group < G)[:, None] & (token < length)[None, :])  # fmt: skip


def probe_scores(queries: torch.Tensor, keys: torch.Tensor, channels: torch.Tensor, scale: float) -> torch.Tensor:
    """Approximate logits [H, G, T], float32, of queries [H, G, d] on channels [H, r] of keys [H, T, d]."""
    (H, G, d), (_, T, _), r = queries.shape, keys.shape, channels.shape[1]
    probes = queries.float().gather(2, channels[:, None].expand(H, G, r)).contiguous()
    held, size = probes.abs().sum(-1), queries.float().abs().sum(-1)
    factors = scale * torch.sqrt(torch.where(held > 0, size / held.clamp_min(1e-38), 1.0))
    scores = torch.empty((H, G, T), dtype=torch.float32, device=queries.device)
    if 0 not in (H, G, T):
        probe_kernel[(-(-T // BLOCK), H)](
            probes, channels.contiguous(), keys, factors, scores, T,
            BLOCK=BLOCK, RANK=r, R_PAD=padded(r), D=d, G=G, G_PAD=padded(G), num_warps=4,
        )  # fmt: skip
    return scores


def sparq_attention(
    *,
    queries: Any,
    keys: Any,
    values: Any,
    rank: int,
    kept_tokens: int,
    ranking: str = "scores",
    local_tokens: int = 0,
    softmax_scale: float | None = None,
) -> dict[str, torch.Tensor]:
    """``output`` [H, G, d], ``channels`` [H, r], ``tokens`` [H, min(k + 1, T)], ``mass`` [H, G] (ReadKV App. F.2)."""
    sizes = Sizes()
    queries = sizes.bind("queries", queries, "H G d", FLOATS)
    keys = sizes.bind("keys", keys, "H T d", FLOATS).contiguous()
    values = sizes.bind("values", values, "H T d", FLOATS)
    T, d = keys.shape[1:]
    if T == 0:
        raise ArgumentError("keys: expected at least the current token, got T=0")
    if ranking not in ("scores", "weights"):
        raise ArgumentError(f"ranking: expected 'scores' or 'weights', got {ranking!r}")
    kept, scale = whole("kept_tokens", kept_tokens, 0), scale_of(softmax_scale, d)
    channels = best(queries.float().abs().sum(1), whole("rank", rank, 1, d))
    scores = probe_scores(queries, keys, channels, scale)
    weights = torch.softmax(scores, dim=-1)
    pooled = (weights if ranking == "weights" else scores).sum(1)
    forced = torch.arange(T, device=keys.device) >= T - 1 - whole("local_tokens", local_tokens, 0, kept)
    tokens = best(pooled.masked_fill(forced, float("inf")), kept + 1)
    picked = tokens[..., None].expand(-1, -1, d)
    some = {"keys": keys.gather(1, picked).float(), "values": values.gather(1, picked).float()}
    own = attention(queries=queries.float(), **some, softmax_scale=scale)["output"]
    mass = weights.gather(2, tokens[:, None].expand(-1, queries.shape[1], -1)).sum(-1)
    rest = values.float().mean(1)[:, None]
    output = mass[..., None] * own + (1 - mass[..., None]) * rest
    return {"output": output.to(queries.dtype), "channels": channels, "tokens": tokens, "mass": mass}
