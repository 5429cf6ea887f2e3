"""Checks of arguments before a launch: shapes in the project's letters, dtypes, devices; errors name the argument.

A kernel that gets a wrong pointer reads somebody else's memory, so nothing reaches one unchecked.
"""

from __future__ import annotations

import math
from typing import Any

import torch

FLOATS = (torch.bfloat16, torch.float16, torch.float32)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
INDICES = (torch.int32, torch.int64)


class ArgumentError(ValueError):
    """An argument of a kernel's entry is unusable; the message names it, what was expected and what came."""


class Sizes(dict[str, int]):
    """Sizes that axis letters are bound to so far, and the device that every tensor must share."""

    device: torch.device | None = None

    def bind(self, name: str, value: Any, axes: str, dtypes: tuple[torch.dtype, ...]) -> torch.Tensor:
        """``value`` as a tensor of shape ``axes`` ("H G d") whose last axis is contiguous.

        Raises ArgumentError for no tensor, another dtype, device or shape. A last axis with a stride is copied.
        """
        if not isinstance(value, torch.Tensor):
            raise ArgumentError(f"{name}: expected a torch tensor, got {type(value).__name__}")
        if value.dtype not in dtypes:
            expected = ", ".join(str(d).removeprefix("torch.") for d in dtypes)
            raise ArgumentError(f"{name}: expected dtype {expected}, got {str(value.dtype).removeprefix('torch.')}")
        if self.device is None:
            self.device = value.device
        if value.device != self.device:
            raise ArgumentError(f"{name}: expected device {self.device}, got {value.device}")
        letters = axes.split()
        known = {k: self[k] for k in letters if k in self}
        if len(letters) != value.ndim or any(self.get(k, s) != s for k, s in zip(letters, value.shape, strict=True)):
            given = "".join(f", {k}={v}" for k, v in known.items())
            raise ArgumentError(f"{name}: expected shape [{', '.join(letters)}]{given}, got {list(value.shape)}")
        self.update(zip(letters, value.shape, strict=True))
        return value if value.ndim == 0 or value.stride(-1) == 1 or value.shape[-1] == 1 else value.contiguous()


def whole(name: str, value: Any, low: int, high: int | None = None) -> int:
    """``value`` as an int in ``low..high``; raises ArgumentError for anything else.

    >>> whole("rank", 8, 1, 16)
    8
    """
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(f"{name}: expected a whole number, got {value!r}")
    number = int(value.__index__())
    if number < low or (high is not None and number > high):
        span = f"at least {low}" if high is None else f"in {low}..{high}"
        raise ArgumentError(f"{name}: expected {span}, got {number}")
    return number


def scale_of(softmax_scale: float | None, d: int) -> float:
    """The factor on every logit: ``softmax_scale``, or 1/sqrt(d) for None. Raises ArgumentError unless finite.

    >>> scale_of(None, 64), scale_of(0.5, 64)
    (0.125, 0.5)
    """
    if softmax_scale is None:
        return 1.0 / math.sqrt(d) if d else 1.0
    if not math.isfinite(softmax_scale):
        raise ArgumentError(f"softmax_scale: expected a finite number, got {softmax_scale!r}")
    return float(softmax_scale)


def kept_pages(budget_tokens: Any, page_size: int, pages: int) -> int:
    """min(ceil(budget / page_size), pages); fewer than two of several pages is an error (AMB-04).

    >>> kept_pages(65, 16, 100)
    5
    """
    kept = -(-whole("budget_tokens", budget_tokens, 1) // page_size)
    if kept < 2 and pages > 1:
        raise ArgumentError(
            f"budget_tokens: expected at least two pages (sink and most recent) of {page_size} tokens, "
            f"got {budget_tokens}"
        )
    return min(kept, pages)


def check_table(block_table: torch.Tensor, tokens: torch.Tensor, page_size: int, blocks: int) -> int:
    """Check a block table [N, Pmax] against lengths [N] and ``blocks`` in the pool; returns the longest length.

    Columns from ceil(tokens/B) on are undefined and not looked at. Reads the tensors back to the host, so a captured
    chain does it once, before capture. Raises ArgumentError for a negative length, a row too short, or an id out of
    range.
    """
    lengths = tokens.to("cpu", torch.int64)
    if lengths.numel() and int(lengths.min()) < 0:
        raise ArgumentError(f"tokens: expected lengths of at least 0, got {int(lengths.min())}")
    longest = int(lengths.max()) if lengths.numel() else 0
    pages = -(-longest // page_size)
    if pages > block_table.shape[1]:
        raise ArgumentError(f"block_table: expected {pages} columns for {longest} tokens, got {block_table.shape[1]}")
    used = torch.arange(block_table.shape[1])[None] < ((lengths + page_size - 1) // page_size)[:, None]
    ids = block_table.to("cpu", torch.int64)[used]
    bad = (ids < 0) | (ids >= blocks)
    if bool(bad.any()):
        raise ArgumentError(f"block_table: expected block ids in 0..{blocks - 1}, got {int(ids[bad][0])}")
    return longest
