"""Times the Locks chain and its stages on a CUDA device, beside dense attention of the same shape in the same run.

Peers: our own split decoding, on contiguous and on paged caches, and cuDNN's through torch; the ratio is to the
fastest of them. Records are random codes with plausible scales: time hardly depends on content. After the timing every
chain's output is compared with attention over its own pages in float32.
"""

from __future__ import annotations

import importlib
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from proofs_checks.bench import peers
from proofs_checks.bench.timing import REPLAYS, Timing, replay, rotations

CASES: dict[str, tuple[int, int]] = {
    "8K": (1, 8192),
    "32K": (1, 32768),
    "128K": (1, 131072),
    "512K": (1, 524288),
    "1M": (1, 1048576),
    "32K, batch 8": (8, 32768),
    "128K, batch 8": (8, 131072),
}
"""Sequences and tokens of each; 4 KV heads of 8 query heads, d = 128, bfloat16, pages of 16 tokens, 128 kept."""

HEADS, GROUP, CHANNELS, PAGE, KEPT = 4, 8, 128, 16, 128
BUILD_PAGES = 262144


@dataclass
class Bench:
    """Collects rows while it runs."""

    torch: Any
    rows: list[dict[str, Any]]
    say: Callable[[str], None]
    notes: list[str] = field(default_factory=list)

    def row(self, case: str, kind: str, name: str, time: Timing, size: float, **more: Any) -> float:
        """Note one timing; ``size`` is the bytes that must move. Returns microseconds."""
        row = {"case": case, "kind": kind, "name": name, "microseconds": round(time.median, 2)}
        row |= {"lowest": round(time.low, 2), "highest": round(time.high, 2), "bytes": int(size)}
        if size:
            row["gigabytes_per_second"] = round(size / time.median / 1e3, 1)
        self.rows.append(row | more)
        self.say(f"{case:14} {kind:8} {name:24} {time.median:9.2f} us  {more or ''}")
        return time.median


def _tensor(torch: Any, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def make_cache(torch: Any, N: int, T: int) -> Any:
    """A paged cache whose table is the identity."""
    paging = importlib.import_module("fastimpl.paging")
    pages = T // PAGE
    pools = _tensor(torch, 2, N * pages, PAGE, HEADS, CHANNELS)
    table = torch.arange(N * pages, device="cuda", dtype=torch.int32).view(N, pages)
    tokens = torch.full((N,), T, device="cuda", dtype=torch.int32)
    strides = tuple(pools[0].stride()[:3])
    return paging.Cache(
        pools[0], pools[1], strides, strides, PAGE, HEADS, CHANNELS, N * pages, tokens, table, T
    )  # fmt: skip


def random_records(torch: Any, layout: Any, blocks: int) -> Any:
    """Records of random codes; token and mode scales of .004 to .024, centroid scales of .002 to .012."""
    records = layout.empty(HEADS, blocks, "cuda")
    records.random_(0, 256)
    c, width = layout.constants, 2 if layout.constants["HALF_SCALES"] else 4
    quads = records[..., c["QUADS"] :].view(HEADS, blocks, layout.quads, c["QUAD_BYTES"])
    scales = torch.rand(HEADS, blocks, layout.quads, 6, device="cuda") * 0.02 + 0.004
    quads[..., : 6 * width] = scales.to(torch.float16 if width == 2 else torch.float32).view(torch.uint8)
    centroid = torch.rand(HEADS, blocks, 1, 1, device="cuda") * 0.01 + 0.002
    quads[..., 6 * width : 6 * width + 4] = centroid.expand(-1, -1, layout.quads, 1).contiguous().view(torch.uint8)
    return records


def read_ceiling(bench: Bench) -> float:
    """Bytes per microsecond of the fastest plain read: a sum over 2 GB by torch, the best of its replays."""
    data = bench.torch.ones(1 << 29, device="cuda", dtype=bench.torch.float32)
    time = replay(bench.torch, [lambda: data.sum()], least=2)
    bench.row("2 GB", "ceiling", "torch sum", time, data.numel() * 4)
    return data.numel() * 4 / time.low


def dense(bench: Bench, case: str, N: int, T: int, caches: list[Any], queries: list[Any]) -> float:
    """Time the dense peers; returns the fastest."""
    torch, attention = bench.torch, importlib.import_module("fastimpl.attention")
    size, scale = N * T * HEADS * CHANNELS * 4, CHANNELS**-0.5
    own = [attention.SplitAttention(queries[i % 4], cache, None, scale) for i, cache in enumerate(caches)]
    times = [bench.row(case, "peer", "own, paged", replay(torch, [o.run for o in own], least=8), size)]
    if N == 1:
        paging = importlib.import_module("fastimpl.paging")
        flat = [_tensor(torch, 2, HEADS, T, CHANNELS) for _ in caches]
        own = [
            attention.SplitAttention(queries[0], paging.contiguous_cache(kv[0], kv[1], PAGE), None, scale)
            for kv in flat
        ]
        times.append(bench.row(case, "peer", "own, contiguous", replay(torch, [o.run for o in own], least=8), size))
        del flat, own
    functional, backend = torch.nn.functional, importlib.import_module("torch.nn.attention")
    pairs = [_tensor(torch, 2, N, HEADS, T, CHANNELS) for _ in caches]
    query = _tensor(torch, N, HEADS * GROUP, 1, CHANNELS)

    def cudnn(kv: Any) -> Any:
        with backend.sdpa_kernel(backend.SDPBackend.CUDNN_ATTENTION):
            return functional.scaled_dot_product_attention(query, kv[0], kv[1], enable_gqa=True)

    calls = [lambda kv=kv: cudnn(kv) for kv in pairs]
    times.append(bench.row(case, "peer", "cuDNN, contiguous", replay(torch, calls, least=8), size))
    if (others := peers.flashinfer_calls(torch, caches, queries)) is not None:
        times.append(bench.row(case, "peer", "FlashInfer, tensor cores, paged", replay(torch, others, least=8), size))
    return min(times)


def released(bench: Bench, cases: dict[str, tuple[int, int]]) -> None:
    """Time the released kernels, in the setting that its documentation gives for each length."""
    shape = {"heads": HEADS, "group": GROUP, "channels": CHANNELS, "page": PAGE, "kept": KEPT}
    for variant in peers.VARIANTS:
        mine = {name: c for name, c in cases.items() if (c[1] >= 524288) == (variant == "records")}
        found = peers.released(variant, mine, shape) if mine else {}
        if isinstance(found, str):
            bench.notes.append(f"Released kernels, {variant}: {found}.")
            continue
        for case, times in found.items():
            ours = min(r["microseconds"] for r in bench.rows if (r["case"], r["kind"]) == (case, "chain"))
            for name, time in times.items():
                more = {"ours_times_faster": round(time / ours, 2)} if name == "chain" else {}
                bench.row(case, "released", f"{variant}, {name}", Timing(time, time, time), 0, **more)


def output_error(torch: Any, chain: Any) -> float:
    """Relative error of a chain's output against float32 attention over the pages that it chose."""
    result, cache, worst = chain.run(), chain.cache, 0.0
    for n in range(cache.sequences):
        for head in range(HEADS):
            pages = result["pages"][n, head].long()
            blocks = cache.block_table[n][pages].long()
            keys, values = (x[blocks, :, head].flatten(0, 1).float() for x in (cache.keys, cache.values))
            query = chain.queries[n, head].float()
            exact = torch.softmax(query @ keys.T * chain.scale, dim=-1) @ values
            error = (result["output"][n, head].float() - exact).norm() / exact.norm()
            worst = max(worst, float(error))
    return worst


def chain(bench: Bench, case: str, N: int, T: int, ceiling: float) -> None:
    """Time one case: dense peers, the whole chain with both kinds of records, its stages."""
    torch, scale = bench.torch, CHANNELS**-0.5
    decode, record = (importlib.import_module(f"fastimpl.locks.{m}") for m in ("decode", "record"))
    caches = [make_cache(torch, N, T) for _ in range(rotations(N * T * HEADS * CHANNELS * 4, 4))]
    queries = [_tensor(torch, N, HEADS, GROUP, CHANNELS) for _ in range(4)]
    fastest = dense(bench, case, N, T, caches, queries)
    if N == 1:
        auto(bench, case, T, queries[0], fastest)
    read = N * HEADS * KEPT * PAGE * CHANNELS * 4
    for scales in ("float16", "float32"):
        layout = record.Layout(PAGE, CHANNELS, 8, 4, scales)
        size = N * HEADS * (T // PAGE) * layout.bytes
        count = rotations(size + read, 24)
        packed = [random_records(torch, layout, N * T // PAGE) for _ in range(count)]
        chains = [
            decode.LocksChain(queries[i % 4], caches[i % len(caches)], packed[i], layout, KEPT, scale)
            for i in range(count)
        ]
        time = replay(torch, [c.run for c in chains])
        error = output_error(torch, chains[0])
        ratio = round(fastest / time.median, 3)
        more = {"ratio": ratio, "output_error": error, "wrong_pages": selection_faults(torch, chains[0])}
        bench.row(case, "chain", f"records with {scales} scales", time, size + read, **more)
        time = replay(torch, [c.scoring.run for c in chains])
        bench.row(case, "stage", f"score, {scales}", time, size, of_ceiling=round(size / time.median / ceiling, 3),
                  steps=chains[0].scoring.steps)  # fmt: skip
        if scales == "float32":
            for name, calls in selection_stages(chains).items():
                bench.row(case, "stage", name, replay(torch, calls), read if "attend" in name else 0)


def selection_stages(chains: list[Any]) -> dict[str, list[Callable[[], Any]]]:
    """What follows scoring, as the chain launches it: the first passes of the selection, and the rest."""
    chain = chains[0]
    if not chain.fused:
        return {"select": [c.selection.run for c in chains], "attend and merge": [c.attention.run for c in chains]}
    stages: dict[str, list[Callable[[], Any]]] = {}
    if chain.selection.chunks > 1:
        stages["select: first pass"] = [c.selection.run_first for c in chains]
    return stages | {"select: last pass, attend and merge": [c.attention.run for c in chains]}


def build(bench: Bench) -> None:
    """Time building records of random keys."""
    record, summary = (importlib.import_module(f"fastimpl.locks.{m}") for m in ("record", "summary"))
    cache = make_cache(bench.torch, 1, BUILD_PAGES // HEADS * PAGE)
    layout = record.Layout(PAGE, CHANNELS, 8, 4, "float16")
    records = layout.empty(HEADS, cache.blocks, "cuda")
    time = replay(bench.torch, [lambda: summary.build_records(cache, layout, records)], least=2)
    bench.row("262144 pages", "build", "records", time, BUILD_PAGES * (PAGE * CHANNELS * 2 + layout.bytes),
              million_pages_per_second=round(BUILD_PAGES / time.median, 1))  # fmt: skip


def selection_faults(torch: Any, chain: Any) -> int:
    """Pages that the chain kept and the rule, applied to the chain's own scores in float64, does not."""
    chain.run()
    faults = 0
    for n in range(chain.cache.sequences):
        shares = torch.softmax(chain.scoring.scores[n].double(), -1).mean(1)
        shares[:, [0, -1]] = 2.0
        right = shares.topk(chain.selection.kept).indices.sort().values
        faults += int((right != chain.selection.pages[n]).sum())
    return faults


def auto(bench: Bench, case: str, T: int, queries: Any, fastest: float) -> None:
    """Time ``mode="auto"`` where it attends densely: our split decoding on a contiguous cache."""
    torch, attention, paging = bench.torch, *(importlib.import_module(f"fastimpl.{m}") for m in ("attention", "paging"))
    decode = importlib.import_module("fastimpl.locks.decode")
    if HEADS * T >= decode.DENSE_BELOW:
        return
    pairs = [_tensor(torch, 2, HEADS, T, CHANNELS) for _ in range(rotations(T * HEADS * CHANNELS * 4, 24))]
    steps = [
        attention.SplitAttention(queries, paging.contiguous_cache(*kv, PAGE), None, CHANNELS**-0.5) for kv in pairs
    ]
    time = replay(torch, [step.run for step in steps])
    bench.row(case, "auto", "auto", time, T * HEADS * CHANNELS * 4, ratio=round(fastest / time.median, 3))


def run(
    say: Callable[[str], None], names: list[str] | None = None, save: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Run everything; returns the document for benchmarks/results/, which ``save`` gets after every case already."""
    torch: Any = importlib.import_module("torch")
    bench = Bench(torch, [], say)
    torch.manual_seed(0)
    ceiling = read_ceiling(bench)
    for name, (N, T) in CASES.items():
        if names is None or name in names:
            torch.cuda.empty_cache()
            chain(bench, name, N, T, ceiling)
            if save:
                save(document(bench, ceiling))
    torch.cuda.empty_cache()
    build(bench)
    torch.cuda.empty_cache()
    released(bench, {name: case for name, case in CASES.items() if names is None or name in names})
    return document(bench, ceiling)


def document(bench: Bench, ceiling: float) -> dict[str, Any]:
    """The rows so far with what they were measured on."""
    torch = bench.torch
    device = torch.cuda.get_device_properties(0)
    return {
        "schema": 1,
        "device": device.name,
        "multiprocessors": device.multi_processor_count,
        "versions": {"torch": torch.__version__, "triton": importlib.import_module("triton").__version__,
                     "python": platform.python_version()},
        "method": f"CUDA graph replay over rotating buffers beyond the L2 cache, median of {REPLAYS} replays",
        "read_ceiling_gigabytes_per_second": round(ceiling / 1e3, 1),
        "shape": {"kv_heads": HEADS, "group": GROUP, "d": CHANNELS, "page": PAGE, "kept_pages": KEPT, "rank": 8,
                  "basis_bits": 4, "dtype": "bfloat16"},
        "notes": bench.notes,
        "rows": bench.rows,
    }  # fmt: skip
