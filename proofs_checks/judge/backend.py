"""Moves arrays between NumPy and a port's framework, in the port's process."""

from __future__ import annotations

import hashlib
import importlib
from typing import Any

import numpy as np

from proofs_checks.judge import dlpack


class Backend:
    """Moves arrays between NumPy and the port's framework; the one place that knows torch, and only when asked."""

    def __init__(self, framework: str, device: str, compiled: bool = False) -> None:
        self.framework, self.device = framework, device
        self.compiled = compiled  # a shared library takes bf16 as it is, also without torch
        self.torch: Any = importlib.import_module("torch") if framework == "torch" else None
        if self.torch is not None:  # fill what torch.empty hands out with NaN, so that an unwritten result shows
            self.torch.use_deterministic_algorithms(True, warn_only=True)

    def give(self, array: Any, dtype: str | None) -> Any:
        """A fresh array of the port's framework; ``dtype`` "bfloat16" makes torch tensors of that type."""
        if self.torch is None:
            return dlpack.fresh(array, dtype) if self.compiled else np.array(array, copy=True)
        tensor = self.torch.from_numpy(np.array(array, copy=True))
        if dtype == "bfloat16":
            tensor = tensor.to(self.torch.bfloat16)
        return tensor.to(self.device)

    def spread(self, array: Any, dtype: str | None, reach: int) -> Any:
        """The content as a view whose first axis spans ``reach`` elements or more, on a GPU; elsewhere fresh."""
        tensor = self.give(array, dtype)
        if self.torch is None or not self.device.startswith("cuda") or len(array) < 2:
            return tensor
        step = -(-reach // (len(array) - 1))
        storage = self.torch.empty(step * len(array) + tensor[0].numel(), dtype=tensor.dtype, device=self.device)
        view = storage.as_strided(tensor.shape, (step, *tensor.stride()[1:]))
        view.copy_(tensor)
        return view

    def overwrite(self, target: Any, source: Any) -> None:
        """Copy new content into an array that the port has seen."""
        if self.torch is None:
            np.copyto(target, source)
        else:
            target.copy_(source)

    def take(self, value: Any, name: str) -> Any:
        """A result as NumPy; bfloat16 widens to float32. Raises TypeError for what is no array."""
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            value = value.detach().to("cpu")
            value = value.to(self.torch.float32) if value.dtype == self.torch.bfloat16 else value
            return value.numpy()
        if isinstance(value, (np.ndarray, np.generic, list, tuple)):
            try:
                array = np.asarray(dlpack.widened(value))
            except ValueError:
                raise TypeError(f"{name}: expected an array, got lists of different lengths") from None
            if array.dtype.kind in "fiub":
                return array
            raise TypeError(f"{name}: expected an array of numbers, got dtype {array.dtype}")
        raise TypeError(f"{name}: expected an array, got {type(value).__name__}")

    def bytes_of(self, value: Any) -> bytes:
        """A digest of an array's raw content, to see whether a call changed it; the array itself may be large."""
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            value = value.detach().to("cpu").contiguous().view(-1)
            value = value.view(self.torch.uint8).numpy() if value.numel() else np.zeros(0)
        flat = np.ascontiguousarray(value).reshape(-1)
        return hashlib.blake2b(flat.view(np.uint8).data if flat.size else b"").digest()

    def overlap(self, left: Any, right: Any) -> bool:
        """Whether two arrays share memory."""
        if self.torch is not None and isinstance(left, self.torch.Tensor) and isinstance(right, self.torch.Tensor):
            return left.numel() > 0 and left.untyped_storage().data_ptr() == right.untyped_storage().data_ptr()
        if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
            return bool(np.may_share_memory(left, right))
        return False
