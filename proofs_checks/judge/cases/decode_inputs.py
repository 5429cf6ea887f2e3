"""Inputs of decode steps whose selection is clear: pages of known spectra and page scores of known size."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofs_checks.judge.case import Inputs, generator
from proofs_checks.judge.cases.inputs import planted_pages

Array = NDArray[Any]
SPECTRA = {4: [8.0, 4.0, 2.0, 1.0], 8: [8.0, 6.0, 4.0, 3.0, 2.0, 1.5, 1.0, 0.7]}
"""Singular values by rank: every page has exactly as many modes as are kept, well apart."""


def spread_pages(
    T: int,
    d: int = 64,
    budget: int = 80,
    bits: int | str | None = 4,
    G: int = 3,
    B: int = 16,
    rank: int = 8,
    H: int = 2,
    apart: float = 0.7,
) -> Inputs:
    """Random queries and pages of a planted spectrum; each page's centroid lifts it ``apart`` nats over the next.

    The lifts are shuffled, each KV head's by itself, so that the best pages lie anywhere.
    """
    rng = generator("decode", f"{T},{d},{G},{B},{rank}")
    P = -(-T // B)
    pages = planted_pages(rng, H, P, B, d, SPECTRA[rank][: min(B - 1, rank)])
    queries = 2 * rng.normal(size=(H, G, d))
    lifts = np.stack([rng.permutation(P) for _ in range(H)]) * apart  # [H, P]
    pages = pages + towards(queries, np.repeat(lifts[:, None], G, axis=1))[:, :, None]
    values = rng.normal(size=(H, T, d)) + rng.normal(size=(H, 1, d))
    settings = {"rank": rank, "basis_bits": bits, "budget_tokens": budget, "page_size": B}
    return {"queries": queries, "keys": pages.reshape(H, P * B, d)[:, :T], "values": values, **settings}


def towards(queries: Array, logits: Array) -> Array:
    """The shortest vectors [H, P, d] whose logits at scale 1/sqrt(d) are ``logits`` [H, G, P] for queries [H, G, d]."""
    back = np.swapaxes(np.linalg.pinv(queries), -1, -2)  # [H, G, d]
    lifted: Array = np.swapaxes(logits, -1, -2) @ back * np.sqrt(queries.shape[-1])
    return lifted


def shaped_pages(masses: Any, tail: int = 0, d: int = 64, budget: int = 48, bits: int | str | None = 8) -> Inputs:
    """Pages whose scores are ln of ``masses`` [G, P], nearly: two KV heads, the second with its pages reversed.

    The open page has ``tail`` tokens (0: the last page is complete). Deviations lie across the queries, so that they
    move no score, and values tell pages apart.
    """
    masses = np.asarray(masses, dtype=np.float64)
    G, P = masses.shape
    rng = generator("decode-shaped", f"{G},{P},{d}")
    masses = np.stack([masses, masses[:, [0, *range(P - 2, 0, -1), P - 1]]])  # [2, G, P]
    queries = np.zeros((2, G, d))
    queries[:, np.arange(G), np.arange(G)] = 8.0
    filled = np.append(np.full(P - 1, 16), tail or 16)
    keys = np.repeat(towards(queries, np.log(masses / filled)), 16, axis=1)  # [2, 16 P, d]
    deviations = planted_pages(rng, 2, P, 16, d - G, SPECTRA[4])
    deviations = deviations - deviations.mean(axis=2, keepdims=True)
    keys[..., G:] += deviations.reshape(2, 16 * P, d - G)
    T = 16 * (P - 1) + (tail or 16)
    values = rng.normal(size=(2, T, d)) + np.arange(T)[:, None] // 16
    settings = {"rank": 4, "basis_bits": bits, "budget_tokens": budget, "page_size": 16}
    return {"queries": queries, "keys": keys[:, :T], "values": values, **settings}


def carried_pages(
    carrier: int,
    peak: float,
    rival: float,
    bits: int | str | None = 8,
    rank: int = 2,
    modes: int = 4,
    d: int = 64,
    G: int = 2,
    token_at: int = 5,
    channel: int = 0,
    opposed: bool = False,
) -> Inputs:
    """One key to be found: page 3's mode ``carrier`` (0 the largest) lifts token ``token_at`` by ``peak`` logits.

    The query sees ``channel`` alone, which holds that mode and the lifts; if ``opposed``, half of both stands in the
    next channel but one, negative, so that the codes have both signs.

    Page 5's tokens all lie ``rival`` nats up; every other page's lie 4 nats down. All page means have norm 4, more
    than a page's modes. Two KV heads; in the second the pages stand in reverse. One slot is free.
    """
    rng = generator("decode-carried", f"{carrier},{peak},{rival}")
    token = np.full(16, -1.0)
    token[token_at] = 15.0
    token /= np.linalg.norm(token)
    strength = peak / (SPECTRA[modes][carrier] * token[token_at])  # logits per unit of key along the channel
    pages = np.zeros((8, 16, d))
    for p in range(8):
        direction = np.eye(d)[0] if p == 3 else None
        pages[p] = _page_of_modes(rng, token, carrier, modes, direction, d, 3 if opposed else 2)
        pages[p, :, 0] += {3: 0.0, 5: rival}.get(p, -4.0) / strength
        pages[p, :, 1] += 4.0
    keys = np.stack([pages, np.concatenate([pages[:1], pages[-2:0:-1], pages[-1:]])]).reshape(2, 8 * 16, d)
    queries = np.zeros((2, G, d))
    queries[..., 0] = strength * np.sqrt(d)
    if opposed:
        for x in (keys, queries):
            x[..., 0] /= np.sqrt(2)
            x[..., 2] = -x[..., 0]
    keys, queries = (np.roll(x, channel, axis=-1) for x in (keys, queries))
    values = rng.normal(size=(2, 8 * 16, d)) + np.arange(8 * 16)[:, None] // 16
    settings = {"rank": rank, "basis_bits": bits, "budget_tokens": 48, "page_size": 16}
    return {"queries": queries, "keys": keys, "values": values, **settings}


def _page_of_modes(
    rng: np.random.Generator, token: Array, carrier: int, modes: int, direction: Array | None, d: int, own: int
) -> Array:
    """Random orthonormal modes, one of them given by tokens and perhaps a direction; ``own`` channels are 0."""
    right, _ = np.linalg.qr(rng.normal(size=(d - own, modes)))
    channels = np.vstack([np.zeros((own, modes)), right])
    rest = [k for k in range(modes) if k != carrier]
    basis, _ = np.linalg.qr(np.column_stack([np.ones(16), token, rng.normal(size=(16, modes - 1))]))
    tokens = np.zeros((16, modes))
    tokens[:, rest], tokens[:, carrier] = basis[:, 2:], token
    if direction is not None:
        channels[:, carrier] = direction
    page: Array = (tokens * SPECTRA[modes]) @ channels.T
    return page


def large_channel() -> Inputs:
    """Channel 63 of every key is 1000, and the query does not see it; the page's lift stands in channel 0.

    An int8 centroid has steps of 7.9 there, so that every lift (up to 3.5) would round to 0. One slot is free.
    """
    lifts = np.array([0.0, 0.5, 1.0, 3.5, 0.75, 0.25, 1.25, 0.0])
    keys = np.zeros((1, 8 * 16, 64))
    keys[..., 63], keys[..., 0] = 1000.0, np.repeat(lifts, 16)
    return {**_one_query(keys, 8.0), "basis_bits": None}


def large_mode(bits: int | str | None, ratio: int = 512) -> Inputs:
    """Half of a page's tokens lie a up, half a down along (1/ratio, 0, ..., 0, 1), and the query sees channel 0 alone.

    An int8 basis rounds 1/512 of its largest entry to 0, an int4 basis 1/16 of it, and all pages alike. Logits are +-a.
    One slot is free.
    """
    sizes = np.array([0.25, 0.5, 1.0, 0.75, 3.0, 0.5, 1.25, 0.25])
    keys = np.zeros((1, 8 * 16, 64))
    keys[..., 63] = np.repeat(sizes, 16) * np.tile([1.0, -1.0], 64)
    keys[..., 0] = keys[..., 63] / ratio
    return {**_one_query(keys, 8.0 * ratio), "basis_bits": bits}


def _one_query(keys: Array, strength: float) -> Inputs:
    queries = np.zeros((1, 2, 64))
    queries[..., 0] = strength
    values = np.arange(keys.shape[1])[:, None] // 16 + generator("decode", "one-query").normal(size=keys.shape)
    return {"queries": queries, "keys": keys, "values": values, "rank": 1, "budget_tokens": 48, "page_size": 16}


def last_token_pages() -> Inputs:
    """Page 1 must be kept: query 0's mass is the last token's, query 1's is page 1's and 3's.

    Without that token query 0 would put all on page 2. Logits are the keys' channels 0 and 1.
    """
    inputs = spread_pages(80, budget=48, G=2)
    queries, keys = np.zeros((2, 2, 64)), np.zeros((2, 5, 16, 64))
    queries[:, 0, 0], queries[:, 1, 1] = 8.0, 8.0
    keys[:, 1, :, 1], keys[:, 2, :, 0], keys[:, 3, :, 1], keys[:, 4, -1, 0] = 6.0, 6.0, 5.0, 30.0
    return {**inputs, "queries": queries, "keys": keys.reshape(2, 80, 64)}
