"""DLPack tensors over NumPy and torch arrays: DLPack's structures, true strides and offsets, and bfloat16 in NumPy.

The layout is that of DLPack's ``dlpack.h``; `examples/ports/c/kvproof_port.h` repeats it for authors of ports.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from proofs_checks.numbers import bfloat16_from_bits

ALIGNMENT = 256
"""Bytes to which DLPack asks the start of a tensor's memory to be aligned."""

CPU, CUDA = 1, 2
INT, UINT, FLOAT, BFLOAT = 0, 1, 2, 4

BFLOAT16 = np.dtype([("bfloat16", np.uint16)])
"""bf16 in NumPy: its bit patterns under a dtype of their own, so that no view of them is taken for uint16."""

CODES = {"i": INT, "u": UINT, "f": FLOAT}


class Device(ctypes.Structure):
    """``DLDevice``."""

    _fields_ = (("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32))


class DataType(ctypes.Structure):
    """``DLDataType``."""

    _fields_ = (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))


class Tensor(ctypes.Structure):
    """``DLTensor``."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", Device),
        ("ndim", ctypes.c_int32),
        ("dtype", DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


def aligned(shape: tuple[int, ...], dtype: Any) -> Any:
    """An uninitialised contiguous array that starts at a multiple of ``ALIGNMENT`` bytes.

    >>> aligned((3, 5), np.int8).ctypes.data % ALIGNMENT
    0
    """
    size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def fresh(array: Any, dtype: str | None) -> Any:
    """An aligned copy of a NumPy array; float32 that holds bf16 values becomes bf16 where ``dtype`` is "bfloat16".

    >>> fresh(np.array([1.0, -2.0], np.float32), "bfloat16")["bfloat16"].tolist() == [0x3F80, 0xC000]
    True
    """
    source = np.asarray(array)
    if dtype == "bfloat16":
        halves = np.array(source, dtype=np.float32, order="C", copy=True).view(np.uint32) >> 16
        copy = aligned(source.shape, BFLOAT16)
        copy["bfloat16"] = halves.astype(np.uint16)
        return copy
    copy = aligned(source.shape, source.dtype)
    copy[...] = source
    return copy


def widened(array: Any) -> Any:
    """Bf16 as float32; anything else as it is.

    >>> widened(fresh(np.float32([1.5]), "bfloat16")).tolist()
    [1.5]
    """
    if isinstance(array, np.ndarray) and array.dtype == BFLOAT16:
        return bfloat16_from_bits(array["bfloat16"])
    return array


def data_type(array: Any) -> DataType:
    """The DLPack type of a NumPy or torch array. Raises TypeError for one that DLPack does not have."""
    bits = isinstance(array, np.ndarray) and array.dtype == BFLOAT16
    text = "bfloat16" if bits else str(array.dtype).removeprefix("torch.")
    if text == "bfloat16":
        return DataType(BFLOAT, 16, 1)
    dtype = np.dtype(text)
    if dtype.kind not in CODES:
        raise TypeError(f"dtype {text} cannot be passed to a shared library")
    return DataType(CODES[dtype.kind], 8 * dtype.itemsize, 1)


def describe(array: Any, from_start: bool = True) -> Tensor:
    """A ``DLTensor`` of an array, valid as long as the array lives.

    With ``from_start``, ``data`` is where the array's memory starts and ``byte_offset`` leads to a view's first
    element, as DLPack means it; else ``data`` is the first element. An array without elements has ``data`` NULL.

    >>> base = fresh(np.arange(12, dtype=np.float32).reshape(3, 4), None)
    >>> view = describe(base[1:, 1:].T)
    >>> view.shape[:2], view.strides[:2], view.byte_offset, view.data == base.ctypes.data
    ([3, 2], [1, 4], 20, True)
    """
    if hasattr(array, "data_ptr"):
        device = Device(CUDA if array.device.type == "cuda" else CPU, array.device.index or 0)
        first, start, strides = array.data_ptr(), array.untyped_storage().data_ptr(), array.stride()
    else:
        device, size = Device(CPU, 0), array.dtype.itemsize
        first, start = array.ctypes.data, _memory_start(array)
        strides = tuple(stride // size for stride in array.strides)
    if not from_start or start > first:
        start = first
    if 0 in array.shape:
        start = first = 0
    tensor = Tensor(start or None, device, len(array.shape), data_type(array))
    axes = ctypes.c_int64 * max(len(array.shape), 1)  # at least one, so that no pointer is NULL
    tensor.shape, tensor.strides = axes(*array.shape), axes(*strides)
    tensor.byte_offset = first - start
    return tensor


def _memory_start(array: Any) -> int:
    """The aligned start of the memory that `aligned` made for the array or for what it is a view of."""
    owner = array.base if isinstance(array.base, np.ndarray) else array
    start: int = owner.ctypes.data
    return start + -start % ALIGNMENT


class Guarded:
    """An array's copy between two strips of known bytes, which show a write beside it."""

    STRIP, BYTE = ALIGNMENT, 0xA5

    def __init__(self, array: Any) -> None:
        size = array.nbytes
        self._memory = aligned((size + 2 * self.STRIP,), np.uint8)
        self._memory[...] = self.BYTE
        inside = self._memory[self.STRIP : self.STRIP + size]
        self.array = inside.view(array.dtype).reshape(array.shape)
        self.array[...] = array

    def overrun(self) -> str | None:
        """ "before" or "after" the array, whichever strip has changed.

        >>> result = Guarded(np.zeros(2, np.float32))
        >>> ctypes.memset(result.array.ctypes.data, 0, 12) and result.overrun()
        'after'
        """
        if (self._memory[: self.STRIP] != self.BYTE).any():
            return "before"
        return "after" if (self._memory[-self.STRIP :] != self.BYTE).any() else None
