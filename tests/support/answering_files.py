"""A program that answers a folder of `kvproof cases`, and the verdict on what it wrote."""

import json
import runpy
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from proofs_checks.cli import main

PORTS = Path(__file__).resolve().parents[2] / "examples" / "ports"
PORT = runpy.run_path(str(PORTS / "numpy_port.py"))


def widened(array, dtype):
    return (array.astype(np.uint32) << 16).view(np.float32) if dtype == "bfloat16" else array


def answer(folder, port=PORT):
    """What a program in any language does, with nothing of kvproof."""
    for path in sorted(folder.glob("*/*/call.json")):
        call = json.loads(path.read_text())
        if call["stage"] not in port:
            continue
        stored = load_file(path.parent / "inputs.safetensors")
        inputs = {name: widened(array, call["tensors"][name]["dtype"]) for name, array in stored.items()}
        result = port[call["stage"]](**inputs, **call["arguments"])
        result = result if isinstance(result, dict) else {next(iter(call["results"])): result}
        results = {name: np.ascontiguousarray(value) for name, value in result.items()}
        save_file(results, path.parent / "outputs.safetensors")


def verdict(folder, *more):
    target = folder.parent / "report.json"
    code = main(["judge", str(folder), *more, "--json", str(target)])
    return code, json.loads(target.read_text())


def rows(report):
    return {row["stage"]: row for row in report["stages"] if row["verdict"] != "NOT_PROVIDED"}
