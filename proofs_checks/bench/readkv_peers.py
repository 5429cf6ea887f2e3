"""Peers of the ReadKV reader at its shape: our split decoding, cuDNN's, FlashInfer's, and a TurboQuant K4/V4 reader."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Any

from proofs_checks.bench.locks import PAGE, Bench
from proofs_checks.bench.peers import flashinfer_calls
from proofs_checks.bench.timing import replay, rotations

HEADS, GROUP, CHANNELS = 4, 7, 128


def paged_cache(torch: Any, N: int, T: int) -> Any:
    """A paged bfloat16 cache whose table is the identity."""
    paging, pages = importlib.import_module("fastimpl.paging"), T // PAGE
    pools = torch.randn(2, N * pages, PAGE, HEADS, CHANNELS, device="cuda", dtype=torch.bfloat16)
    table = torch.arange(N * pages, device="cuda", dtype=torch.int32).view(N, pages)
    tokens = torch.full((N,), T, device="cuda", dtype=torch.int32)
    strides = tuple(pools[0].stride()[:3])
    return paging.Cache(pools[0], pools[1], strides, strides, PAGE, HEADS, CHANNELS, N * pages, tokens, table, T)


def dense(bench: Bench, case: str, N: int, T: int) -> float:
    """Time dense attention; returns the fastest."""
    torch, attention = bench.torch, importlib.import_module("fastimpl.attention")
    size, count = N * T * HEADS * CHANNELS * 4, rotations(N * T * HEADS * CHANNELS * 4, 8)
    queries = torch.randn(N, HEADS, GROUP, CHANNELS, device="cuda", dtype=torch.bfloat16)
    caches = [paged_cache(torch, N, T) for _ in range(count)]
    own = [attention.SplitAttention(queries, cache, None, CHANNELS**-0.5) for cache in caches]
    times = [bench.row(case, "peer", "own, paged", replay(torch, [o.run for o in own], least=8), size)]
    calls = flashinfer_calls(torch, caches, [queries])
    if calls:
        try:
            times.append(bench.row(case, "peer", "FlashInfer, paged", replay(torch, calls, least=8), size))
        except Exception as error:  # a peer that fails is no reason to lose the run
            bench.notes.append(f"{case}: FlashInfer: {str(error)[:120]}")
    del caches, own
    functional, backend = torch.nn.functional, importlib.import_module("torch.nn.attention")
    pairs = [torch.randn(2, N, HEADS, T, CHANNELS, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    query = queries.view(N, HEADS * GROUP, 1, CHANNELS)

    def cudnn(kv: Any) -> Any:
        with backend.sdpa_kernel(backend.SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(query, kv[0], kv[1], enable_gqa=True)

    time = replay(torch, [partial(cudnn, kv) for kv in pairs], least=8)
    times.append(bench.row(case, "peer", "cuDNN, contiguous", time, size))
    return min(times)


def turboquant_readers(torch: Any, N: int, T: int, count: int) -> list[Any]:
    """``count`` TurboQuant K4/V4 readers on random codes."""
    module = importlib.import_module("fastimpl.readkv.turboquant")
    books = importlib.import_module("fastimpl.readkv.codebooks")
    levels = books.lloyd_max_codebook(bits=4, law="sphere", d=CHANNELS)["levels"]
    levels = (levels / CHANNELS**0.5).to("cuda", torch.bfloat16)
    rows, signs = N * HEADS, torch.ones(CHANNELS, device="cuda")
    queries = torch.randn(rows, GROUP, CHANNELS, device="cuda", dtype=torch.bfloat16)

    def half(spread: float) -> Any:
        return (torch.rand(rows, T, device="cuda") * spread + spread).half()

    def packed() -> Any:
        return torch.randint(0, 256, (rows, T, CHANNELS // 2), device="cuda", dtype=torch.uint8)

    return [module.TurboQuantReader(queries, signs, (packed(), half(11.0)), (packed(), half(0.4), half(-1.0)), levels,
                                    CHANNELS**-0.5) for _ in range(count)]  # fmt: skip


def turboquant(bench: Bench, case: str, N: int, T: int, fastest: float) -> float:
    """Time our TurboQuant K4/V4 reader on random codes."""
    torch, size = bench.torch, N * T * HEADS * (CHANNELS + 6)
    time = replay(torch, [reader.run for reader in turboquant_readers(torch, N, T, rotations(size, 8))])
    return bench.row(case, "peer", "TurboQuant K4/V4, ours", time, size, ratio=round(fastest / time.median, 3))
