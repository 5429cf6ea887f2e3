"""What one program of an attention kernel does: one KV head's G queries against one run of tokens, online softmax."""

from __future__ import annotations

import triton
import triton.language as tl

from fastimpl.device import LN2, dot, finite_or_zero


@triton.jit
def run_of(split, splits, count, BLOCK: tl.constexpr):
    """First token and end of one of ``splits`` runs of ``count`` tokens, whole blocks each but the last."""
    run = tl.cdiv(tl.cdiv(count, splits), BLOCK) * BLOCK
    start = split * run
    return start, tl.minimum(start + run, count)


@triton.jit
def shared_word(address):
    """The 32-bit word at a shared address (NVIDIA)."""
    return tl.inline_asm_elementwise(
        "ld.shared.b32 $0, [$1];", "=r,r", [address], dtype=tl.int32, is_pure=True, pack=1
    )  # fmt: skip


@triton.jit
def attend_run(
    query, keys, values, table, pages, start, stop, length, head,
    stride_kb, stride_ks, stride_kh, stride_vb, stride_vs, stride_vh, scale_log2,
    G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr, PAGE: tl.constexpr, BLOCK: tl.constexpr,
    SPARSE: tl.constexpr, TABLE: tl.constexpr, STAGES: tl.constexpr, PLACES: tl.constexpr = 1,
):  # fmt: skip
    """Largest logit (base 2) and sum [G], unnormalised output [G, d] of tokens start..stop.

    Where SPARSE, tokens are counted along ``pages``, a list of logical pages. A page's block is itself; with TABLE 1
    ``table`` at the page; with TABLE 2 ``table`` at its place in the list; with TABLE 3 the shared words at ``table``
    from the run's first place on, PLACES of them: no read from memory stands before the keys' and values'.
    """
    channel = tl.arange(0, D_PAD)
    live_channel = channel < D
    largest = tl.full([G_PAD], float("-inf"), tl.float32)
    total = tl.zeros([G_PAD], tl.float32)
    state = tl.zeros([G_PAD, D_PAD], tl.float32)
    for first in tl.range(start, stop, BLOCK, num_stages=STAGES):
        position = first + tl.arange(0, BLOCK)
        inside = position < stop
        place = position // PAGE
        page = place
        if SPARSE:
            page = tl.load(pages + place, mask=inside, other=-1).to(tl.int32)
            inside = inside & (page >= 0) & (page * PAGE + position % PAGE < length)
        block = page.to(tl.int64)
        if TABLE == 1:
            block = tl.load(table + page, mask=inside, other=0).to(tl.int64)
        if TABLE == 2:
            block = tl.load(table + place, mask=position < stop, other=0).to(tl.int64)
        if TABLE == 3:
            block = shared_word(table + 4 * tl.minimum(place - start // PAGE, PLACES - 1)).to(tl.int64)
        slot = position % PAGE
        live = inside[:, None] & live_channel[None, :]
        key = tl.load(
            keys + (block * stride_kb + slot * stride_ks + head * stride_kh)[:, None] + channel[None, :],
            mask=live, other=0.0,
        )  # fmt: skip
        value = tl.load(
            values + (block * stride_vb + slot * stride_vs + head * stride_vh)[:, None] + channel[None, :],
            mask=live, other=0.0,
        )  # fmt: skip
        logits = tl.where(inside[None, :], dot(query, tl.trans(key)) * scale_log2, float("-inf"))
        higher = tl.maximum(largest, tl.max(logits, 1))
        shift = finite_or_zero(higher)
        weights = tl.exp2(logits - shift[:, None])
        fade = tl.exp2(largest - shift)
        total = total * fade + tl.sum(weights, 1)
        state = state * fade[:, None] + dot(weights.to(value.dtype), value)
        largest = higher
    return largest, total, state


@triton.jit
def store_state(
    outputs, lses, at, largest, total, state, G: tl.constexpr, G_PAD: tl.constexpr, D: tl.constexpr, D_PAD: tl.constexpr
):
    """Normalised output [G, d] and natural log-mass [G] to rows ``at`` .. at + G; an empty run gives 0 and -inf."""
    group, channel = tl.arange(0, G_PAD), tl.arange(0, D_PAD)
    empty = total == 0.0
    inverse = 1.0 / tl.where(empty, 1.0, total)
    tl.store(outputs + (at + group)[:, None] * D + channel[None, :],
             (state * inverse[:, None]).to(outputs.dtype.element_ty),
             mask=(group < G)[:, None] & (channel < D)[None, :])  # fmt: skip
    mass = (largest + tl.log2(tl.where(empty, 1.0, total))) * LN2
    tl.store(lses + at + group, tl.where(empty, float("-inf"), mass), mask=group < G)
