"""`kvproof microscope CAPTURE`: the papers' measurements on a capture, beside what the papers print."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from proofs_checks.microscope.accumulate import Results
from proofs_checks.microscope.energy import isotropic_null, measure_energy
from proofs_checks.microscope.frontier import measure_frontier
from proofs_checks.microscope.selectors import (
    CENTROID,
    EXACT,
    QUEST,
    codebook_selector,
    locks_selector,
    moment_selector,
    shared_selector,
)
from proofs_checks.microscope.source import load_capture
from proofs_checks.microscope.steps import page_context


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.add_argument("capture", type=Path, help=".safetensors or .npz file with a description (.json) beside it")


def run(args: argparse.Namespace) -> int:
    """Measure and print; 0 on success."""
    results = Results()
    for capture in load_capture(args.capture):
        for trace in capture.heads():
            context = page_context(trace, 16)
            measure_energy(context, results)
            r = trace.head_size // 16
            selectors = [EXACT, locks_selector(8, 4), locks_selector(8, "fp"), locks_selector(4, 4), QUEST, CENTROID]
            selectors += [codebook_selector(128), moment_selector(8)]
            selectors += [shared_selector(s, r, "reconstruction") for s in ("sequence", "global")]
            measure_frontier(trace, context, selectors, [256], results)
    null = isotropic_null(16, 64, 8)
    for key, value in results.items():
        print(*key, round(float(np.median(value.array)), 4) if key[0] == "energy" else value.value)
    print(null)
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    raise SystemExit(run(parser.parse_args()))
