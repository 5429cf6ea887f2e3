"""Safetensors as golden files hold them: canonical headers on the way out, nothing believed on the way in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors import SafetensorError

from proofs_checks.judge.files.tensors import DESERIALIZE, READ, STORED
from proofs_checks.numbers import bfloat16_from_bits

ALIGN = 8
"""The header is padded with spaces to a multiple of it; wider tensors come first, so that all of them are aligned."""

METADATA = "__metadata__"


class ContentError(ValueError):
    """A file is not what it should be; the text says what, and ``tensor`` which tensor, where it is one."""

    def __init__(self, message: str, tensor: str | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor


def little_endian(array: Any, true_dtype: str) -> Any:
    """An array as it is stored: bf16 values as the upper halves of float32, all in little-endian order."""
    array = np.asarray(array)
    if true_dtype == "bfloat16":
        array = (np.asarray(array, dtype=np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"))).reshape(array.shape)


def digest(payload: bytes) -> str:
    """SHA-256 in hex."""
    return hashlib.sha256(payload).hexdigest()


def dump(tensors: Mapping[str, Any], true_dtypes: Mapping[str, str]) -> tuple[bytes, dict[str, dict[str, Any]]]:
    """A safetensors file as bytes, and what a manifest says of each tensor."""
    arrays = {name: little_endian(array, true_dtypes[name]) for name, array in tensors.items()}
    header: dict[str, Any] = {}
    described: dict[str, dict[str, Any]] = {}
    data = b""
    for name in sorted(arrays, key=lambda n: (-arrays[n].dtype.itemsize, n)):
        payload, true = arrays[name].tobytes(), true_dtypes[name]
        shape = list(arrays[name].shape)
        header[name] = {
            "data_offsets": [len(data), len(data) + len(payload)],
            "dtype": STORED[true],
            "shape": shape,
        }
        described[name] = {"dtype": true, "stored": STORED[true], "shape": shape, "sha256": digest(payload)}
        data += payload
    text = json.dumps(header, sort_keys=True, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % ALIGN)
    return len(text).to_bytes(8, "little") + text + data, described


def parse(content: bytes) -> dict[str, dict[str, Any]]:
    """Dtype tag, shape and bytes of every tensor of a safetensors file. Raises ContentError for what is none."""
    if len(content) < 8:
        raise ContentError(f"truncated: {len(content)} bytes, no safetensors file is shorter than 8")
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8:
        swapped = int.from_bytes(content[:8], "big") <= len(content) - 8
        why = "its bytes are swapped" if swapped else "truncated, or no safetensors file"
        raise ContentError(f"a header of {length} bytes in a file of {len(content)}: {why}")
    try:
        header = json.loads(content[8 : 8 + length])
        entries = {name: dict(entry) for name, entry in DESERIALIZE(content)}
    except (SafetensorError, ValueError, RecursionError) as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise ContentError(f"no safetensors file, or a truncated one: {first[0][:160]}") from None
    if METADATA in header and len(header[METADATA]) > 1:
        raise ContentError(f"{len(header[METADATA])} metadata keys, expected at most one")
    return entries


def load(entry: Mapping[str, Any], described: Mapping[str, Any], name: str) -> Any:
    """One tensor as an array, after its tag, shape and digest are those of the manifest; bf16 widens to float32."""
    for key, own in (("stored", entry["dtype"]), ("shape", list(entry["shape"]))):
        if own != described[key]:
            what = "dtype tag" if key == "stored" else key
            raise ContentError(f"{name}: {what} {own}, the manifest says {described[key]}", name)
    payload = bytes(entry["data"])
    stored = np.dtype(READ[described["stored"]]).newbyteorder("<")
    array = np.frombuffer(payload, dtype=stored).reshape(described["shape"])
    if digest(payload) != described["sha256"]:
        swapped = digest(array.byteswap().tobytes()) == described["sha256"]
        why = "its bytes are swapped (big-endian)" if swapped else "its bytes were changed"
        raise ContentError(f"{name}: {why}: the digest is not the manifest's", name)
    if described["dtype"] == "bfloat16":
        return bfloat16_from_bits(array)
    return array.astype(READ[described["stored"]])
