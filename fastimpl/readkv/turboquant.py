"""A TurboQuant K4/V4 reader in a served layout: the peer that `kvproof bench readkv` times.

No reference twin: decoding of `refimpl.readkv.codebooks` (sphere law, 4 bits) keys and `refimpl.readkv.affine` values.

    key bytes    [rows, T, d/2]   channel c < d/2 in the low nibble of byte c, channel c + d/2 in the high one; one
                                  float16 length per token; keys are rotated, 16 levels
    value bytes  [rows, T, d/2]   the same nibbles, affine: one float16 scale and zero per token
    grid (splits, rows)           levels from a table, products in the input dtype, running softmax; then
                                  `fastimpl.attention.merge`; the query is rotated before

Bytes: d + 6 per token and KV head.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from fastimpl.attention import merge
from fastimpl.device import LN2, LOG2E, dot, finite_or_zero, multiprocessors, padded
from fastimpl.readkv.rotation import rotate

BLOCK = 64


@triton.jit
def turboquant_kernel(
    queries, key_bytes, key_lengths, value_bytes, value_scales, value_zeros, levels, outputs, lses, tokens, splits,
    scale_log2, G: tl.constexpr, G_PAD: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Normalised output [G, D] and natural log-mass of one run of tokens of one row."""
    split, row = tl.program_id(0), tl.program_id(1).to(tl.int64)
    HALF: tl.constexpr = D // 2
    group, channel = tl.arange(0, G_PAD), tl.arange(0, HALF)
    at = queries + (row * G + group)[:, None] * D + channel[None, :]
    low_query = tl.load(at, mask=(group < G)[:, None], other=0.0)
    high_query = tl.load(at + HALF, mask=(group < G)[:, None], other=0.0)
    run = tl.cdiv(tl.cdiv(tokens, splits), BLOCK) * BLOCK
    largest = tl.full([G_PAD], float("-inf"), tl.float32)
    total = tl.zeros([G_PAD], tl.float32)
    low_sum, high_sum = tl.zeros([G_PAD, HALF], tl.float32), tl.zeros([G_PAD, HALF], tl.float32)
    for first in tl.range(split * run, tl.minimum(split * run + run, tokens), BLOCK, num_stages=3):
        token = first + tl.arange(0, BLOCK)
        inside = token < tokens
        place = row * tokens + token
        byte = tl.load(key_bytes + place[:, None] * HALF + channel[None, :], mask=inside[:, None], other=0).to(tl.int32)
        low, high = tl.load(levels + (byte & 15)), tl.load(levels + (byte >> 4))
        logit = dot(low_query, tl.trans(low)) + dot(high_query, tl.trans(high))
        length = tl.load(key_lengths + place, mask=inside, other=0.0).to(tl.float32)
        logit = tl.where(inside[None, :], logit * (length * scale_log2)[None, :], float("-inf"))
        higher = tl.maximum(largest, tl.max(logit, 1))
        shift = finite_or_zero(higher)
        weight, fade = tl.exp2(logit - shift[:, None]), tl.exp2(largest - shift)
        byte = tl.load(value_bytes + place[:, None] * HALF + channel[None, :], mask=inside[:, None], other=0).to(
            tl.int32
        )
        scale = tl.load(value_scales + place, mask=inside, other=0.0).to(tl.float32)[:, None]
        zero = tl.load(value_zeros + place, mask=inside, other=0.0).to(tl.float32)[:, None]
        kind = low_query.dtype
        total = total * fade + tl.sum(weight, 1)
        low_sum = low_sum * fade[:, None] + dot(weight.to(kind), ((byte & 15).to(tl.float32) * scale + zero).to(kind))
        high_sum = high_sum * fade[:, None] + dot(weight.to(kind), ((byte >> 4).to(tl.float32) * scale + zero).to(kind))
        largest = higher
    empty = total == 0.0
    inverse = (1.0 / tl.where(empty, 1.0, total))[:, None]
    at = (row * splits + split) * G + group
    out = outputs + at[:, None] * D + channel[None, :]
    tl.store(out, low_sum * inverse, mask=(group < G)[:, None])
    tl.store(out + HALF, high_sum * inverse, mask=(group < G)[:, None])
    mass = (largest + tl.log2(tl.where(empty, 1.0, total))) * LN2
    tl.store(lses + at, tl.where(empty, float("-inf"), mass), mask=group < G)


class TurboQuantReader:
    """Buffers and launches: queries [rows, G, d], bytes [rows, T, d/2], per-token numbers [rows, T], levels [16]."""

    def __init__(
        self, queries: torch.Tensor, signs: torch.Tensor, keys: tuple[torch.Tensor, torch.Tensor],
        values: tuple[torch.Tensor, torch.Tensor, torch.Tensor], levels: torch.Tensor, scale: float,
    ) -> None:  # fmt: skip
        rows, G, d = queries.shape
        self.queries, self.signs, self.keys, self.values, self.levels = queries, signs, keys, values, levels
        self.tokens, self.scale = keys[0].shape[1], scale
        self.splits = max(1, min(4 * multiprocessors(queries.device) // rows, -(-self.tokens // BLOCK)))
        self.rotated = torch.empty_like(queries)
        self.parts = torch.empty((rows, self.splits, G, d), dtype=torch.float32, device=queries.device)
        self.masses = torch.empty((rows, self.splits, G), dtype=torch.float32, device=queries.device)
        self.output = torch.empty_like(queries)
        self.lse = torch.empty((rows, G), dtype=torch.float32, device=queries.device)

    def run(self) -> torch.Tensor:
        """Launch: rotate, read, merge; outputs [rows, G, d]."""
        rows, G, d = self.queries.shape
        rotate(self.queries, self.signs, self.rotated)
        turboquant_kernel[(self.splits, rows)](
            self.rotated, *self.keys, *self.values, self.levels, self.parts, self.masses, self.tokens, self.splits,
            self.scale * LOG2E.value, G=G, G_PAD=padded(G), D=d, BLOCK=BLOCK, num_warps=4,
        )  # fmt: skip
        merge(self.parts, self.masses, self.output, self.lse)
        return self.output
