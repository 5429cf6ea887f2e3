"""Safetensors on disk: bf16 travels as U16 bit patterns, and nothing that a file says is believed.

Reading follows no link, reads no more than was expected, and turns every defect into one sentence.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize
from safetensors.numpy import save_file

from proofs_checks.numbers import bfloat16_from_bits

STORED = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "U16",
    "int64": "I64",
    "int8": "I8",
    "uint8": "U8",
}
"""How a value of each dtype is stored."""

READ = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
}
"""NumPy dtypes of what a program may write; BF16 and BOOL are read apart."""

DESERIALIZE: Callable[[bytes], Any] = deserialize
"""The library's own checks of offsets, sizes and names; it carries no types."""

HEADER = 1 << 16
"""Bytes allowed to a header; ours stay far below."""


class FileError(Exception):
    """A file that cannot be used; the text says which and why, in one line."""


def save_tensors(path: Path, tensors: Mapping[str, Any], dtypes: Mapping[str, str]) -> None:
    """Write arrays; one whose dtype is "bfloat16" holds bf16 values in float32 and is stored as its upper halves."""
    stored = {}
    for name, array in tensors.items():
        bits = np.array(array, order="C", copy=True)  # keeps an array without axes, as ascontiguousarray does not
        stored[name] = (bits.view(np.uint32) >> 16).astype(np.uint16) if dtypes[name] == "bfloat16" else bits
    save_file(stored, str(path))


def read_plain(path: Path, most: int) -> bytes:
    """The content of a regular file of at most ``most`` bytes. Raises FileError; FileNotFoundError where none is."""
    name = path.name
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        why = "a symbolic link, expected a file" if error.errno == errno.ELOOP else error.strerror
        raise FileError(f"{name}: {why}") from None
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode):
        os.close(descriptor)
        raise FileError(f"{name}: not a regular file")
    with os.fdopen(descriptor, "rb") as stream:
        if about.st_size > most:
            raise FileError(f"{name}: {about.st_size} bytes, expected at most {most}")
        return stream.read(most + 1)


def load_tensors(path: Path, most: int) -> dict[str, Any]:
    """The arrays of a safetensors file with at most ``most`` bytes of data; bf16 widens to float32.

    Raises FileError for what is no such file, FileNotFoundError where there is none.
    """
    content = read_plain(path, most + HEADER)
    _check_length(path.name, content)
    try:
        entries = DESERIALIZE(content)
    except (SafetensorError, ValueError) as error:
        raise FileError(f"{path.name}: no safetensors file, or a truncated one: {_one_line(error)}") from None
    return {name: _array(path.name, name, entry) for name, entry in entries}


def _check_length(file: str, content: bytes) -> None:
    """Refuse a file whose first eight bytes, the header's length, cannot be right; the library's words are terse."""
    if len(content) < 8:
        raise FileError(f"{file}: truncated: {len(content)} bytes, no safetensors file is shorter than 8")
    length = int.from_bytes(content[:8], "little")
    if length > len(content) - 8:
        swapped = int.from_bytes(content[:8], "big") <= len(content) - 8
        why = "its bytes are swapped (big-endian)" if swapped else "truncated, or no safetensors file"
        raise FileError(f"{file}: a header of {length} bytes in a file of {len(content)}: {why}")


def _array(file: str, name: str, entry: Mapping[str, Any]) -> Any:
    dtype, shape, data = entry["dtype"], entry["shape"], bytes(entry["data"])
    if dtype == "BF16":
        return bfloat16_from_bits(np.frombuffer(data, dtype="<u2")).reshape(shape)
    if dtype == "BOOL":
        raise FileError(f"{file}: {name}: expected numbers, got BOOL")
    if dtype not in READ:
        raise FileError(f"{file}: {name}: dtype {dtype} is not read; expected one of {', '.join(READ)} or BF16")
    stored = np.dtype(READ[dtype]).newbyteorder("<")
    return np.frombuffer(data, dtype=stored).reshape(shape).astype(READ[dtype])


def _one_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
