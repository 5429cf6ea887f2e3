"""The verb `bench`: time a method on this machine's GPU, or compile every kernel for devices that are not here."""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from proofs_checks.writing import dump_json, write_whole

METHODS = ("locks", "readkv")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of `kvproof bench`."""
    parser.add_argument("method", nargs="?", choices=METHODS, help="what to time (needs a CUDA device)")
    parser.add_argument("--compile-only", action="store_true", help="compile for every target instead; needs no GPU")
    parser.add_argument("--target", action="append", help="compile for this target only (repeatable), as cuda:90")
    parser.add_argument("--kernel", action="append", help="compile this kernel only (repeatable)")
    parser.add_argument("--case", action="append", help="time this case only (repeatable), as 128K")
    parser.add_argument(
        "--json", nargs="?", const="-", metavar="FILE", help="write JSON to FILE, or to standard output"
    )


def run(args: argparse.Namespace) -> int:
    """Time kernels on this machine's GPU, or compile them all for cuda:80, cuda:90, cuda:100 and hip:gfx942.

    Exit codes: 0 done, 1 a kernel did not compile, 2 wrong usage, 3 no torch, no triton or no CUDA device here.
    """
    if bool(args.method) == bool(args.compile_only):
        print("kvproof bench: expected a method or --compile-only, one of them", file=sys.stderr)
        return 2
    missing = next((name for name in ("torch", "triton") if importlib.util.find_spec(name) is None), None)
    if missing:
        print(f"kvproof bench: {missing} is not installed", file=sys.stderr)
        return 3
    return _compile(args) if args.compile_only else _time(args)


def _compile(args: argparse.Namespace) -> int:
    compile_only = importlib.import_module("proofs_checks.bench.compile_only")
    rows = compile_only.compile_all(args.target, args.kernel)
    if args.json is None:
        for row in rows:
            used = f"{row['registers']} registers, {row['spills']} spilled" if row["ok"] else row["message"]
            print(f"{'ok' if row['ok'] else 'FAIL':4} {row['target']:10} {row['branch']:5} {row['kernel']:24} {used}")
    _write({"kernels": rows}, args.json)
    return 0 if rows and all(row["ok"] for row in rows) else 1


def _time(args: argparse.Namespace) -> int:
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        print("kvproof bench: no CUDA device here", file=sys.stderr)
        return 3
    method = importlib.import_module(f"proofs_checks.bench.{args.method}")
    unknown = sorted(set(args.case or []) - set(method.CASES))
    if unknown:
        print(f"kvproof bench: unknown case {unknown[0]!r}; cases: {', '.join(method.CASES)}", file=sys.stderr)
        return 2
    save = None if args.json in (None, "-") else lambda document: _write(document, args.json)
    _write(method.run(lambda line: print(line, file=sys.stderr), args.case, save), args.json)
    return 0


def _write(document: dict[str, Any], where: str | None) -> None:
    if where == "-":
        print(json.dumps(document, indent=1))
    elif where:
        write_whole(Path(where), dump_json(document))
