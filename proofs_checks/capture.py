"""Real captures: post-RoPE queries, keys and values as attention consumed them, in safetensors with a manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.numpy import load_file

from proofs_checks.fixtures import fixtures_directory
from proofs_checks.numbers import bfloat16_from_bits


class CaptureError(Exception):
    """A capture cannot be read; the message names the file, what was expected and what came."""


@dataclass(frozen=True)
class Capture:
    """A capture's arrays (bf16 patterns widened to float32) and its manifest."""

    path: Path
    manifest: dict[str, Any]
    arrays: dict[str, Any]

    def __getitem__(self, name: str) -> Any:
        """One array. Raises CaptureError that lists what is there."""
        if name not in self.arrays:
            raise CaptureError(f"{self.path.name}: no array {name!r}; it has {', '.join(sorted(self.arrays))}")
        return self.arrays[name]


def load_capture(path: str | Path) -> Capture:
    """Read ``path`` (a .safetensors file) and the manifest ``path`` with .json beside it.

    Arrays whose manifest dtype is bfloat16 are stored as uint16 bit patterns and come back as float32. Raises
    CaptureError for a missing or unreadable file, a digest or a dtype that does not match.
    """
    path = Path(path)
    manifest_path = path.with_suffix(".json")
    try:
        manifest = json.loads(manifest_path.read_text())
        stored = load_file(path)
    except FileNotFoundError as error:
        raise CaptureError(f"{error.filename or path}: no such file") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise CaptureError(f"{path}: not a readable capture: {error}") from None
    arrays = {}
    for name, about in manifest.get("arrays", {}).items():
        if name not in stored:
            raise CaptureError(f"{path}: the manifest names {name!r}, the file lacks it")
        array = stored[name]
        if hashlib.sha256(array.tobytes()).hexdigest() != about["sha256"]:
            raise CaptureError(f"{path}: {name} does not match its digest in {manifest_path.name}")
        arrays[name] = bfloat16_from_bits(array) if about["dtype"] == "bfloat16" else array
    return Capture(path, manifest, arrays)


SHIPPED = "smollm2_135m_instruct_q4_1"
WORD = "shipped"
"""What a command line calls the capture that comes with the project."""


def capture_path(text: str | Path) -> Path:
    """The path that a command line means: ``shipped`` is the capture that comes with the project.

    >>> capture_path("shipped").name, capture_path("mine.safetensors").name
    ('smollm2_135m_instruct_q4_1.safetensors', 'mine.safetensors')
    """
    shipped = str(text) == WORD and not Path(WORD).exists()
    return fixtures_directory() / "captures" / f"{SHIPPED}.safetensors" if shipped else Path(text)


@lru_cache(maxsize=1)
def shipped_capture() -> Capture:
    """The capture that comes with the project: SmolLM2-135M-Instruct with 4-bit (Q4_1) weights."""
    return load_capture(capture_path(WORD))


def needle_slice(layer: int, step: int) -> dict[str, Any]:
    """One step of one layer of the needle prompt: queries [3, 3, 64], keys and values [3, 2041, 64]."""
    capture = shipped_capture()
    queries = capture["n2k_Q"][step, layer]  # [9, 64]; query head h reads KV head h // 3
    return {
        "queries": queries.reshape(3, 3, -1),
        "keys": capture["n2k_K"][layer],
        "values": capture["n2k_V"][layer],
    }


def long_text_slice(step: int) -> dict[str, Any]:
    """One step of the 8K text's retrieval head: queries [1, 3, 64], keys and values [1, 8176, 64]."""
    capture = shipped_capture()
    return {"queries": capture["t8k_Q"][None, step], "keys": capture["t8k_K"][None], "values": capture["t8k_V"][None]}
