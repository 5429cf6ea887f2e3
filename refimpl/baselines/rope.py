"""Rotary positions with half pairing: channel f turns with channel f + d/2 (Llama and Qwen layout)."""

from __future__ import annotations

from typing import Any

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, number, real, whole


def rope_frequencies(d: int, base: float = 10000.0) -> FloatArray:
    """Radians per position of each channel pair: base^(-2 f / d), [d/2]. Raises ArgumentError for an odd d.

    >>> rope_frequencies(4).round(12).tolist()
    [1.0, 0.01]
    """
    if whole("d", d, low=2) % 2:
        raise ArgumentError(f"d: expected an even number of channels, got {d}")
    frequencies: FloatArray = number("base", base, above=0) ** (-2.0 * np.arange(d // 2) / d)
    return frequencies


def as_complex(x: FloatArray) -> Any:
    """Channel pairs [..., d] as complex numbers x_f + i x_{f + d/2}, [..., d/2].

    >>> as_complex(np.array([1.0, 2.0, 3.0, 4.0])).tolist()
    [(1+3j), (2+4j)]
    """
    half = x.shape[-1] // 2
    return x[..., :half] + 1j * x[..., half:]


def rope_rotate(*, x: Any, positions: Any, frequencies: Any) -> FloatArray:
    """Turn the channel pairs of x [H, T, d] by position times frequency, [H, T, d]; negative positions turn back.

    Args:
        x: [H, T, d], d even. positions: [T]. frequencies: [d/2], radians per position.

    Raises:
        ArgumentError: a shape, an odd d, or a non-finite value.

    >>> rope_rotate(x=[[[1.0, 0.0]]], positions=[2], frequencies=[np.pi / 4]).round(12).tolist()
    [[[0.0, 1.0]]]
    """
    sizes = Sizes()
    x = real("x", x, "H T d", sizes)
    positions = real("positions", positions, "T", sizes)
    frequencies = pair_values("frequencies", frequencies, "F", sizes)
    turned = as_complex(x) * np.exp(1j * positions[:, None] * frequencies)  # [H, T, d/2]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def pair_values(name: str, value: Any, axes: str, sizes: Sizes) -> FloatArray:
    """``value`` as float64 whose last axis, F, is half of the d that ``sizes`` holds; raises ArgumentError."""
    if sizes["d"] % 2:
        raise ArgumentError(f"{name}: expected a pair of channels per entry, got d={sizes['d']}")
    sizes["F"] = sizes["d"] // 2
    return real(name, value, axes, sizes)
