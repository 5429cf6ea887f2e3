"""Information limits on query-independent reading: Eq. (4) and the constants of Theorems 1 and 2 (App. E.1)."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from refimpl.checks import ArgumentError, FloatArray, Sizes, number, real, whole

HIGH_WEIGHT = 1.0 / (1.0 + math.exp(-10.0))
"""p of Theorem 2: the attention weight of the token with logit +5."""

LOW_WEIGHT = 1.0 / (1.0 + math.exp(10.0))
"""rho = 1 - p of Theorem 2, without cancellation."""


def cube_mmse_bound(*, dimension: int, bits: float) -> float:
    """Least mean squared error per coordinate of the uniform cube [-1, 1]^n after ``bits`` bits of information.

    2^(1 - 2 b/n) / (pi e).

    Raises ArgumentError for n < 1 or negative bits.

    Source: ReadKV Eq. (4).

    With one bit per coordinate the bound is 1/(2 pi e); halving the interval has 1/12.

    >>> round(cube_mmse_bound(dimension=3, bits=3) * 2 * math.pi * math.e, 12)
    1.0
    """
    dimension = whole("dimension", dimension, low=1)
    return 2.0 ** (1.0 - 2.0 * number("bits", bits, low=0) / dimension) / (math.pi * math.e)


class Observation(NamedTuple):
    """What an observation of the uniform cube tells: ``bits`` of mutual information, ``mmse`` summed over axes."""

    bits: float
    mmse: float


def observe_boxes(*, lower: Any, upper: Any, channel: Any = None) -> Observation:
    """Mutual information and MMSE of a finite observation of Z uniform on [-1, 1]^n through a partition into boxes.

    Args:
        lower, upper: [m, n], corners of the m boxes; they must tile the cube (their volumes are checked to sum to 2^n).
        channel: [m, k], P(observation | box), rows summing to 1; None observes the box itself.

    Returns:
        ``bits``: I(Z; O) in bits. ``mmse``: E ||Z - E[Z | O]||^2.

    Raises:
        ArgumentError: a shape, a box that is empty or leaves the cube, volumes that do not add up, a bad channel.

    Source: ReadKV App. E.1 (Cube Entropy-MMSE Bound).

    The sign of one coordinate: one bit, and each half has variance 1/12.

    >>> observe_boxes(lower=[[-1.0], [0.0]], upper=[[0.0], [1.0]], channel=[[1.0, 0.0], [0.0, 1.0]])
    Observation(bits=1.0, mmse=0.08333333333333333)
    """
    sizes = Sizes()
    lower, upper = real("lower", lower, "m n", sizes), real("upper", upper, "m n", sizes)
    outside = (lower >= upper) | (lower < -1) | (upper > 1)
    if outside.any():
        box = np.argwhere(outside)[0][0]
        corners = f"got {lower[box].tolist()} to {upper[box].tolist()}"
        raise ArgumentError(f"lower: expected boxes of positive volume inside the cube [-1, 1]^n, {corners}")
    mass = np.prod((upper - lower) / 2.0, axis=1)  # [m]
    rounding = (sizes["m"] + 2 * sizes["n"]) * np.finfo(float).eps  # m sums of products of n factors
    if abs(mass.sum() - 1.0) > rounding:
        raise ArgumentError(f"upper: expected boxes that tile the cube, got {mass.sum()} of its volume")
    seen = np.eye(sizes["m"]) if channel is None else real("channel", channel, "m k", sizes)
    wrong = (seen < 0).any(axis=1) | (np.abs(seen.sum(axis=1) - 1.0) > seen.shape[1] * np.finfo(float).eps)
    if wrong.any():
        raise ArgumentError(f"channel: expected rows of probabilities that sum to 1, got {seen[wrong][0].tolist()}")
    return Observation(_information(mass, seen), _mean_squared_error(lower, upper, mass, seen))


def _information(mass: FloatArray, seen: FloatArray) -> float:
    """I(box; O) in bits, which is I(Z; O): O depends on Z through the box alone."""
    total = mass @ seen  # [k]
    ratio = np.divide(seen, total, out=np.ones_like(seen), where=seen > 0)
    return float(np.sum(mass[:, None] * seen * np.log2(ratio)))


def _mean_squared_error(lower: FloatArray, upper: FloatArray, mass: FloatArray, seen: FloatArray) -> float:
    """The variance inside the boxes plus that of the box centres around their posterior mean."""
    centre, inside = (lower + upper) / 2.0, np.sum((upper - lower) ** 2, axis=1) / 12.0
    joint = mass[:, None] * seen  # [m, k]
    total = joint.sum(axis=0)
    mean = np.divide(
        joint.T @ centre, total[:, None], out=np.zeros((len(total), lower.shape[1])), where=total[:, None] > 0
    )
    away = np.sum((centre[:, None, :] - mean[None]) ** 2, axis=2)  # [m, k]
    return float(mass @ inside + np.sum(joint * away))


def theorem_1_upper(*, dimension: int, sparsity: int, epsilon: float) -> float:
    """Theorem 1's bound on ReadKV's squared score error, k eps_L^2 / d.

    >>> theorem_1_upper(dimension=128, sparsity=32, epsilon=0.5)
    0.0625
    """
    d = whole("dimension", dimension, low=1)
    return whole("sparsity", sparsity, low=1, high=d) * number("epsilon", epsilon, low=0) ** 2 / d


def theorem_1_converse(*, dimension: int, probes: int) -> float:
    """Theorem 1's bound on every query-independent branching reader: 2^(1 - 2r/d) / (pi e d).

    >>> round(theorem_1_converse(dimension=4, probes=8) * 4, 6)                   # 1 / (8 pi e)
    0.014637
    """
    return cube_mmse_bound(dimension=dimension, bits=whole("probes", probes, low=0)) / dimension


def theorem_2_upper(*, epsilon: float) -> float:
    """Theorem 2's bound on ReadKV's squared output error per coordinate, (p eps_8 + rho)^2.

    >>> theorem_2_upper(epsilon=0.0097) < 9.50e-5
    True
    """
    return (HIGH_WEIGHT * number("epsilon", epsilon, low=0) + LOW_WEIGHT) ** 2


def theorem_2_converse(*, dimension: int) -> float:
    """Theorem 2's bound on every query-independent reader of 8m + 2 probes: tanh(5)^2 / (pi e) 2^(-7 - 2/m).

    >>> theorem_2_converse(dimension=1) > 2.285e-4
    True
    """
    m = whole("dimension", dimension, low=1)
    # E / m of the 2m source coordinates is twice the bound per coordinate; the risk is tanh(5)^2 / 2 times that
    return math.tanh(5.0) ** 2 * cube_mmse_bound(dimension=2 * m, bits=8 * m + 2)
