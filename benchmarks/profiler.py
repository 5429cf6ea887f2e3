"""Runs a script under Nsight Compute (`ncu`) and reads the counters of its kernels."""

import csv
import io
import subprocess
import sys


def profiled(script, arguments, metrics):
    """The raw CSV of ``metrics`` for every kernel between cudaProfilerStart and Stop of a script; exits where it fails."""
    profiler = ["ncu", "--clock-control", "none", "--cache-control", "none", "--profile-from-start", "off"]
    profiler += ["--metrics", ",".join(metrics), "--csv", "--page", "raw", "--print-units", "auto"]
    done = subprocess.run([*profiler, sys.executable, script, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout[-500:] + done.stderr[-1000:])
    return done.stdout


def kernels(text):
    """Units by counter, and one row of text per kernel, in the order of their launches."""
    units, *rows = csv.DictReader(io.StringIO(text[text.index('"ID"') :]))
    return units, rows
