"""Tight instances as golden cases: stored bit for bit, with the ratio they have to reach.

One canonical JSON file. Arrays are stored as their bytes (little-endian, zlib, base64) with dtype and shape; tuples and
dicts with other than string keys are spelled out, so that loading needs no pickle and no guessing.
"""

from __future__ import annotations

import base64
import json
import math
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from proofs_checks.fixtures import FixtureError, checkout_directory, fixtures_directory
from proofs_checks.statements.registry import STATEMENTS
from proofs_checks.statements.statement import Instance, StatementModule, fields

FORMAT = 1


def witness_file() -> Path:
    """Where the stored witnesses lie."""
    return fixtures_directory() / "statements" / "witnesses.json"


def pack(value: Any) -> Any:
    """A field as JSON.

    >>> pack((1, {2: "x"}))
    {'tuple': [1, {'pairs': [[2, 'x']]}]}
    """
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value).astype(value.dtype.newbyteorder("<"))
        payload = base64.b64encode(zlib.compress(array.tobytes(), 9)).decode("ascii")
        return {"array": payload, "dtype": array.dtype.str, "shape": list(value.shape)}
    if isinstance(value, tuple):
        return {"tuple": [pack(item) for item in value]}
    if isinstance(value, list):
        return [pack(item) for item in value]
    if isinstance(value, dict):
        if all(isinstance(key, str) for key in value):
            return {"fields": {key: pack(item) for key, item in fields(value).items()}}
        return {"pairs": [[pack(key), pack(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def unpack(stored: Any) -> Any:
    """A field from JSON, the inverse of `pack`.

    >>> unpack(pack((1, {(0, 1): np.array([0.5])})))
    (1, {(0, 1): array([0.5])})
    """
    if isinstance(stored, list):
        return [unpack(item) for item in stored]
    if not isinstance(stored, dict):
        return stored
    if "array" in stored:
        payload = zlib.decompress(base64.b64decode(stored["array"]))
        return np.frombuffer(payload, dtype=stored["dtype"]).reshape(stored["shape"]).copy()
    if "tuple" in stored:
        return tuple(unpack(item) for item in stored["tuple"])
    if "pairs" in stored:
        return {unpack(key): unpack(item) for key, item in stored["pairs"]}
    return {key: unpack(item) for key, item in stored["fields"].items()}


def floor_digits(ratio: float, digits: int = 9) -> float:
    """A ratio rounded down, so that the stored number stays a promise on other machines.

    >>> floor_digits(0.99999999999)
    0.999999999
    """
    return math.floor(ratio * 10**digits) / 10**digits


def record(module: StatementModule) -> dict[str, Any]:
    """One statement's golden case: its tight instance, and the certified ratio to nine digits less one unit."""
    instance = fields(module.tight_instance())
    ratio = module.check(dict(instance)).tightest
    least = None if ratio is None else floor_digits(ratio - 1e-9)
    return {"id": module.ABOUT.id, "source": module.ABOUT.source, "ratio": least, "instance": pack(instance)}


def write_witnesses(path: Path) -> None:
    """Write the golden cases of all statements to ``path``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    stored = {"format": FORMAT, "witnesses": [record(module) for module in STATEMENTS]}
    path.write_text(json.dumps(stored, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def read_witnesses(path: Path) -> dict[str, tuple[float | None, Instance]]:
    """Statement id -> (least ratio or None, instance)."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    if stored["format"] != FORMAT:
        raise ValueError(f"{path}: expected witness format {FORMAT}, got {stored['format']}")
    return {item["id"]: (item["ratio"], unpack(item["instance"])) for item in stored["witnesses"]}


def main() -> int:
    """Write the golden cases of this checkout anew; 0 when done, 3 outside a checkout."""
    try:
        write_witnesses(checkout_directory("fixtures") / "statements" / "witnesses.json")
    except FixtureError as error:
        print(f"witnesses: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
