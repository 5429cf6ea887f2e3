"""Bit planes: plane p holds bit p of every path, so that a prefix of depth t is the first t planes (Alg. 1)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from refimpl.checks import ArgumentError, IntArray, Sizes, integers, whole

PLANES = 8
"""Plane 0 is the path's first (most significant) bit (AMB-18)."""

ByteArray = NDArray[np.uint8]


def bytes_for(bits: int) -> int:
    """Bytes that hold a row of ``bits`` bits: ceil(bits / 8).

    >>> bytes_for(0), bytes_for(8), bytes_for(9)
    (0, 1, 2)
    """
    return -(-bits // 8)


def _split(codes: IntArray) -> ByteArray:
    """Bits of codes, first bit first: [...] -> [8, ...]."""
    shifts = np.arange(PLANES - 1, -1, -1).reshape(-1, *[1] * codes.ndim)
    return ((codes >> shifts) & 1).astype(np.uint8)


def _join(bits: ByteArray) -> ByteArray:
    """The inverse of `_split`: [8, ...] -> [...]."""
    weights = (1 << np.arange(PLANES - 1, -1, -1)).astype(np.uint8)
    return np.tensordot(weights, bits, axes=1).astype(np.uint8)


def readkv_pack_key_planes(*, codes: Any) -> ByteArray:
    """Pack key codes into planes that run along tokens, so that one channel's prefix of all tokens is contiguous.

    Args:
        codes: [T, d] in 0..255.

    Returns:
        planes [8, d, ceil(T/8)] uint8. Bit i of byte j is token 8j + i (little bit order, AMB-18); padding is 0.

    Raises:
        ArgumentError: a shape or a code outside 0..255.

    Source: ReadKV Alg. 1 (Encoder).

    >>> planes = readkv_pack_key_planes(codes=[[128], [0], [129]])
    >>> planes[0].tolist(), planes[7].tolist()
    ([[5]], [[4]])
    """
    codes = integers("codes", codes, "T d", Sizes(), low=0, high=255)
    return np.packbits(_split(codes.T), axis=-1, bitorder="little")


def readkv_unpack_key_planes(*, planes: Any, tokens: int) -> ByteArray:
    """Key codes [T, d] uint8 of planes [8, d, ceil(T/8)]; padding bits are ignored.

    Raises ArgumentError for a shape, a byte outside 0..255, or planes of another number of tokens.

    Source: ReadKV Alg. 1.

    >>> readkv_unpack_key_planes(planes=readkv_pack_key_planes(codes=[[128], [0], [129]]), tokens=3).ravel().tolist()
    [128, 0, 129]
    """
    packed = _check_planes(planes, "8 d bytes", "tokens", tokens)
    return _join(np.unpackbits(packed, axis=-1, count=tokens, bitorder="little")).T  # [T, d]


def readkv_pack_value_planes(*, codes: Any) -> ByteArray:
    """Pack value codes into planes that run along channels, so that one token's prefix of all channels is contiguous.

    Args:
        codes: [T, d] in 0..255.

    Returns:
        planes [8, T, ceil(d/8)] uint8. Bit i of byte j is channel 8j + i (little bit order, AMB-18); padding is 0.

    Raises:
        ArgumentError: a shape or a code outside 0..255.

    Source: ReadKV Alg. 1 (Encoder).

    >>> readkv_pack_value_planes(codes=[[128, 0, 129]])[0].tolist()
    [[5]]
    """
    codes = integers("codes", codes, "T d", Sizes(), low=0, high=255)
    return np.packbits(_split(codes), axis=-1, bitorder="little")


def readkv_unpack_value_planes(*, planes: Any, channels: int) -> ByteArray:
    """Value codes [T, d] uint8 of planes [8, T, ceil(d/8)]; padding bits are ignored.

    Raises ArgumentError for a shape, a byte outside 0..255, or planes of another number of channels.

    Source: ReadKV Alg. 1.

    >>> readkv_unpack_value_planes(planes=readkv_pack_value_planes(codes=[[128, 0, 129]]), channels=3).tolist()
    [[128, 0, 129]]
    """
    packed = _check_planes(planes, "8 T bytes", "channels", channels)
    return _join(np.unpackbits(packed, axis=-1, count=channels, bitorder="little"))


def read_key_prefixes(*, planes: Any, depths: Any, tokens: int) -> ByteArray:
    """Key codes [T, d] with the first ``depths[c]`` bits of channel c; planes beyond a channel's depth are not read.

    planes: [8, d, ceil(T/8)]. depths: [d]. The unread low bits are 0, so `readkv_decode` at those depths gives what the
    full codes would. Raises ArgumentError as `readkv_unpack_key_planes`, or for a depth outside 0..8.

    >>> packed = readkv_pack_key_planes(codes=[[255, 255]])
    >>> read_key_prefixes(planes=packed, depths=[1, 3], tokens=1).tolist()
    [[128, 224]]
    """
    packed = _check_planes(planes, "8 d bytes", "tokens", tokens)
    depths = integers("depths", depths, "d", Sizes({"d": packed.shape[1]}), low=0, high=8)
    return readkv_unpack_key_planes(planes=_prefixes(packed, depths), tokens=tokens)


def read_value_prefixes(*, planes: Any, depths: Any, channels: int) -> ByteArray:
    """Value codes [T, d] with the first ``depths[j]`` bits of token j; planes beyond a token's depth are not read.

    planes: [8, T, ceil(d/8)]. depths: [T]. Raises ArgumentError as `read_key_prefixes`.

    >>> packed = readkv_pack_value_planes(codes=[[255], [255]])
    >>> read_value_prefixes(planes=packed, depths=[0, 2], channels=1).tolist()
    [[0], [192]]
    """
    packed = _check_planes(planes, "8 T bytes", "channels", channels)
    depths = integers("depths", depths, "T", Sizes({"T": packed.shape[1]}), low=0, high=8)
    return readkv_unpack_value_planes(planes=_prefixes(packed, depths), channels=channels)


def _prefixes(packed: ByteArray, depths: IntArray) -> ByteArray:
    """A copy of the planes in which only the rows within ``depths`` [rows] were fetched; the others stay 0."""
    fetched = np.zeros_like(packed)
    for plane in range(PLANES):
        rows = depths > plane
        fetched[plane, rows] = packed[plane, rows]
    return fetched


def append_key_planes(*, planes: Any, tokens: int, codes: Any) -> ByteArray:
    """Key planes after n new tokens: planes of ``tokens`` tokens and codes [n, d] -> [8, d, ceil((tokens+n)/8)].

    Only the last byte of a row changes; the bytes before it are kept as they are.

    >>> start = readkv_pack_key_planes(codes=[[128], [0]])
    >>> append_key_planes(planes=start, tokens=2, codes=[[129]])[0].tolist()
    [[5]]
    """
    packed = _check_planes(planes, "8 d bytes", "tokens", tokens)
    codes = integers("codes", codes, "n d", Sizes({"d": packed.shape[1]}), low=0, high=255)
    whole_bytes = tokens // 8
    open_codes = readkv_unpack_key_planes(planes=packed[:, :, whole_bytes:], tokens=tokens % 8)  # [tokens % 8, d]
    tail = readkv_pack_key_planes(codes=np.concatenate([open_codes, codes]))
    return np.concatenate([packed[:, :, :whole_bytes], tail], axis=-1)


def append_value_planes(*, planes: Any, channels: int, codes: Any) -> ByteArray:
    """Value planes after n new tokens: planes [8, T, ceil(d/8)] and codes [n, d] -> [8, T + n, ceil(d/8)].

    >>> start = readkv_pack_value_planes(codes=[[128]])
    >>> append_value_planes(planes=start, channels=1, codes=[[0], [128]])[0].tolist()
    [[1], [0], [1]]
    """
    packed = _check_planes(planes, "8 T bytes", "channels", channels)
    codes = integers("codes", codes, "n d", Sizes({"d": channels}), low=0, high=255)
    return np.concatenate([packed, readkv_pack_value_planes(codes=codes)], axis=1)


def _check_planes(planes: Any, axes: str, name: str, bits: int) -> ByteArray:
    packed = integers("planes", planes, axes, Sizes(), low=0, high=255)
    expected = bytes_for(whole(name, bits, low=0))
    if len(packed) != PLANES or packed.shape[-1] != expected:
        raise ArgumentError(f"planes: expected [8, .., {expected}] for {name}={bits}, got {list(packed.shape)}")
    return packed.astype(np.uint8)
