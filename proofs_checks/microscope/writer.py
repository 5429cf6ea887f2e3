"""Writing a capture: tensors, digests and the manifest beside them (docs/capture-format.md)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file


@dataclass
class Trace:
    """What one prompt left behind: keys and values [L, H, T, d], queries [steps, L, query heads, d], positions."""

    keys: Any
    values: Any
    queries: Any
    positions: NDArray[np.int64]
    produced: list[int] = field(default_factory=list)
    """Generated token ids."""


@dataclass
class CaptureWriter:
    """Collects tensors and set descriptions, and writes file and manifest."""

    about: dict[str, Any]
    tensors: dict[str, Any] = field(default_factory=dict)
    sets: list[dict[str, Any]] = field(default_factory=list)
    dtypes: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, trace: Trace, layers: Sequence[int], rope: dict[str, Any] | None, **more: Any) -> None:
        """Add one prompt's trace as a set."""
        parts = {"keys": trace.keys, "values": trace.values, "queries": trace.queries}
        for part, array in parts.items():
            self.tensors[f"{name}.{part}"], self.dtypes[f"{name}.{part}"] = bf16_bits(array), "bfloat16"
        self.tensors[f"{name}.positions"], self.dtypes[f"{name}.positions"] = trace.positions, "int64"
        entry: dict[str, Any] = {"name": name, "layers": list(layers), "kv_heads": list(range(trace.keys.shape[1]))}
        entry |= {part: f"{name}.{part}" for part in (*parts, "positions")}
        if rope is not None:
            entry["rope"] = rope
        if "cal.mean" in self.tensors:
            entry["calibration"] = {"mean": "cal.mean", "covariance": "cal.covariance"}
        self.sets.append(entry | more)

    def add_moments(self, mean: Any, covariance: Any) -> None:
        """Add held-out moments [L, 2, H, d] and [L, 2, H, d, d]; must come before the sets."""
        self.tensors |= {"cal.mean": mean, "cal.covariance": covariance}
        self.dtypes |= {"cal.mean": "float32", "cal.covariance": "float32"}

    def write(self, path: Path) -> None:
        """Write the safetensors file and the manifest beside it."""
        self.tensors = {name: np.ascontiguousarray(x) for name, x in self.tensors.items()}
        arrays = {
            name: {
                "dtype": self.dtypes[name],
                "shape": list(x.shape),
                "sha256": hashlib.sha256(x.tobytes()).hexdigest(),
            }
            for name, x in self.tensors.items()
        }
        save_file(self.tensors, path)
        manifest = {"format": 1, **self.about, "arrays": arrays, "sets": self.sets}
        path.with_suffix(".json").write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def bf16_bits(x: Any) -> NDArray[np.uint16]:
    """bfloat16 bit patterns of finite float32 numbers, rounded to nearest even.

    >>> [hex(b) for b in bf16_bits(np.array([1.0, -2.0], np.float32))]
    ['0x3f80', '0xc000']
    """
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    return ((bits.astype(np.uint64) + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
