"""Calls and answers as bytes: a JSON header and a safetensors body. No pickle, so reading them runs no code."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
from safetensors.numpy import load, save


def encode(header: Mapping[str, Any], arrays: Mapping[str, Any]) -> bytes:
    """One message: lengths, the header as JSON, the arrays as safetensors.

    >>> header, arrays = decode(encode({"stage": "x"}, {"a": np.arange(3)}))
    >>> header["stage"], arrays["a"].tolist()
    ('x', [0, 1, 2])
    """
    shapes = {name: list(np.shape(array)) for name, array in arrays.items()}  # 0-d and empty axes survive here
    body = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
    head = json.dumps({**header, "_shapes": shapes}).encode()
    return struct.pack("<QQ", len(head), len(body)) + head + body


LENGTHS = struct.calcsize("<QQ")


def sizes(prefix: bytes) -> int:
    """Bytes that follow the first ``LENGTHS`` bytes of a message."""
    head, body = struct.unpack("<QQ", prefix)
    return int(head + body)


def decode(message: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Header and arrays of a whole message. Raises ValueError if it is not one."""
    head, body = struct.unpack("<QQ", message[:LENGTHS])
    if len(message) != LENGTHS + head + body:
        raise ValueError(f"message: expected {LENGTHS + head + body} bytes, got {len(message)}")
    header = json.loads(message[LENGTHS : LENGTHS + head])
    shapes = header.pop("_shapes")
    arrays = load(message[LENGTHS + head :])
    return header, {name: arrays[name].reshape(shape) for name, shape in shapes.items()}
