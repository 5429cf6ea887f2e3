"""Calls and answers as bytes: a JSON header and plain arrays. No pickle, so reading them runs no code."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

ALIGNED = 64
"""Bytes; arrays begin at multiples of it."""


def encode(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytearray:
    """One message: lengths, the header as JSON with dtype, shape and place of every array, the arrays.

    >>> header, arrays = decode(encode({"stage": "x"}, {"a": np.arange(3)}))
    >>> header["stage"], arrays["a"].tolist()
    ('x', [0, 1, 2])
    """
    given = {name: np.asarray(array) for name, array in arrays.items()}
    for name, array in given.items():
        if array.dtype.kind not in KINDS:
            raise TypeError(f"{name}: expected an array of numbers, got dtype {array.dtype}")
    described, start = {}, 0
    for name, array in given.items():
        described[name] = [array.dtype.str, list(array.shape), start]
        start += -(-array.nbytes // ALIGNED) * ALIGNED
    head = json.dumps({**header, "_arrays": described}).encode()
    head += b" " * (-(LENGTHS + len(head)) % ALIGNED)
    message = bytearray(LENGTHS + len(head) + start)  # arrays may be large: each is copied once
    message[: LENGTHS + len(head)] = struct.pack("<QQ", len(head), start) + head
    for name, view in _views(message, described, LENGTHS + len(head)).items():
        view[...] = given[name]
    return message


KINDS = "fiub"
"""Kinds of dtype that a message may hold."""


def _views(message: Any, described: Mapping[str, Any], begin: int) -> dict[str, Any]:
    """The arrays where they lie in a message. Raises ValueError or the like for what does not fit in it."""
    views = {}
    for name, (dtype, shape, start) in described.items():
        kind, sizes = np.dtype(dtype), [int(size) for size in shape]
        if kind.kind not in KINDS or min(sizes, default=0) < 0 or start < 0:
            raise ValueError(f"{name}: expected an array of numbers within the message")
        views[name] = np.frombuffer(message, kind, math.prod(sizes), begin + start).reshape(sizes)
    return views


LENGTHS = struct.calcsize("<QQ")


def sizes(prefix: bytes) -> int:
    """Bytes that follow the first ``LENGTHS`` bytes of a message."""
    head, body = struct.unpack("<QQ", prefix)
    return int(head + body)


def decode(message: bytes | bytearray) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a whole message, the arrays as views of it. Raises ValueError if it is not one."""
    head, body = struct.unpack("<QQ", message[:LENGTHS])
    if len(message) != LENGTHS + head + body:
        raise ValueError(f"message: expected {LENGTHS + head + body} bytes, got {len(message)}")
    header = json.loads(bytes(message[LENGTHS : LENGTHS + head]))
    return header, _views(message, header.pop("_arrays"), LENGTHS + head)
