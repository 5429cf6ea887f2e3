"""Time ReadKV's float64 reference on the real capture, as ratios to dense attention of the same layer in the same run.

Run: python benchmarks/readkv_reference.py [FILE]. Prints a table and writes FILE (default
benchmarks/results/readkv_reference.json). Absolute times are of the machine that ran it; the ratio is what travels.
"""

import platform
import sys
import time
from pathlib import Path

import numpy as np

from proofs_checks.capture import needle_slice
from proofs_checks.judge.cases.readkv_inputs import captured_read, gains_of
from proofs_checks.writing import dump_json, write_whole
from refimpl.attention import attention
from refimpl.readkv.allocation import readkv_choose_depths
from refimpl.readkv.reader import encode_cache, readkv_attention
from refimpl.readkv.restricted import readkv_restricted_attention
from refimpl.readkv.tree import lloyd_tree

REPEATS = 7
BASE = "dense attention, 3 heads of 2,041 tokens, 9 queries"


def median_seconds(work):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def build_tree():
    lloyd_tree.cache_clear()
    lloyd_tree(8)


def main():
    default = Path(__file__).parent / "results" / "readkv_reference.json"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else default
    dense = {name: array.astype(np.float64) for name, array in needle_slice(1, 3).items()}
    inputs = captured_read(1, 3)
    state = {n: a for n, a in inputs.items() if n.endswith(("mean", "scale", "signs"))}
    H, T, d = inputs["key_codes"].shape
    budgets = {"key_budget": 2 * H * d, "value_budget": 2 * H * T}
    weights = np.random.default_rng(1).random(4 * 131072) ** 4
    work = {
        BASE: lambda: attention(**dense),
        "two-stage read, rates 2 and 2": lambda: readkv_attention(**inputs, **budgets),
        "restricted read, rate 2": lambda: readkv_restricted_attention(**inputs, rate=2),
        "encoding the layer's keys and values": lambda: encode_cache(
            keys=dense["keys"], values=dense["values"], **state
        ),
        "ChooseDepths, 4 x 131,072 items, rate 2": lambda: readkv_choose_depths(
            importance=weights, gains=gains_of(), budget=2 * len(weights)
        ),
        "building the depth-8 tree": build_tree,
    }
    seconds = {name: median_seconds(run) for name, run in work.items()}
    rows = [{"work": n, "seconds_median_of_7": s, "ratio_to_dense": s / seconds[BASE]} for n, s in seconds.items()]
    for row in rows:
        print(f"{row['work']:52s} {row['seconds_median_of_7'] * 1e3:9.2f} ms {row['ratio_to_dense']:8.1f} x dense")
    about = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    write_whole(target, dump_json({"schema": 1, "environment": about, "rows": rows}))


if __name__ == "__main__":
    main()
