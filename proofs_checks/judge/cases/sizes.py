"""Inputs that meet faults of size: a tile, a grid or an integer type that covers the sizes of a small test only.

Weights are equal or all on one token, so that the answer is known by hand and only a lost or doubled part changes it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from proofs_checks.judge.case import Inputs, generator
from proofs_checks.judge.cases.inputs import pooled, random_qkv


def last_token(T: int) -> Inputs:
    """Equal weights; only the last token's value is not 0, so the output is 4096 / T unless that token is lost."""
    values = np.zeros((1, T, 8))
    values[:, -1] = 4096.0
    return {"queries": np.zeros((1, 1, 8)), "keys": np.ones((1, T, 8)), "values": values}


def last_channel(d: int) -> Inputs:
    """Token 1 takes all weight, by the last channel alone (logits -200 and 0); its value names every channel."""
    queries, keys, values = np.zeros((1, 1, d)), np.zeros((1, 2, d)), np.zeros((1, 2, d))
    queries[..., -1], keys[:, 0, -1] = 200.0, -np.sqrt(d)
    values[:, 1] = np.arange(1.0, d + 1) % 64 + 1
    return {"queries": queries, "keys": keys, "values": values}


def constant_heads(H: int, G: int) -> Inputs:
    """Whatever the weights, the output of KV head h is 2^(h mod 8) + h."""
    head = np.arange(float(H))
    values = np.broadcast_to((2 ** (head % 8) + head)[:, None, None], (H, 4, 8))
    return {"queries": np.ones((H, G, 8)), "keys": np.ones((H, 4, 8)), "values": values}


def one_value_2049() -> Inputs:
    """One token of value 2049: its weight is 1, and TF32 would round the value to an even number."""
    values = np.full((1, 1, 64), 2049.0)
    return {"queries": np.zeros((1, 1, 64)), "keys": np.zeros((1, 1, 64)), "values": values}


def uneven_weights() -> Inputs:
    """Logits 0, -1/8, ..., -7/8: weights that no half-precision format holds."""
    queries, keys, values = np.zeros((1, 1, 64)), np.zeros((1, 8, 64)), np.zeros((1, 8, 64))
    queries[..., 0], keys[0, :, 0] = 1.0, -np.arange(8.0)
    values[0, :, :] = np.arange(8.0)[:, None] % 3
    return {"queries": queries, "keys": keys, "values": values}


def last_split(S: int) -> Inputs:
    """Equal masses; only the last split's output is not 0: the merge is 64 / S unless it is lost."""
    outputs = np.zeros((S, 1, 2, 8))
    outputs[-1] = 64.0
    return {"outputs": outputs, "lses": np.full((S, 1, 2), 2.5)}


def far_heads() -> Inputs:
    """Two KV heads whose masses are 60000 nats apart: a maximum over both leaves one of them nothing."""
    lses = np.array([[8.0, 2.0], [-59992.0, -59998.0]]).T[:, :, None] * np.ones((1, 1, 2))
    outputs = np.stack([np.full((2, 2, 8), 1.0), np.full((2, 2, 8), -100.0)])
    return {"outputs": outputs, "lses": lses}


def empty_beside_deep() -> Inputs:
    """A split of mass -60000 beside an empty one, which holds 2^100: the first one is the answer."""
    outputs = np.stack([np.full((1, 2, 8), 3.0), np.full((1, 2, 8), 2.0**100)])
    return {"outputs": outputs, "lses": np.stack([np.full((1, 2), -60000.0), np.full((1, 2), -np.inf)])}


def empty_in_turn() -> Inputs:
    """Splits of one mass and values 1, 2 and 9; in head h those are empty whose bit is set in h: from none to all.

    The merge is the mean of the others' values. What an empty split holds is not read.
    """
    empty = np.arange(8)[None, :, None] >> np.arange(3)[:, None, None] & 1  # [S, H, 1]
    values = np.array([1.0, 2.0, 9.0])[:, None, None]
    outputs = np.where(empty, 2.0**60, values)[..., None] * np.ones(8)
    return {"outputs": outputs, "lses": np.where(empty, -np.inf, 3.0)}


def named_pages(T: int, B: int, pages: list[int]) -> Inputs:
    """Equal weights; page pages[i] holds the value 2^i, any other -64: the output says which pages were read."""
    page = np.arange(T) // B
    values = np.full(T, -64.0)
    for i, chosen in enumerate(pages):
        values[page == chosen] = 2.0**i
    wide = np.broadcast_to(values[:, None], (1, T, 8))
    return {"queries": np.zeros((1, 1, 8)), "keys": np.ones((1, T, 8)), "values": wide, "pages": np.array([pages])}


def last_page(count: int) -> Inputs:
    """``count`` chosen pages of 4 tokens; only the last one's values are not 0: the output is 1 unless it is lost."""
    values = np.zeros((1, 4 * count, 8))
    values[:, -4:] = float(count)
    pages = np.arange(count)[None]
    return {"queries": np.zeros((1, 1, 8)), "keys": np.ones(values.shape), "values": values, "pages": pages}


def batch(block: int, lengths: list[int], d: int = 64) -> dict[str, Any]:
    """Random sequences of ``lengths`` in shuffled blocks of ``block``, two KV heads of three queries."""
    rng = generator("sizes", "batch", f"{block},{lengths},{d}")
    drawn = [random_qkv(rng, 2, 3, T, d, 2.0) for T in lengths]
    counts = [-(-T // block) for T in lengths]
    order = rng.permutation(sum(counts) + 3).tolist()
    table = [order[sum(counts[:n]) : sum(counts[: n + 1])] for n in range(len(lengths))]
    pool = pooled([x["keys"] for x in drawn], [x["values"] for x in drawn], lengths, block, table, sum(counts) + 3)
    return {"queries": np.stack([x["queries"] for x in drawn]), **pool}


def sparse_batch(block: int, lengths: list[int]) -> Inputs:
    """The same with pages: the last page and up to two others, in falling order, no row padded unless it must be."""
    inputs = batch(block, lengths)
    pages = np.full((len(lengths), 2, 3), -1)
    for n, T in enumerate(lengths):
        chosen = sorted({-(-T // block) - 1, (T // block) // 2, 0}, reverse=True) if T else []
        pages[n, :, : len(chosen)] = chosen
    return {**inputs, "pages": pages}


def many_sequences(N: int) -> dict[str, Any]:
    """N sequences of one token with value n + 1, block size 1, block N - 1 - n: block ids reach N - 1."""
    value = np.arange(1.0, N + 1) % 256
    values = np.broadcast_to(value[::-1, None, None, None], (N, 1, 1, 8))
    return {
        "queries": np.zeros((N, 1, 1, 8)),
        "key_pool": np.ones((N, 1, 1, 8)),
        "value_pool": values,
        "block_table": np.arange(N)[::-1, None],
        "tokens": np.ones(N, dtype=np.int64),
    }


def far_block(blocks: int) -> dict[str, Any]:
    """Three tokens in blocks 3, blocks - 1 and 200 of a pool of single slots: the output is their mean, 15."""
    values = np.full((blocks, 1, 1, 8), -64.0)
    table = [3, blocks - 1, 200]
    values[table] = np.array([9.0, 12.0, 24.0])[:, None, None, None]
    return {
        "queries": np.zeros((1, 1, 1, 8)),
        "key_pool": np.ones((blocks, 1, 1, 8)),
        "value_pool": values,
        "block_table": np.array([table]),
        "tokens": np.array([3]),
    }
