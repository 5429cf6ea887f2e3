"""Peers from other packages: FlashInfer's dense decoding and the released locks-kv kernels. Absent ones are skipped."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from proofs_checks.bench.timing import replay

Calls = list[Callable[[], Any]]
VARIANTS: dict[str, dict[str, str]] = {
    "slab": {"RKI4_MMA": "1", "LOCKS_HMAX": "1", "LOCKS_SEL_V2": "1"},
    "records": {"RKI4_MMA": "1", "RKI4_MMA_AOS": "1", "RKI4_MMA_PFR": "1"},
}
"""Settings of the released kernels; its documentation sends 512K tokens and more to records."""


def flashinfer_calls(torch: Any, caches: list[Any], queries: list[Any]) -> Calls | None:
    """FlashInfer's paged decoding with tensor cores on our pools; None where the package is not installed."""
    if importlib.util.find_spec("flashinfer") is None:
        return None
    flashinfer = importlib.import_module("flashinfer")
    first = caches[0]
    N, pages = first.block_table.shape
    G, d = queries[0].shape[2:]
    size = {"device": "cuda", "dtype": torch.int32}
    starts = torch.arange(N + 1, **size) * pages
    blocks, last = torch.arange(N * pages, **size), torch.full((N,), first.page_size, **size)
    workspace = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(
        workspace, "NHD", use_cuda_graph=True, use_tensor_cores=True, paged_kv_indptr_buffer=starts.clone(),
        paged_kv_indices_buffer=blocks.clone(), paged_kv_last_page_len_buffer=last.clone(),
    )  # fmt: skip
    kind = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}
    wrapper.plan(starts, blocks, last, first.heads * G, first.heads, d, first.page_size, **kind)
    flat = [q.reshape(N, first.heads * G, d) for q in queries]
    out = torch.empty_like(flat[0])

    def call(i: int) -> Callable[[], Any]:
        return lambda: wrapper.run(flat[i % len(flat)], (caches[i].keys, caches[i].values), out=out)

    return [call(i) for i in range(len(caches))]


def released(variant: str, cases: dict[str, tuple[int, int]], shape: dict[str, int]) -> dict[str, Any] | str:
    """Microseconds of the released package's chain and scorer by case, in a process of its own, or why there are none.

    A case that fails ends the process; those before it are returned.
    """
    if importlib.util.find_spec("locks") is None:
        return "locks-kv is not installed"
    request = json.dumps({name: {"N": N, "T": T, **shape} for name, (N, T) in cases.items()})
    command = [sys.executable, "-m", "proofs_checks.bench.peers", request]
    environment = {"TORCH_CUDA_ARCH_LIST": "9.0a", **os.environ, **VARIANTS[variant]}
    # the variants are builds of one name: each has a folder of its own, so that they can be built side by side
    environment.setdefault("TORCH_EXTENSIONS_DIR", str(Path(tempfile.gettempdir()) / f"locks-kv-{variant}"))
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=300)
    except subprocess.TimeoutExpired:
        return "no result within 300 s"
    found: dict[str, Any] = {}
    for line in done.stdout.splitlines():
        if line.startswith("{"):
            found |= json.loads(line)
    return found or (done.stderr.strip().splitlines() or ["no output"])[-1][:200]


class Released:
    """The released kernels through their own Python entries, on random records."""

    def __init__(self, torch: Any, N: int, T: int, heads: int, group: int, channels: int, page: int, kept: int) -> None:
        _stand_in_for_engine()
        modules = ("selection.rki4_score_cuda", "attention.decode_cuda", "attention.decode")
        self.score_module, self.decode_module, decode = (importlib.import_module(f"locks.{m}") for m in modules)
        selection = importlib.import_module("locks.selection")
        pages, self.N = T // page, N
        record_bytes = N * heads * pages * 834
        self.layers = max(2, min(16, 240_000_000 // record_bytes + 1))
        self.state = selection.Rki4State(
            "cuda", num_layers=self.layers, num_blocks=N * pages, n_kv=heads, G=group, head_dim=channels, page=page,
            max_reqs=N, max_pages=pages, budget_pages=kept - 2, sink_pages=1, window_pages=1,
        )  # fmt: skip
        self.state.D, self.state.scale = channels, channels**-0.5
        self.state.pp_v4.random_(0, 256)
        self.state.pp_c8.random_(-127, 128)
        self.state.pp_mu8.random_(-127, 128)
        for scales, size in ((self.state.pp_vs, 0.03), (self.state.pp_cs, 0.02), (self.state.pp_mus, 0.01)):
            scales.copy_(torch.rand(scales.shape, device="cuda") * size + 0.2 * size)
        self.table = torch.arange(N * pages, device="cuda", dtype=torch.int32).view(N, pages)
        self.lengths = torch.full((N,), T, device="cuda", dtype=torch.int32)
        pools = 1 if N * T * heads * channels * 4 > 300_000_000 else 4
        kind = {"device": "cuda", "dtype": torch.bfloat16}
        self.pools = [torch.randn(N * pages, 2, page, heads, channels, **kind) for _ in range(pools)]
        self.queries = [torch.randn(N, heads * group, channels, **kind) for _ in range(self.layers)]
        self.out = torch.empty(N, heads * group, channels, **kind)
        decode.ensure_stage_b_buffers(self.state, "cuda", channels)
        selection.derive_page_params(self.state, self.lengths, N)
        self.sources = [decode.ResidentVSource(pool) for pool in self.pools]

    def score(self, i: int) -> None:
        """Score every page of layer ``i``."""
        state = self.state
        self.score_module.rki4_score_only(state, i, self.queries[i], self.table, self.lengths, self.N, state.scale)

    def chain(self, i: int) -> None:
        """Score, select, attend."""
        self.score(i)
        self.score_module.rki4_select_only(self.state, self.N)
        k = i % len(self.pools)
        self.decode_module.sparse_paged_decode_batched_cuda(
            self.queries[i], self.pools[k], self.table, self.lengths, self.state, self.out, self.sources[k]
        )


def _stand_in_for_engine() -> None:
    """The package's kernels import the serving engine's glue; nothing of it is used here."""
    backend, runtime = type(sys)("locks.backend"), type(sys)("locks.backend._runtime")
    backend.__path__ = []
    runtime.__dict__.update(rope_cflags=list, rope_tag=str, _NOROPE_CSC=None)
    backend.__dict__["_runtime"] = runtime
    sys.modules |= {"locks.backend": backend, "locks.backend._runtime": runtime}


def time_released(request: dict[str, int]) -> dict[str, float]:
    """Times of one case, in this process."""
    torch: Any = importlib.import_module("torch")
    peer = Released(torch, **request)
    peer.chain(0)
    torch.cuda.synchronize()
    layers = range(peer.layers)
    times = {"chain": [lambda i=i: peer.chain(i) for i in layers], "score": [lambda i=i: peer.score(i) for i in layers]}
    return {name: round(replay(torch, calls, replays=7).median, 2) for name, calls in times.items()}


if __name__ == "__main__":
    for case, request in json.loads(sys.argv[1]).items():
        print(json.dumps({case: time_released(request)}), flush=True)
