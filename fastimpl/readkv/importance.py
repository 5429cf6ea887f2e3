"""Importances of key channels and value tokens. Mirrors `refimpl.readkv.importance` (Eqs. (2) and (3)).

    grid (H)               rotated queries [G, d] * scale [d] -> squares summed over the group -> [d]
    grid (T / BLOCK, H)    weights [G, BLOCK] -> squares summed over the group, times the head's factor -> [BLOCK]

Bytes: every query or weight read once, 4 per item written.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from fastimpl.checks import ArgumentError, Sizes
from fastimpl.device import INTERPRETED, padded

SINGLE = (torch.float32,)
BLOCK = 4096 if INTERPRETED.value else 512


@triton.jit
def key_importance_kernel(queries, scales, importance, G, D: tl.constexpr, D_PAD: tl.constexpr):
    """sum_g (q_g sigma)^2 of one KV head's channels."""
    head, channel = tl.program_id(0).to(tl.int64), tl.arange(0, D_PAD)
    live = channel < D
    scale = tl.load(scales + head * D + channel, mask=live, other=0.0)
    total = tl.zeros([D_PAD], tl.float32)
    for g in range(G):
        value = tl.load(queries + (head * G + g) * D + channel, mask=live, other=0.0) * scale
        total += value * value
    tl.store(importance + head * D + channel, total, mask=live)


@triton.jit
def value_importance_kernel(weights, factors, importance, G, T, FACTORS: tl.constexpr, BLOCK: tl.constexpr):
    """s_h sum_g alpha_g^2 of BLOCK tokens of one KV head."""
    head, token = tl.program_id(1).to(tl.int64), tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for g in range(G):
        weight = tl.load(weights + (head * G + g) * T + token, mask=token < T, other=0.0)
        total += weight * weight
    if FACTORS:
        total *= tl.load(factors + head)
    tl.store(importance + head * T + token, total, mask=token < T)


def readkv_key_importance(*, rotated_queries: Any, key_scale: Any) -> torch.Tensor:
    """Importance [H,d] of rotated queries [H,G,d] under scales [H,d], float32 (ReadKV Eq. (2)).

    Raises ArgumentError for a dtype, shape or a scale that is not positive.
    """
    sizes = Sizes()
    queries = sizes.bind("rotated_queries", rotated_queries, "H G d", SINGLE).contiguous()
    scale = sizes.bind("key_scale", key_scale, "H d", SINGLE).contiguous()
    if bool((scale <= 0).any()):
        raise ArgumentError(f"key_scale: expected positive scales, got a dead channel {float(scale.min())}")
    H, G, d = queries.shape
    importance = torch.empty((H, d), dtype=torch.float32, device=queries.device)
    if H * d:
        key_importance_kernel[(H,)](queries, scale, importance, G, D=d, D_PAD=padded(d))
    return importance


def readkv_value_importance(*, weights: Any, value_head_weight: Any = None) -> torch.Tensor:
    """Importance [H,T] of attention weights [H,G,T], times value_head_weight [H], float32 (ReadKV Eq. (3)).

    Raises ArgumentError for a dtype, shape or a negative factor.
    """
    sizes = Sizes()
    weights = sizes.bind("weights", weights, "H G T", SINGLE).contiguous()
    factors = weights
    if value_head_weight is not None:
        factors = sizes.bind("value_head_weight", value_head_weight, "H", SINGLE).contiguous()
        if bool((factors < 0).any()):
            raise ArgumentError(f"value_head_weight: expected nonnegative factors, got {float(factors.min())}")
    H, G, T = weights.shape
    importance = torch.empty((H, T), dtype=torch.float32, device=weights.device)
    if H * T:
        value_importance_kernel[(-(-T // BLOCK), H)](
            weights, factors, importance, G, T, FACTORS=value_head_weight is not None, BLOCK=BLOCK
        )
    return importance
