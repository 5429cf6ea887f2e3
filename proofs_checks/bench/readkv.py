"""Times ReadKV's reader and its stages on a CUDA device, beside dense attention and a TurboQuant reader in one run.

Readers: the restricted policy at (W, R) = (8, 2), (8, 4), (4, 2), the Full Reader (4, 4), and its scheduled control,
which reads the same bits through the allocation and must give the same output bit for bit. Planes are random bits;
queries are scaled so that attention is spread or sharp, and each row states the mean entropy of its weights.
"Warm" rotates over buffers that together exceed the L2 cache; "evicted" also writes over the cache before every call.
"""

from __future__ import annotations

import importlib
import platform
import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

from proofs_checks.bench.locks import Bench, read_ceiling
from proofs_checks.bench.readkv_peers import dense, turboquant
from proofs_checks.bench.timing import REPLAYS, Timing, replay, rotations

CASES: dict[str, tuple[int, int]] = {
    f"{tokens}{', batch 4' if batch == 4 else ''}": (batch, size)
    for tokens, size in (("2K", 2048), ("8K", 8192), ("32K", 32768), ("128K", 131072))
    for batch in (1, 4)
}
"""Sequences and tokens of each; 4 KV heads of 7 query heads, d = 128, bfloat16 (Qwen2.5-7B)."""

HEADS, GROUP, CHANNELS = 4, 7, 128
SCALE = CHANNELS**-0.5
SPREAD, SHARP = 1.0, 3.0
"""Sizes of the queries: logits of about 1.3 and 4 nats spread."""

READERS = (("(8, 2)", 8, 2), ("(8, 4)", 8, 4), ("(4, 2)", 4, 2), ("Full (4, 4)", 4, None), ("(4, 4), scheduled", 4, 4))


def random_cache(torch: Any, N: int, T: int, stored: int) -> Any:
    """Planes of random bits: every path of the tree equally often."""
    cache_module = importlib.import_module("fastimpl.readkv.cache")

    def draw(spread: float) -> Any:
        return torch.exp(spread * torch.randn(HEADS, CHANNELS, device="cuda"))

    def signs() -> Any:
        return torch.randint(0, 2, (CHANNELS,), device="cuda") * 2.0 - 1.0

    state = {"key_mean": draw(0.3) - 1, "key_scale": draw(0.3), "value_mean": draw(0.1) - 1, "value_scale": draw(0.3),
             "key_signs": signs(), "value_signs": signs()}  # fmt: skip
    cache = cache_module.empty_cache(N, T, state, stored)
    cache.lengths.fill_(T)
    for planes in (cache.key_planes, cache.value_planes):
        planes.random_(-(2**31), 2**31 - 1)
    return cache


def queries_of(torch: Any, N: int, size: float) -> Any:
    """Normal queries [N, H, G, d] times ``size``."""
    return (size * torch.randn(N, HEADS, GROUP, CHANNELS, device="cuda")).bfloat16()


def chains_of(torch: Any, N: int, T: int, stored: int, rate: int | None, size: float, count: int) -> list[Any]:
    """Chains over ``count`` caches; a rate of None is the Full Reader."""
    reader = importlib.import_module("fastimpl.readkv.reader")
    queries, made = queries_of(torch, N, size), []
    for _ in range(count):
        cache = random_cache(torch, N, T, stored)
        if rate is None:
            made.append(reader.full_reader(queries, cache, SCALE))
        else:
            made.append(reader.restricted_reader(queries, cache, rate, SCALE))
    return made


def payload_bytes(chain: Any) -> int:
    """What the last schedule reads: T bits per key refinement, d bits per value refinement."""
    lengths = chain.cache.lengths.repeat_interleave(chain.cache.heads)
    keys = int((chain.key_depths.sum(1) * lengths).sum())
    values = sum(int(row[:n].long().sum()) for row, n in zip(chain.value_depths, lengths.tolist(), strict=True))
    return (keys + values * chain.cache.channels) // 8


def workspace_bytes(chain: Any) -> int:
    """Bytes of all buffers that the chain made."""
    owners = [vars(chain), vars(chain.allocation)]
    tensors = {id(x): x for owner in owners for x in owner.values() if hasattr(x, "element_size")}
    tensors = {k: x for k, x in tensors.items() if x is not chain.queries}
    return sum(x.numel() * x.element_size() for x in tensors.values())


def entropy(chain: Any, tokens: int) -> float:
    """Mean entropy in nats of the weights of the first rows."""
    weights = chain.weights(tokens)[:4]
    return float(-(weights * weights.clamp(min=1e-30).log()).sum(-1).mean())


def evicted(torch: Any, call: Callable[[], Any], replays: int = 7) -> Timing:
    """Microseconds of a captured call after 256 MB were written over the cache."""
    graph, waste = torch.cuda.CUDAGraph(), torch.empty(1 << 26, device="cuda")
    with torch.cuda.graph(graph):
        call()
    times = []
    for _ in range(replays):
        waste.fill_(1.0)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return Timing(statistics.median(times), min(times), max(times))


def stages(bench: Bench, case: str, chains: list[Any]) -> None:
    """Time the parts of the chain; each is replayed on what the whole chain left behind."""
    torch = bench.torch
    for chain in chains:
        chain.run()
    parts = ("choose_keys", "read_keys", "choose_values")
    size = payload_bytes(chains[0])
    for name in ("read_values", "merge", "choose_keys", "read_keys"):
        time = replay(torch, [getattr(c, name) for c in chains], replays=7)
        bench.row(case, "stage", name, time, size // 2 if name.startswith("read") else 0)

    def until(chain: Any, last: str) -> Callable[[], None]:
        def call() -> None:
            for name in parts[: parts.index(last) + 1]:
                getattr(chain, name)()

        return call

    for name, last in (("choose and read keys", "read_keys"), ("choose .. value bars", "choose_values")):
        bench.row(case, "stage", name, replay(torch, [until(c, last) for c in chains], replays=7), 0)


def readers(bench: Bench, case: str, N: int, T: int, fastest: float, turbo: float) -> None:
    """Time every reader of one case."""
    torch, outputs = bench.torch, {}
    for name, stored, rate in READERS:
        size = N * T * HEADS * CHANNELS * 2 * (rate or stored) // 8
        torch.manual_seed(1)
        chains = chains_of(torch, N, T, stored, rate, SHARP, rotations(size, 4 if T * N > 2**18 else 12))
        outputs[name] = chains[0].run().clone()
        time = replay(torch, [c.run for c in chains])
        read = payload_bytes(chains[0])
        more = {"ratio": round(fastest / time.median, 3), "over_turboquant": round(turbo / time.median, 3),
                "entropy_nats": round(entropy(chains[0], T), 2), "workspace_bytes": workspace_bytes(chains[0]),
                "retained_bytes": chains[0].cache.retained_bytes}  # fmt: skip
        bench.row(case, "reader", name, time, read, **more)
        if name == "(8, 2)":
            bench.row(case, "reader", "(8, 2), evicted", evicted(torch, chains[0].run), read)
            depths = chains[0].value_depths[0, :T].long()
            bench.notes.append(f"{case}: value depths of head 0: {torch.bincount(depths, minlength=9).tolist()}")
            stages(bench, case, chains)
            for kind, smaller in (("spread", SPREAD / SHARP), ("equal", 0.0)):
                chains[0].queries.mul_(smaller)  # every chain reads these
                time = replay(torch, [c.run for c in chains])
                bench.row(case, "reader", f"(8, 2), {kind}", time, read, ratio=round(fastest / time.median, 3),
                          entropy_nats=round(entropy(chains[0], T), 2))  # fmt: skip
        del chains
        torch.cuda.empty_cache()
    same = torch.equal(outputs["Full (4, 4)"], outputs["(4, 4), scheduled"])
    bench.notes.append(
        f"{case}: the scheduled control {'equals' if same else 'DIFFERS FROM'} the Full Reader bit for bit"
    )


def encoder(bench: Bench) -> None:
    """Time the prefill encoder on 131,072 tokens, and one appended token."""
    torch, module = bench.torch, importlib.import_module("fastimpl.readkv.cache")
    cache = random_cache(torch, 1, 131072, 8)
    x = [torch.randn(2, 1, HEADS, 131072, CHANNELS, device="cuda", dtype=torch.bfloat16) for _ in range(2)]
    size = 131072 * HEADS * CHANNELS * 2 * 3
    time = replay(torch, [partial(module.encode, cache, kv[0], kv[1]) for kv in x], least=2)
    source, target = torch.empty(2, 1 << 28, device="cuda")  # four bytes at a time: single bytes reach 80 % of it
    copy = replay(torch, [lambda: torch.add(source, 1, out=target)], least=2)
    ceiling = 2 * 4 * (1 << 28) / copy.low
    bench.row("128K", "encoder", "prefill", time, size, of_copy_ceiling=round(size / time.median / ceiling, 3))
    token = x[0][:, :, :, 0]
    cache.lengths.fill_(1000)
    bench.row("128K", "encoder", "one token", replay(torch, [lambda: module.append(cache, token[0], token[1])]), 0)


def run(
    say: Callable[[str], None], names: list[str] | None = None, save: Callable[[dict[str, Any]], None] | None = None
) -> dict[str, Any]:
    """Run everything; returns the document for benchmarks/results/, which ``save`` gets after every case already."""
    torch: Any = importlib.import_module("torch")
    bench = Bench(torch, [], say)
    torch.manual_seed(0)
    ceiling = read_ceiling(bench)
    importlib.import_module("proofs_checks.bench.readkv_quality").quality(bench)
    for name, (N, T) in CASES.items():
        if names is None or name in names:
            torch.cuda.empty_cache()
            fastest = dense(bench, name, N, T)
            turbo = turboquant(bench, name, N, T, fastest)
            readers(bench, name, N, T, fastest, turbo)
            if save:
                save(document(bench, ceiling))
    torch.cuda.empty_cache()
    encoder(bench)
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
        "shape": {"kv_heads": HEADS, "group": GROUP, "d": CHANNELS, "dtype": "bfloat16"},
        "rows": bench.rows,
        "notes": bench.notes,
    }  # fmt: skip
