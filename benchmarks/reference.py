"""Time the float64 reference on the real capture, as ratios to one dense attention of the same head in the same run.

Run: python benchmarks/reference.py [FILE]. Prints a table and writes FILE (default benchmarks/results/reference.json).
Absolute times are of the machine that ran it; the ratio is what travels.
"""

import platform
import sys
import time
from pathlib import Path

import numpy as np

from proofs_checks.capture import long_text_slice
from proofs_checks.writing import dump_json, write_whole
from refimpl.attention import attention
from refimpl.locks.combine import locks_page_shares
from refimpl.locks.score import exact_page_scores
from refimpl.locks.select import locks_select_pages
from refimpl.locks.summary import locks_build_summary

REPEATS = 7


def median_seconds(work):
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return float(np.median(times))


def exact_selection_of_16_steps(pages):
    for step in range(16):
        scores = exact_page_scores(queries=long_text_slice(step)["queries"], key_pages=pages)
        locks_select_pages(shares=locks_page_shares(scores=scores), budget_tokens=2048, page_size=16)


def main():
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results" / "reference.json"
    head = {name: array.astype(np.float64) for name, array in long_text_slice(0).items()}
    pages = head["keys"].reshape(1, 511, 16, 64)
    work = {
        "dense attention, 8,176 tokens, 3 queries": lambda: attention(**head),
        "page summaries, 511 pages of 16 x 64, rank 8": lambda: locks_build_summary(key_pages=pages, rank=8),
        "exact scores and selection of 16 steps": lambda: exact_selection_of_16_steps(pages),
    }
    seconds = {name: median_seconds(run) for name, run in work.items()}
    base = seconds["dense attention, 8,176 tokens, 3 queries"]
    rows = [{"work": n, "seconds_median_of_7": s, "ratio_to_dense": s / base} for n, s in seconds.items()]
    for row in rows:
        print(f"{row['work']:48s} {row['seconds_median_of_7'] * 1e3:9.2f} ms {row['ratio_to_dense']:8.1f} x dense")
    about = {"python": platform.python_version(), "numpy": np.__version__, "machine": platform.machine()}
    write_whole(target, dump_json({"schema": 1, "environment": about, "rows": rows}))


if __name__ == "__main__":
    main()
