"""DRAM traffic of one layer's decode step, as ReadKV's Table 12 has it: bytes that the device's counters saw.

Run: python benchmarks/readkv_dram.py [--tokens 8192] [--json FILE]. It runs itself under Nsight Compute (`ncu`), which
reads the counters of every kernel of one eager call: warm (the call before it was the same), and evicted (256 MB were
written over the cache). Kernels of one call are kept apart from the next by a marker kernel.
"""

import argparse
from functools import partial
from pathlib import Path

import torch
from profiler import kernels, profiled

from fastimpl.attention import SplitAttention
from proofs_checks.bench.readkv import CHANNELS, GROUP, HEADS, READERS, SCALE, SHARP, chains_of, queries_of
from proofs_checks.bench.readkv_peers import paged_cache, turboquant_readers
from proofs_checks.writing import dump_json, write_whole

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
UNITS = {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9}
MARKER = "spin_kernel"
DENSE = ("dense, cuDNN", "dense, own, paged")
METHODS = (*DENSE, *(name for name, *_ in READERS), "TurboQuant K4/V4, ours")


def call_of(method, T):
    """One decode step of a method at batch one."""
    torch.manual_seed(1)
    if method == DENSE[0]:
        keys, values = torch.randn(2, 1, HEADS, T, CHANNELS, device="cuda", dtype=torch.bfloat16)
        query = queries_of(torch, 1, 1.0).view(1, HEADS * GROUP, 1, CHANNELS)
        backend = torch.nn.attention

        def cudnn():
            with backend.sdpa_kernel(backend.SDPBackend.CUDNN_ATTENTION):
                torch.nn.functional.scaled_dot_product_attention(query, keys, values, enable_gqa=True)

        return cudnn
    if method == DENSE[1]:
        return SplitAttention(queries_of(torch, 1, 1.0), paged_cache(torch, 1, T), None, SCALE).run
    if method == METHODS[-1]:
        return turboquant_readers(torch, 1, T, 1)[0].run
    stored, rate = next(rest for name, *rest in READERS if name == method)
    return chains_of(torch, 1, T, stored, rate, SHARP, 1)[0].run


def measured(T):
    """What runs under the profiler: each method's call, warm and evicted, each followed by a marker."""
    runtime, waste = torch.cuda.cudart(), torch.empty(1 << 26, device="cuda")
    for call in [call_of(method, T) for method in METHODS]:
        for before in (call, partial(waste.fill_, 1.0)):
            call()
            before()
            torch.cuda.synchronize()
            runtime.cudaProfilerStart()
            call()
            torch.cuda._sleep(1)
            torch.cuda.synchronize()
            runtime.cudaProfilerStop()


def traffic(text):
    """Bytes read and written between markers: [[read, written], ...] from the profiler's raw CSV."""
    units, rows = kernels(text)
    scale, calls = [UNITS[units[m]] for m in METRICS], [[0.0, 0.0]]
    for row in rows:
        if MARKER in row["Kernel Name"]:
            calls.append([0.0, 0.0])
        else:
            for i, metric in enumerate(METRICS):
                calls[-1][i] += float(row[metric].replace(",", "")) * scale[i]
    return calls[:-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measured", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measured:
        measured(args.tokens)
        return
    calls = traffic(profiled(__file__, ["--tokens", str(args.tokens), "--measured"], METRICS))
    assert len(calls) == 2 * len(METHODS), f"{len(calls)} calls of {2 * len(METHODS)} were seen"
    rows = [
        {"method": method, "state": state, "read_bytes": round(read), "written_bytes": round(written)}
        for (method, state), (read, written) in zip(
            ((m, s) for m in METHODS for s in ("warm", "evicted")), calls, strict=True
        )
    ]
    for row in rows:
        print(
            f"{row['method']:24} {row['state']:8} {row['read_bytes'] / 2**20:8.2f} {row['written_bytes'] / 2**20:8.2f} MiB"
        )
    if args.json:
        device = torch.cuda.get_device_name()
        shape = {"kv_heads": HEADS, "group": GROUP, "d": CHANNELS, "tokens": args.tokens, "batch": 1}
        write_whole(args.json, dump_json({"schema": 1, "device": device, "shape": shape, "rows": rows}))


if __name__ == "__main__":
    main()
