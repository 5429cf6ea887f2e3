"""What the kernels of one Locks decode step wait for: counters of Nsight Compute, kernel by kernel.

Run: python benchmarks/locks_profile.py [--json FILE]. It runs itself under `ncu`; every chain runs twice before.
"""

import argparse
from pathlib import Path

import torch
from profiler import kernels, profiled

from fastimpl.locks.decode import LocksChain
from fastimpl.locks.record import Layout
from proofs_checks.bench.locks import CASES, CHANNELS, GROUP, HEADS, KEPT, PAGE, make_cache, random_records
from proofs_checks.writing import dump_json, write_whole

PROFILED = ("32K", "128K", "1M", "32K, batch 8", "128K, batch 8")
METRICS = {
    "microseconds": "gpu__time_duration.sum",
    "dram_percent": "dram__throughput.avg.pct_of_peak_sustained_elapsed",
    "issue_percent": "sm__inst_issued.avg.pct_of_peak_sustained_elapsed",
    "warps_percent": "sm__warps_active.avg.pct_of_peak_sustained_active",
    "waits_for_memory": "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio",
    "waits_at_barriers": "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio",
    "waits_for_shared_memory": "smsp__average_warps_issue_stalled_short_scoreboard_per_issue_active.ratio",
}
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
MARKER = "spin_kernel"


def measured():
    """What runs under the profiler: each case's chain, followed by a marker."""
    runtime = torch.cuda.cudart()
    layout = Layout(PAGE, CHANNELS, 8, 4, "float16")
    for name in PROFILED:
        N, T = CASES[name]
        queries = torch.randn(N, HEADS, GROUP, CHANNELS, device="cuda", dtype=torch.bfloat16)
        records = random_records(torch, layout, N * T // PAGE)
        chain = LocksChain(queries, make_cache(torch, N, T), records, layout, KEPT, CHANNELS**-0.5)
        chain.run()
        chain.run()
        torch.cuda.synchronize()
        runtime.cudaProfilerStart()
        chain.run()
        torch.cuda._sleep(1)
        torch.cuda.synchronize()
        runtime.cudaProfilerStop()
        del chain, records
        torch.cuda.empty_cache()


def rows_of(text):
    """A row per kernel and case."""
    units, found = kernels(text)
    cases, rows = iter(PROFILED), []
    case = next(cases)
    for kernel in found:
        if MARKER in kernel["Kernel Name"]:
            case = next(cases, None)
            continue
        numbers = {name: float(kernel[metric].replace(",", "")) for name, metric in METRICS.items()}
        numbers["microseconds"] *= MICROSECONDS[units[METRICS["microseconds"]]]
        rows.append({"case": case, "kernel": kernel["Kernel Name"], **{n: round(v, 2) for n, v in numbers.items()}})
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--measured", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.measured:
        measured()
        return
    rows = rows_of(profiled(__file__, ["--measured"], METRICS.values()))
    for row in rows:
        print(row)
    if args.json:
        write_whole(args.json, dump_json({"schema": 1, "device": torch.cuda.get_device_name(), "rows": rows}))


if __name__ == "__main__":
    main()
